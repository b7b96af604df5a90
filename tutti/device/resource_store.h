#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <typeinfo>
#include <utility>

#include "tutti/base/status.h"

namespace tutti {

// Something with a life longer than a step that is not a plain value: a queue, a mutex, an
// accumulator.
class Resource {
 public:
  virtual ~Resource() = default;
  virtual std::string_view kind() const = 0;  // "FIFOQueue", for messages
};

// The resources of a device, by (container, name). Thread-safe.
class ResourceStore {
 public:
  // The resource of that name, made by `make` when there is none. FAILED_PRECONDITION when there is
  // one of another kind.
  template <typename R, typename Make>
  absl::StatusOr<std::shared_ptr<R>> FindOrCreate(const std::string& container,
                                                  const std::string& name, Make&& make) {
    std::lock_guard lock(mutex_);
    auto& entry = resources_[{container, name}];
    if (entry == nullptr) entry = make();
    auto typed = std::dynamic_pointer_cast<R>(entry);
    if (typed == nullptr) {
      return FailedPrecondition("\"{}\" on this device is a {}, not what this node needs", name,
                                entry->kind());
    }
    return typed;
  }
  void Clear(const std::string& container);

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<Resource>> resources_;
};

}  // namespace tutti
