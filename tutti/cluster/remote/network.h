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

  struct Control {
    std::shared_ptr<ControlChannel> channel;
    net::TaskIdentity peer;  // who answered
  };
  // Connects to a task, again and again until `deadline` (NowNanos) while trying again may help:
  // UNAVAILABLE tells what was tried. `lost` is called at most once, on a thread of the network,
  // when the process at the other end is gone.
  virtual absl::StatusOr<Control> OpenControl(const std::string& task, int64_t deadline,
                                              std::function<void(absl::Status)> lost) = 0;
  // The link to that process: the one there is, or one that is being opened, and breaks when that
  // does not succeed. Returns at once. Stays valid until its Broken, at least.
  virtual std::shared_ptr<net::Link> OpenLink(const std::string& task,
                                              const net::TaskIdentity& peer) = 0;

  // Links of older processes of their task that were refused, so far.
  virtual uint64_t refused_links() const { return 0; }

  // "10.0.0.7:2222", for messages.
  virtual std::string AddressOf(const std::string& task) const = 0;
};

}  // namespace tutti
