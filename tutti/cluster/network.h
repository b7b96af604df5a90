#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tutti/cluster/control.h"
#include "tutti/net/link/link.h"

namespace tutti {

// How this process opens connections to tasks. What comes in reaches the LinkEvents and the
// ControlHandler that the network was made with. Thread-safe.
class Network {
 public:
  virtual ~Network() = default;

  // One try each, that takes no longer than until `deadline` (NowNanos). UNAVAILABLE when trying
  // again may help. The link stays valid until its Broken. There is one link between two
  // processes: whoever is second gets the one there is.
  virtual absl::StatusOr<net::Link*> OpenLink(const std::string& task, int64_t deadline) = 0;
  // `lost` is called once, on a thread of the network, when the process at the other end is gone.
  virtual absl::StatusOr<std::shared_ptr<ControlChannel>> OpenControl(
      const std::string& task, int64_t deadline, std::function<void(absl::Status)> lost) = 0;

  // "10.0.0.7:2222", for messages.
  virtual std::string AddressOf(const std::string& task) const = 0;
};

}  // namespace tutti
