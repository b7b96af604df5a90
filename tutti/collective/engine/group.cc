#include "tutti/collective/engine/group.h"

#include "tutti/base/checked.h"

namespace tutti::collective {

Handle EngineGroup::AllReduce(void* data, int64_t count, DType dtype, const CallOptions& call) {
  return engine_->Start(*state_,
                        {.operation = Operation::kAllReduce,
                         .data = data,
                         .count = count,
                         .counts = {},
                         .dtype = dtype},
                        call);
}

Handle EngineGroup::Broadcast(void* data, int64_t count, DType dtype, const CallOptions& call) {
  return engine_->Start(*state_,
                        {.operation = Operation::kBroadcast,
                         .data = data,
                         .count = count,
                         .counts = {},
                         .dtype = dtype},
                        call);
}

Handle EngineGroup::Reduce(void* data, int64_t count, DType dtype, const CallOptions& call) {
  return engine_->Start(
      *state_,
      {.operation = Operation::kReduce, .data = data, .count = count, .counts = {}, .dtype = dtype},
      call);
}

Handle EngineGroup::ReduceScatter(void* data, int64_t count, DType dtype, const CallOptions& call) {
  return engine_->Start(*state_,
                        {.operation = Operation::kReduceScatter,
                         .data = data,
                         .count = count,
                         .counts = {},
                         .dtype = dtype},
                        call);
}

Handle EngineGroup::AllGather(void* data, int64_t count, DType dtype, const CallOptions& call) {
  return engine_->Start(*state_,
                        {.operation = Operation::kAllGather,
                         .data = data,
                         .count = count,
                         .counts = {},
                         .dtype = dtype},
                        call);
}

Handle EngineGroup::Gather(void* data, int64_t count, DType dtype, const CallOptions& call) {
  return engine_->Start(
      *state_,
      {.operation = Operation::kGather, .data = data, .count = count, .counts = {}, .dtype = dtype},
      call);
}

Handle EngineGroup::Scatter(void* data, int64_t count, DType dtype, const CallOptions& call) {
  return engine_->Start(*state_,
                        {.operation = Operation::kScatter,
                         .data = data,
                         .count = count,
                         .counts = {},
                         .dtype = dtype},
                        call);
}

Handle EngineGroup::AllGatherV(void* data, std::span<const int64_t> counts, DType dtype,
                               const CallOptions& call) {
  // Mistakes become a count of -1, which the engine refuses.
  int64_t total = counts.size() == static_cast<size_t>(size()) ? 0 : -1;
  for (int64_t count : counts) {
    const auto sum = CheckedAdd(total, count);
    total = count < 0 || total < 0 || !sum ? -1 : *sum;
  }
  return engine_->Start(*state_,
                        {.operation = Operation::kAllGather,
                         .data = data,
                         .count = total,
                         .counts = counts,
                         .dtype = dtype},
                        call);
}

Handle EngineGroup::AllToAll(const void* input, void* output, int64_t count, DType dtype,
                             const CallOptions& call) {
  return engine_->Start(*state_,
                        {.operation = Operation::kAllToAll,
                         .input = input,
                         .data = output,
                         .count = count,
                         .counts = {},
                         .dtype = dtype},
                        call);
}

Handle EngineGroup::Barrier(const CallOptions& call) {
  return engine_->Start(*state_, {.operation = Operation::kBarrier, .counts = {}}, call);
}

std::optional<Forecast> EngineGroup::Predict(Operation operation, int64_t bytes) const {
  return state_->selector().Predict(operation, bytes);
}

std::string EngineGroup::Explain(Operation operation, int64_t bytes) const {
  return state_->selector().Explain(operation, bytes);
}

}  // namespace tutti::collective
