#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tutti/collective/communicator.h"
#include "tutti/collective/engine/control.h"
#include "tutti/collective/engine/engine.h"
#include "tutti/collective/engine/group.h"

namespace tutti::collective {

// Makes the Selector of a group from the hosts of its members, by rank of the group. Every member
// must make an equal one.
using SelectorMaker = std::function<std::unique_ptr<Selector>(std::span<const int> ranks,
                                                              std::span<const int> hosts)>;

// A Communicator out of its parts.
class EngineCommunicator final : public Communicator {
 public:
  // `hosts`: the host of each rank, any numbers.
  EngineCommunicator(std::unique_ptr<Engine> engine, std::vector<int> hosts,
                     SelectorMaker make_selector);
  // What has to end between the last operation and the links: the control plane, whose thread calls
  // the engine.
  void SetControl(std::unique_ptr<Control> control) { control_ = std::move(control); }
  ~EngineCommunicator() override;
  // How groups choose from here on, the world included. Before there are other groups, or threads.
  void Choose(SelectorMaker make_selector);

  Engine& engine() { return *engine_; }
  int rank() const override { return engine_->rank(); }
  int size() const override { return engine_->size(); }
  Group& world() override { return *world_; }
  absl::StatusOr<std::unique_ptr<Group>> MakeGroup(std::string_view name,
                                                   std::span<const int> ranks) override;
  absl::StatusOr<std::unique_ptr<net::RegisteredMemory>> Allocate(size_t bytes) override {
    return engine_->Allocate(bytes);
  }
  bool Poll() override { return engine_->Poll(); }
  void WaitForWork(int64_t timeout_nanos) override { engine_->WaitForWork(timeout_nanos); }
  void Wake() override { engine_->Wake(); }
  void Abort(const absl::Status& reason) override { engine_->Abort(reason); }
  CommunicatorStats stats() const override { return engine_->stats(); }
  void SetIdle(bool idle) override { engine_->SetIdle(idle); }
  absl::Status status() const override { return engine_->status(); }

 private:
  std::unique_ptr<GroupState> NewState(std::string_view name, std::span<const int> ranks) const;

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Control> control_;
  const std::vector<int> hosts_;
  SelectorMaker make_selector_;
  GroupState* world_state_ = nullptr;
  std::unique_ptr<EngineGroup> world_;
};

}  // namespace tutti::collective
