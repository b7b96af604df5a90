#include "tutti/cluster/environment/pmi_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "tutti/base/status.h"
#include "tutti/net/socket.h"

namespace tutti {
namespace {

constexpr size_t kLongestAnswer = 4096;
constexpr char kKey[] = "tutti-meeting";

class Conversation {
 public:
  Conversation(int fd, int64_t deadline) : fd_(fd), deadline_(deadline) {}

  // Sends a line and returns the answer, which must be `answer` with rc=0 or none.
  absl::StatusOr<std::string> Ask(const std::string& line, std::string_view answer) {
    TUTTI_RETURN_IF_ERROR(Send(line));
    TUTTI_ASSIGN_OR_RETURN(std::string text, ReadLine());
    const std::string rc = Value(text, "rc");
    if (Value(text, "cmd") != answer || (!rc.empty() && rc != "0")) {
      return Unavailable("mpiexec answered \"{}\" to \"{}\"", text, line);
    }
    return text;
  }

  // What stands behind "name=" in a line.
  static std::string Value(std::string_view line, std::string_view name) {
    size_t begin = 0;
    while (begin < line.size()) {
      const size_t end = std::min(line.find(' ', begin), line.size());
      const std::string_view word = line.substr(begin, end - begin);
      if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=') {
        return std::string(word.substr(name.size() + 1));
      }
      begin = end + 1;
    }
    return "";
  }

 private:
  absl::Status Send(const std::string& line) {
    const std::string text = line + "\n";
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t count = ::write(fd_, text.data() + sent, text.size() - sent);
      if (count > 0) {
        sent += size_t(count);
      } else if (errno == EAGAIN) {
        TUTTI_RETURN_IF_ERROR(net::WaitFor(fd_, POLLOUT, deadline_));
      } else if (errno != EINTR) {
        return Unavailable("the connection to mpiexec broke: {}", net::ErrnoText(errno));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ReadLine() {
    while (pending_.find('\n') == std::string::npos) {
      if (pending_.size() > kLongestAnswer) return Unavailable("mpiexec's answer has no end");
      TUTTI_RETURN_IF_ERROR(
          WithPrefix(net::WaitFor(fd_, POLLIN, deadline_),
                     "mpiexec does not answer, or not all processes have come: "));
      char bytes[1024];
      const ssize_t count = ::read(fd_, bytes, sizeof(bytes));
      if (count > 0) {
        pending_.append(bytes, size_t(count));
      } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
        return Unavailable("mpiexec closed its connection");
      }
    }
    const size_t end = pending_.find('\n');
    std::string line = pending_.substr(0, end);
    pending_.erase(0, end + 1);
    return line;
  }

  const int fd_;
  const int64_t deadline_;
  std::string pending_;
};

absl::StatusOr<PmiExchange> Exchange(int fd, int rank, const std::string& tell, int64_t deadline) {
  Conversation pmi(fd, deadline);
  TUTTI_ASSIGN_OR_RETURN(std::string answer,
                         pmi.Ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init"));
  TUTTI_ASSIGN_OR_RETURN(answer, pmi.Ask("cmd=get_my_kvsname", "my_kvsname"));
  PmiExchange exchange;
  exchange.job = Conversation::Value(answer, "kvsname");
  if (exchange.job.empty()) return Unavailable("mpiexec gives the job no name: \"{}\"", answer);
  if (rank == 0) {
    const std::string put =
        fmt::format("cmd=put kvsname={} key={} value={}", exchange.job, kKey, tell);
    TUTTI_RETURN_IF_ERROR(pmi.Ask(put, "put_result").status());
  }
  TUTTI_RETURN_IF_ERROR(pmi.Ask("cmd=barrier_in", "barrier_out").status());
  TUTTI_ASSIGN_OR_RETURN(
      answer, pmi.Ask(fmt::format("cmd=get kvsname={} key={}", exchange.job, kKey), "get_result"));
  exchange.told = Conversation::Value(answer, "value");
  // A process that ends without this, once it has begun, is taken for a crash.
  TUTTI_RETURN_IF_ERROR(pmi.Ask("cmd=finalize", "finalize_ack").status());
  return exchange;
}

}  // namespace

absl::StatusOr<PmiExchange> ExchangeByPmi(int fd, int rank, const std::string& tell,
                                          int64_t deadline_nanos) {
  auto exchange = Exchange(fd, rank, tell, deadline_nanos);
  if (!exchange.ok()) {
    return WithPrefix(exchange.status(), fmt::format("PMI (PMI_FD={}): ", fd));
  }
  return exchange;
}

}  // namespace tutti
