#pragma once

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/client/session.h"
#include "tutti/cluster/server.h"
#include "tutti/net/coordination/membership.h"
#include "tutti/net/coordination/store/remote_store.h"
#include "tutti/net/coordination/store/service.h"
#include "tutti/train/run_config.h"
#include "tutti/train/strategies/ps/parameter_servers.h"

// Parameter servers and workers in this process for tests: a device stands for each, and every
// worker has a thread, a graph and a session of its own.
namespace tutti {

using State = std::map<std::string, Tensor>;

class ServersUnderTest {
 public:
  ServersUnderTest(int servers, int workers)
      : servers_(servers),
        workers_(workers),
        server_({.devices = servers + workers, .cores_per_device = 1}) {}

  ParameterServers For(int rank) {
    ParameterServers found;
    for (int s = 0; s < servers_; ++s) found.devices.push_back(Device(s));
    found.workers = workers_;
    found.rank = rank;
    found.worker_device = Device(servers_ + rank);
    found.connect = [this](SessionOptions& options) { options = {.server = &server_}; };
    found.start_timeout = 30;
    for (int r = 0; r < workers_; ++r) found.worker_tasks.push_back(Task(r));
    found.membership = Join(rank);
    return found;
  }
  // The store takes the worker's latest process for lost.
  void Lose(int rank) { service_.CallerLost(Caller(rank, starts_[size_t(rank)])); }

  // Runs body(rank) on a thread for each worker, and gives back the message of each one's Error,
  // which it tells the others as Main would.
  std::vector<std::string> OnWorkers(
      const std::function<std::shared_ptr<const Strategy>(ParameterServers)>& make,
      const std::function<void(int, std::shared_ptr<const Strategy>)>& body) {
    std::vector<std::string> errors(static_cast<size_t>(workers_));
    std::vector<std::thread> threads;
    for (int r = 0; r < workers_; ++r) {
      threads.emplace_back([&, r] {
        std::shared_ptr<const Strategy> strategy;
        try {
          strategy = make(For(r));
          body(r, strategy);
        } catch (const Error& error) {
          errors[size_t(r)] = error.what();
          if (strategy != nullptr) {
            strategy->peers().Abort(error.code(),
                                    fmt::format("worker {} failed: {}", r, error.what()));
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

 private:
  static std::string Task(int rank) { return fmt::format("/job:worker/task:{}", rank); }
  static std::string Caller(int rank, int start) { return fmt::format("{}#{}", Task(rank), start); }
  // Another process of a worker.
  std::shared_ptr<net::Membership> Join(int rank) {
    const int start = ++starts_[size_t(rank)];
    const auto send = [this, caller = Caller(rank, start)](std::string request,
                                                           net::StoreService::Done done) {
      service_.Handle(caller, request, std::move(done));
    };
    return ValueOrThrow(net::Membership::Join({.store = std::make_shared<net::RemoteStore>(send),
                                               .task = Task(rank),
                                               .incarnation = uint64_t(start),
                                               .place = fmt::format("start {}", start)}));
  }
  static std::string Device(int index) { return fmt::format("/job:local/task:0/cpu:{}", index); }

  const int servers_;
  const int workers_;
  Server server_;
  net::MemoryStore store_;
  net::StoreService service_{&store_};
  std::array<std::atomic<int>, 16> starts_ = {};  // processes of each worker so far
};

// Parts are joined: NAME/part_0 and NAME/part_1 are NAME, NAME/part_0/momentum is NAME/momentum.
// What strategies keep for themselves is left out.
inline State Joined(const State& parts) {
  State whole;
  for (const auto& [name, value] : parts) {
    if (name.starts_with("ps-")) continue;
    const size_t at = name.find("/part_");
    if (at == std::string::npos) {
      whole[name] = value;
      continue;
    }
    const size_t end = name.find('/', at + 1);
    if (name.compare(at, 7, "/part_0") != 0) continue;
    const std::string rest = end == std::string::npos ? "" : name.substr(end);
    std::vector<Tensor> all;
    int64_t rows = 0;
    for (int p = 0;; ++p) {
      const auto found = parts.find(fmt::format("{}/part_{}{}", name.substr(0, at), p, rest));
      if (found == parts.end()) break;
      all.push_back(found->second);
      rows += found->second.shape()[0];
    }
    Tensor joined(value.dtype(), value.shape().WithDim(0, rows));
    auto* to = static_cast<std::byte*>(joined.raw());
    for (const Tensor& part : all) {
      const auto* from = static_cast<const std::byte*>(part.raw());
      to = std::copy(from, from + part.bytes(), to);
    }
    whole[name.substr(0, at) + rest] = joined;
  }
  return whole;
}

}  // namespace tutti
