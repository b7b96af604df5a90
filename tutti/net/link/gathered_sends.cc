#include "tutti/net/link/gathered_sends.h"

#include <algorithm>
#include <utility>

namespace tutti::net {
namespace {

struct Gathered {
  bool open = false;
  std::vector<std::shared_ptr<SendQueue>> queues;
};
thread_local Gathered gathered;

}  // namespace

GatheredSends::GatheredSends() : outermost_(!std::exchange(gathered.open, true)) {}

GatheredSends::~GatheredSends() {
  if (!outermost_) return;
  Flush();
  gathered.open = false;
}

void GatheredSends::Flush() {
  if (gathered.queues.empty()) return;
  // Writing can release objects that send in turn, so the list is taken first.
  const std::vector<std::shared_ptr<SendQueue>> queues = std::exchange(gathered.queues, {});
  for (const auto& queue : queues) queue->WriteQueued();
}

bool GatheredSends::Add(std::shared_ptr<SendQueue> queue) {
  if (!gathered.open) return false;
  auto& queues = gathered.queues;
  if (std::find(queues.begin(), queues.end(), queue) == queues.end()) {
    queues.push_back(std::move(queue));
  }
  return true;
}

}  // namespace tutti::net
