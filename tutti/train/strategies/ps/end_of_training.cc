#include "tutti/train/strategies/ps/end_of_training.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>

#include "tutti/base/error.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/source.h"

namespace tutti {
namespace {

constexpr auto kPatience = std::chrono::seconds(1);  // with a server that may be gone

}  // namespace

EndOfTraining::EndOfTraining(const std::vector<std::string>& devices) {
  failure_ = Placeholder(graph_, kUInt8, Shape{kUnknownDim}, "failure");
  for (size_t s = 0; s < devices.size(); ++s) {
    const DeviceScope on(graph_, devices[s]);
    const Output queue = FIFOQueue(graph_, {{kUInt8, Shape{kUnknownDim}}}, {.capacity = 8},
                                   fmt::format("end_of_training_{}", s));
    tell_.push_back(Enqueue(queue, {failure_}));
    await_.push_back(Dequeue(queue)[0]);
  }
}

std::string EndOfTraining::Await(Session& session, size_t server,
                                 const std::stop_token& stop) const {
  const Tensor letter = session.Run(await_[server], {.stop = stop});
  return std::string(static_cast<const char*>(letter.raw()), letter.bytes());
}

void EndOfTraining::Tell(Session& session, std::string_view failure) const {
  Tensor text(kUInt8, Shape{int64_t(failure.size())});
  if (!failure.empty()) std::memcpy(text.raw(), failure.data(), failure.size());
  for (const Node* tell : tell_) {
    try {
      session.RunTargets({{failure_, text}}, {tell}, {.timeout = kPatience});
    } catch (const Error&) {
      // It is gone, and needs no telling.
    }
  }
}

}  // namespace tutti
