#include "tutti/runtime/step_cache.h"

namespace tutti {

// Nodes never change, so their ids stand for them.
void SetKey(const MasterRunRequest& request, StepKey& key) {
  key.clear();
  key.push_back(request.feeds.size());
  for (size_t i = 0; i < request.feeds.size(); ++i) {
    const Tensor& value = request.feed_values[i];
    key.push_back(uint64_t(request.feeds[i].node));
    key.push_back(uint64_t(request.feeds[i].index));
    key.push_back(uint64_t(value.dtype()) << 8 | uint64_t(value.shape().rank()));
    for (const int64_t dim : value.shape().dims()) key.push_back(uint64_t(dim));
  }
  key.push_back(request.fetches.size());
  for (const OutputId& fetch : request.fetches) {
    key.push_back(uint64_t(fetch.node));
    key.push_back(uint64_t(fetch.index));
  }
  for (const int64_t target : request.targets) key.push_back(uint64_t(target));
}

}  // namespace tutti
