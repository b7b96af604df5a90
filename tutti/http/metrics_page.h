#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tutti {

class MetricsRegistry;

namespace http {

// Serves two pages over HTTP: /metrics in the text format of Prometheus, and /healthz for probes,
// which answers 200 with what the process does, or 503 with what is wrong. Reads nothing from
// requests but their path. Has threads of its own, which mostly sleep; the destructor ends them.
class MetricsPage {
 public:
  struct Health {
    bool well = true;
    std::string text = "ok";  // one line
  };
  struct Options {
    std::string host = "127.0.0.1";
    int port = 0;  // 0: any
    // Must outlive the page; `health` is called by any thread.
    const MetricsRegistry* metrics = nullptr;
    std::function<Health()> health = {};  // empty: always well
  };
  // UNAVAILABLE when the port is taken or the host is not of this machine.
  static absl::StatusOr<std::unique_ptr<MetricsPage>> Start(const Options& options);
  virtual ~MetricsPage() = default;

  virtual int port() const = 0;
  virtual std::string address() const = 0;  // "http://127.0.0.1:9100"
};

// What --http takes: "9100", which is loopback only, or "host:9100"; 0.0.0.0 is every address.
struct HttpPlace {
  std::string host = "127.0.0.1";
  int port = 0;
};
// INVALID_ARGUMENT that says what was expected. A port from 1 to 65535.
absl::StatusOr<HttpPlace> ParseHttpPlace(const std::string& text);

}  // namespace http
}  // namespace tutti
