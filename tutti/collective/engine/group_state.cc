#include "tutti/collective/engine/group_state.h"

#include <algorithm>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/collective/algorithms/algorithm.h"

namespace tutti::collective {

GroupState::GroupState(std::string_view name, std::span<const int> ranks, int own,
                       std::span<const int> hosts, std::unique_ptr<Selector> selector)
    : name_(name),
      id_(StableHash(name)),
      ranks_(ranks.begin(), ranks.end()),
      members_hash_(static_cast<uint32_t>(StableHash(std::as_bytes(ranks)))),
      selector_(std::move(selector)) {
  const auto place = std::find(ranks_.begin(), ranks_.end(), own);
  rank_ = static_cast<int>(place - ranks_.begin());
  for (int rank : ranks_) hosts_.push_back(hosts[rank]);
  shape_ = ShapeOf(hosts_);
}

absl::StatusOr<const RankProgram*> GroupState::ProgramFor(Operation operation, const Choice& choice,
                                                          int root) {
  const uint64_t key = static_cast<uint64_t>(operation) << 56 |
                       static_cast<uint64_t>(choice.algorithm.Pack()) << 40 |
                       static_cast<uint64_t>(choice.segments) << 24 | static_cast<uint64_t>(root);
  if (key == last_key_) return last_program_;
  auto found = programs_.find(key);
  if (found == programs_.end()) {
    const Request request{.operation = operation,
                          .ranks = size(),
                          .root = root,
                          .segments = choice.segments,
                          .variant = choice.algorithm.variant,
                          .hosts = hosts_};
    TUTTI_ASSIGN_OR_RETURN(Schedule schedule, Algorithms()[choice.algorithm.index].make(request));
    found = programs_.emplace(key, MakeProgram(schedule, rank_)).first;
  }
  last_key_ = key;
  last_program_ = found->second.get();
  return last_program_;
}

}  // namespace tutti::collective
