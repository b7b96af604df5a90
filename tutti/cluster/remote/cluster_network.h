#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "tutti/base/status.h"
#include "tutti/cluster/remote/network.h"
#include "tutti/tensor/buffer.h"

namespace tutti {

// The network of a process of a real cluster: one port where it listens, if it does, links
// (net/link) and control connections (cluster/grpc), all behind the same handshake. Thread-safe.
class ClusterNetwork final : public Network {
 public:
  struct Options {
    net::TaskIdentity self;
    std::string token;
    std::map<std::string, std::string> addresses;  // by task: "host:port"
    // Where to listen, or "" for a client, which listens nowhere.
    std::string bind;
    std::string advertised;    // how others reach it; empty: what was bound
    bool insecure = false;     // listen beyond this host even without a token
    bool first_stays = false;  // as in LinksOptions
    // For how long the name of its own host is tried; `stopped` ends that early.
    double start_seconds = 0;
    std::function<bool()> stopped = nullptr;
  };
  // Nothing comes in before Start.
  static absl::StatusOr<std::unique_ptr<ClusterNetwork>> Make(Options options,
                                                              net::LinkEvents* events,
                                                              ControlHandler* handler);
  // Ends all connections, telling the others. REQUIRES: the handler answers what it was asked.
  ~ClusterNetwork() override;

  absl::Status Start();
  const std::string& address() const;  // where it listens; "" for a client
  // Memory that processes of this host read in place when it is sent. Empty where there is no more.
  std::function<BufferRef(size_t bytes)> memory() const;
  static constexpr size_t kLeastShared = size_t{32} << 10;  // smaller blocks are not worth it

  absl::StatusOr<Control> OpenControl(const std::string& task, int64_t deadline,
                                      std::function<void(absl::Status)> lost) override;
  std::shared_ptr<net::Link> OpenLink(const std::string& task,
                                      const net::TaskIdentity& peer) override;
  uint64_t refused_links() const override;
  std::string AddressOf(const std::string& task) const override;

 private:
  struct State;
  explicit ClusterNetwork(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace tutti
