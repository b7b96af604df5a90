// Any bytes as a request to register parts of a step: a Status, or a request that is written as one
// that is read alike. What is small is registered by a worker, and a step of it begun and ended:
// the worker answers each call once and lives.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/awaited.h"
#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/kernels/register.h"
#include "tutti/runtime/local_worker.h"
#include "tutti/runtime/messages/message_codec.h"
#include "tutti/testing/run_small_graph.h"

namespace {

using namespace tutti;

void RunAndAbort(LocalWorker& worker, const StepId& id, uint64_t handle, TensorList feeds) {
  Awaited<RunResponse> answer;
  worker.Run(
      {.id = id, .handle = handle, .random_step = 0, .trace = false, .feeds = std::move(feeds)},
      [&](RunResponse&& response) { answer.Set(std::move(response)); });
  worker.Abort(id, Cancelled("enough"));
  (void)answer.Wait();
  worker.CleanUp(id);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static LocalWorker* const worker = [] {
    RegisterCpuKernels();
    return new LocalWorker({.devices = 2, .cores = 1});
  }();
  absl::StatusOr<RegisterRequest> request;
  try {
    request = DecodeRegister({reinterpret_cast<const char*>(data), size}, {});
  } catch (const Error&) {
    return 0;  // as the service does
  }
  if (!request.ok()) return 0;
  WireMessage again;
  if (EncodeRegister(*request, again).ok()) {
    const auto twice = DecodeRegister(again.fields, again.tensors);
    WireMessage third;
    TUTTI_CHECK(twice.ok() && EncodeRegister(*twice, third).ok());
    TUTTI_CHECK(third.fields == again.fields && third.tensors.size() == again.tensors.size());
  }
  TensorList feeds;
  for (const Partition& part : request->parts) {
    if (!IsSmall(*part.program.graph)) return 0;
    for (const Output& feed : part.program.feeds) {
      if (!feed.shape().IsFullyKnown()) return 0;
      feeds.push_back(Tensor::Zeros(feed.dtype(), feed.shape()));
    }
  }
  static int64_t step = 0;
  const StepId id{request->session, ++step};
  Awaited<absl::StatusOr<uint64_t>> registered;
  worker->Register(*std::move(request), [&](auto handle) { registered.Set(std::move(handle)); });
  const absl::StatusOr<uint64_t> handle = registered.Wait();
  if (!handle.ok()) return 0;
  RunAndAbort(*worker, id, *handle, std::move(feeds));
  worker->Deregister(*handle);
  return 0;
}
