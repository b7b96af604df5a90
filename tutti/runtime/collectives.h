#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "tutti/base/status.h"
#include "tutti/collective/communicator.h"
#include "tutti/device/device.h"

namespace tutti {

// What the steps of a worker need to take part in collectives: the communicator, and its groups by
// name. Thread-safe.
class Collectives {
 public:
  explicit Collectives(std::shared_ptr<collective::Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  collective::Communicator& communicator() { return *communicator_; }

  // The group of that name; empty: all ranks. NOT_FOUND names those there are.
  absl::StatusOr<collective::Group*> FindGroup(std::string_view name);
  void AddGroup(std::unique_ptr<collective::Group> group);

  // Memory for buckets, as arenas of kind kRegisteredMemory want it. Outlives this object together
  // with the memory it gave.
  std::unique_ptr<Allocator> MakeAllocator();

 private:
  const std::shared_ptr<collective::Communicator> communicator_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<collective::Group>, std::less<>> groups_;
};

}  // namespace tutti
