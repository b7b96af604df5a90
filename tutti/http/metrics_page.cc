// The only source that sees cpp-httplib, whose header takes seconds to compile.
#include "tutti/http/metrics_page.h"

#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <charconv>
#include <thread>

#include "tutti/base/metrics/metrics.h"
#include "tutti/base/status.h"
#include "tutti/base/thread.h"

namespace tutti::http {
namespace {

constexpr size_t kThreads = 2;
constexpr time_t kPatience = 2;  // seconds for a request to come, or an answer to go
constexpr size_t kLongestRequest = 8 << 10;

class HttplibPage final : public MetricsPage {
 public:
  explicit HttplibPage(const Options& options) : options_(options) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server_.set_read_timeout(kPatience);
    server_.set_write_timeout(kPatience);
    server_.set_keep_alive_timeout(kPatience);
    server_.set_payload_max_length(kLongestRequest);
    // The library would let a second process listen at the same port (SO_REUSEPORT).
    server_.set_socket_options([](socket_t socket) {
      const int on = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    });
    server_.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
      response.set_content(options_.metrics == nullptr ? "" : options_.metrics->ToPrometheus(),
                           "text/plain; version=0.0.4; charset=utf-8");
    });
    server_.Get("/healthz", [this](const httplib::Request&, httplib::Response& response) {
      const Health health = options_.health ? options_.health() : Health();
      response.status = health.well ? 200 : 503;
      response.set_content(health.text + "\n", "text/plain; charset=utf-8");
    });
  }
  ~HttplibPage() override {
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Open() {
    port_ = options_.port == 0 ? server_.bind_to_any_port(options_.host)
            : server_.bind_to_port(options_.host, options_.port) ? options_.port
                                                                 : -1;
    if (port_ <= 0) {
      return Unavailable(
          "cannot serve metrics at {}:{}: the port is taken or the address is not of this host",
          options_.host, options_.port);
    }
    TUTTI_ASSIGN_OR_RETURN(thread_, StartThread("the thread that serves metrics", [this] {
                             server_.listen_after_bind();
                             ended_ = true;
                           }));
    // stop() does nothing before the thread has begun to accept.
    while (!server_.is_running() && !ended_) std::this_thread::yield();
    if (ended_) return Unavailable("cannot serve metrics at {}: it ended at once", address());
    return absl::OkStatus();
  }

  int port() const override { return port_; }
  std::string address() const override { return fmt::format("http://{}:{}", options_.host, port_); }

 private:
  const Options options_;
  httplib::Server server_;
  int port_ = -1;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsPage>> MetricsPage::Start(const Options& options) {
  auto page = std::make_unique<HttplibPage>(options);
  TUTTI_RETURN_IF_ERROR(page->Open());
  return std::unique_ptr<MetricsPage>(std::move(page));
}

absl::StatusOr<HttpPlace> ParseHttpPlace(const std::string& text) {
  HttpPlace place;
  const size_t colon = text.rfind(':');
  const std::string port = colon == std::string::npos ? text : text.substr(colon + 1);
  if (colon != std::string::npos) place.host = text.substr(0, colon);
  const char* const end = port.data() + port.size();
  const auto [rest, error] = std::from_chars(port.data(), end, place.port);
  if (error != std::errc() || rest != end || place.port < 1 || place.port > 65535 ||
      place.host.empty()) {
    return InvalidArgument(
        "\"{}\": expected a port from 1 to 65535, for this host alone, or HOST:PORT, such as "
        "0.0.0.0:9100 for every address",
        text);
  }
  return place;
}

}  // namespace tutti::http
