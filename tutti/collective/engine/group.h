#pragma once

#include "tutti/collective/communicator.h"
#include "tutti/collective/engine/engine.h"
#include "tutti/collective/engine/group_state.h"

namespace tutti::collective {

// The Group that users hold: turns calls into those of the engine, which outlives it.
class EngineGroup final : public Group {
 public:
  EngineGroup(Engine* engine, GroupState* state) : engine_(engine), state_(state) {}

  int rank() const override { return state_->rank(); }
  int size() const override { return state_->size(); }
  std::string_view name() const override { return state_->name(); }
  Handle AllReduce(void* data, int64_t count, DType dtype, const CallOptions& call) override;
  Handle Broadcast(void* data, int64_t count, DType dtype, const CallOptions& call) override;
  Handle Reduce(void* data, int64_t count, DType dtype, const CallOptions& call) override;
  Handle ReduceScatter(void* data, int64_t count, DType dtype, const CallOptions& call) override;
  Handle AllGather(void* data, int64_t count, DType dtype, const CallOptions& call) override;
  Handle Gather(void* data, int64_t count, DType dtype, const CallOptions& call) override;
  Handle Scatter(void* data, int64_t count, DType dtype, const CallOptions& call) override;
  Handle AllGatherV(void* data, std::span<const int64_t> counts, DType dtype,
                    const CallOptions& call) override;
  Handle AllToAll(const void* input, void* output, int64_t count, DType dtype,
                  const CallOptions& call) override;
  Handle Barrier(const CallOptions& call) override;
  std::optional<Forecast> Predict(Operation operation, int64_t bytes) const override;
  std::string Explain(Operation operation, int64_t bytes) const override;

 private:
  Engine* const engine_;
  GroupState* const state_;
};

}  // namespace tutti::collective
