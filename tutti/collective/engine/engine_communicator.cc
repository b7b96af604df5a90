#include "tutti/collective/engine/engine_communicator.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/status.h"

namespace tutti::collective {

EngineCommunicator::EngineCommunicator(std::unique_ptr<Engine> engine, std::vector<int> hosts,
                                       SelectorMaker make_selector)
    : engine_(std::move(engine)),
      hosts_(std::move(hosts)),
      make_selector_(std::move(make_selector)) {
  std::vector<int> all(engine_->size());
  std::iota(all.begin(), all.end(), 0);
  auto state = NewState("world", all);
  state->set_world();
  auto added = engine_->AddGroup(std::move(state));
  TUTTI_CHECK(added.ok());
  world_state_ = *added;
  world_ = std::make_unique<EngineGroup>(engine_.get(), world_state_);
}

void EngineCommunicator::Choose(SelectorMaker make_selector) {
  make_selector_ = std::move(make_selector);
  world_state_->set_selector(make_selector_(world_state_->ranks(), hosts_));
}

EngineCommunicator::~EngineCommunicator() {
  engine_->Stop();
  control_.reset();
}

std::unique_ptr<GroupState> EngineCommunicator::NewState(std::string_view name,
                                                         std::span<const int> ranks) const {
  std::vector<int> hosts;
  for (int rank : ranks) hosts.push_back(hosts_[rank]);
  return std::make_unique<GroupState>(name, ranks, rank(), hosts_, make_selector_(ranks, hosts));
}

absl::StatusOr<std::unique_ptr<Group>> EngineCommunicator::MakeGroup(std::string_view name,
                                                                     std::span<const int> ranks) {
  for (int rank : ranks) {
    if (rank < 0 || rank >= size()) {
      return InvalidArgument("group \"{}\": rank {} is not one of the world's: 0 to {}", name, rank,
                             size() - 1);
    }
  }
  if (std::set<int>(ranks.begin(), ranks.end()).size() != ranks.size()) {
    return InvalidArgument("group \"{}\": a rank is named twice", name);
  }
  if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end()) {
    return InvalidArgument("group \"{}\" does not hold rank {}, which makes it; only members do",
                           name, rank());
  }
  TUTTI_ASSIGN_OR_RETURN(GroupState * state, engine_->AddGroup(NewState(name, ranks)));
  return std::make_unique<EngineGroup>(engine_.get(), state);
}

}  // namespace tutti::collective
