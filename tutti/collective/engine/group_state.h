#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "tutti/collective/operation/envelope.h"
#include "tutti/collective/operation/rank_program.h"
#include "tutti/collective/tuning/selector.h"

namespace tutti::collective {

// What a rank keeps of a group: who is in it, how its operations are done, and the programs that
// were compiled for it. Under the engine's lock.
class GroupState {
 public:
  // `ranks`: world ranks in the group's order; `own`: this process's world rank; `hosts`: the host
  // of each world rank.
  // REQUIRES: `ranks` has no duplicates and holds `own`.
  GroupState(std::string_view name, std::span<const int> ranks, int own, std::span<const int> hosts,
             std::unique_ptr<Selector> selector);

  const std::string& name() const { return name_; }
  uint64_t id() const { return id_; }
  uint32_t members_hash() const { return members_hash_; }
  const std::vector<int>& ranks() const { return ranks_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  bool is_world() const { return is_world_; }
  void set_world() { is_world_ = true; }
  const Selector& selector() const { return *selector_; }
  void set_selector(std::unique_ptr<Selector> selector) { selector_ = std::move(selector); }
  const GroupShape& shape() const { return shape_; }

  // The program of this rank, compiled at the first call.
  absl::StatusOr<const RankProgram*> ProgramFor(Operation operation, const Choice& choice,
                                                int root);
  // The step of a call that does not give one: it counts up.
  int64_t NextStep(uint64_t key_hash) { return next_step_[key_hash]++; }

 private:
  const std::string name_;
  const uint64_t id_;
  const std::vector<int> ranks_;
  std::vector<int> hosts_;  // of the members
  GroupShape shape_;
  uint32_t members_hash_ = 0;
  int rank_ = -1;
  bool is_world_ = false;
  std::unique_ptr<Selector> selector_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<const RankProgram>> programs_;
  uint64_t last_key_ = 0;  // the program that was asked for last: mostly the next one too
  const RankProgram* last_program_ = nullptr;
  absl::flat_hash_map<uint64_t, int64_t> next_step_;
};

}  // namespace tutti::collective
