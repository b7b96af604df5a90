#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tools/tutti/bench/bench.h"
#include "tools/tutti/report.h"
#include "tutti/base/clock.h"
#include "tutti/base/console.h"
#include "tutti/base/status.h"
#include "tutti/net/link/links.h"
#include "tutti/net/port/port.h"

// Two processes and a link: this one asks, a child of it answers.
namespace tutti::tools {
namespace {

using net::Bytes;
using net::ConstBytes;
using net::Link;
using net::Payload;

constexpr size_t kLargeBytes = size_t{128} << 20;
constexpr int kSmallMessages = 1000;
constexpr size_t kSmallBytes = 400;

net::Identity IdentityOf(const std::string& task) {
  net::Identity identity;
  identity.job = "bench";
  identity.task = task;
  identity.incarnation = net::MakeIncarnation();
  return identity;
}

// Memory for one large payload, used again for every message.
class Landing {
 public:
  absl::Status Place(std::span<const uint64_t> sizes, std::span<Bytes> places) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (memory_.size() < sizes[i]) memory_.resize(sizes[i]);
      places[i] = Bytes(memory_.data(), sizes[i]);
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::byte> memory_;
};

uint64_t SumOf(ConstBytes bytes) {
  uint64_t sum = 0, word = 0;
  for (size_t at = 0; at + sizeof(word) <= bytes.size(); at += sizeof(word)) {
    std::memcpy(&word, bytes.data() + at, sizeof(word));
    sum += word;
  }
  return sum;
}

// Answers what begins with 'p' (ping) and 's' (sum, which it computes); counts the rest.
class Answerer final : public net::LinkEvents {
 public:
  absl::Status Place(Link&, std::string_view, std::span<const uint64_t> sizes,
                     std::span<Bytes> places) override {
    return landing_.Place(sizes, places);
  }
  void Received(Link& link, std::string_view header, std::vector<Payload> payloads) override {
    uint64_t bytes = 0;
    for (const Payload& payload : payloads) bytes += payload.bytes.size();
    if (bytes > 0) link.Taken(bytes);
    if (header[0] == 'n') return;
    std::string answer = "pong";
    if (header[0] == 's') {
      const uint64_t sum = SumOf(payloads[0].bytes);
      answer.assign(reinterpret_cast<const char*>(&sum), sizeof(sum));
    }
    payloads.clear();
    link.Send(std::move(answer), {});
  }
  void Broken(Link&, const absl::Status&) override { _exit(0); }

 private:
  Landing landing_;
};

// Waits for answers.
class Asker final : public net::LinkEvents {
 public:
  absl::Status Place(Link&, std::string_view, std::span<const uint64_t> sizes,
                     std::span<Bytes> places) override {
    return landing_.Place(sizes, places);
  }
  void Received(Link& link, std::string_view header, std::vector<Payload>) override {
    if (rounds_left_ > 0 && --rounds_left_ > 0) return link.Send("ping", {});
    answer_.set_value(std::string(header));
  }
  void Broken(Link&, const absl::Status& status) override {
    if (closing) return;
    FormatTo(stderr, "tutti: bench link: {}\n", MessageOf(status));
    _exit(1);
  }

  // Sends what `send` sends, and gives the answer.
  std::string Ask(const std::function<void()>& send) {
    answer_ = {};
    std::future<std::string> answer = answer_.get_future();
    send();
    return answer.get();
  }
  // So many round trips, each begun by the thread that got the last answer.
  void Volley(Link& link, int rounds) {
    Ask([&] {
      rounds_left_ = rounds;
      link.Send("ping", {});
    });
  }

  std::atomic<bool> closing = false;

 private:
  std::promise<std::string> answer_;
  std::atomic<int> rounds_left_ = 0;
  Landing landing_;
};

// Task B, until its process ends.
[[noreturn]] void Answer(bool shared, const std::string& bind, int listening_fd) {
  Answerer events;
  const net::Identity identity = IdentityOf("/job:bench/task:1");
  auto links =
      ValueOrThrow(net::Links::Create({.identity = identity, .shared_memory = shared}, &events));
  auto port = ValueOrThrow(net::Port::Open(
      {.identity = identity, .bind = bind, .listening_fd = listening_fd, .insecure = true}));
  links->Serve(port.get());
  ThrowIfError(port->Start());
  while (true) pause();
}

// Runs task B in a child, and gives its process and address.
pid_t ForkAnswerer(bool shared, std::string* address) {
  net::Socket listening =
      ValueOrThrow(net::Listen(ValueOrThrow(net::Resolve({"127.0.0.1", 0})).front()));
  *address = ToString(ValueOrThrow(net::LocalAddress(listening.fd())));
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Answer(shared, "", listening.Release());
}

double MedianOf(double seconds, const std::function<double()>& run) {
  for (int i = 0; i < 2; ++i) run();
  std::vector<double> times;
  const int64_t end = NowNanos() + int64_t(seconds * 1e9);
  while (NowNanos() < end || times.size() < 3) times.push_back(run());
  return Median(times);
}

// Time of one call in seconds.
double Timed(const std::function<void()>& call) {
  const int64_t before = NowNanos();
  call();
  return double(NowNanos() - before) * 1e-9;
}

void BenchLarge(const BenchOptions& options, const std::string& kind, Asker& asker, Link& link,
                Payload payload, Bytes bytes, const std::string& where) {
  uint64_t written = 0;
  for (const char* header : {"p", "s"}) {
    const double time = MedianOf(options.seconds / 8, [&] {
      std::memset(bytes.data(), static_cast<int>(++written & 0x7f), bytes.size());
      std::string answer;
      const double taken =
          Timed([&] { answer = asker.Ask([&] { link.Send(header, {payload}); }); });
      const uint64_t sum = SumOf(bytes);
      if (header[0] == 's' && std::memcmp(answer.data(), &sum, sizeof(sum)) != 0) {
        ThrowIfError(Internal("the answerer's sum of what was sent is wrong"));
      }
      return taken;
    });
    Report({"link",
            fmt::format("128 MB in {}, {}, {}", where,
                        header[0] == 's' ? "received and summed" : "received", kind),
            double(kLargeBytes) / time * 1e-9, "GB/s"},
           options.json);
  }
}

void BenchAt(const BenchOptions& options, bool shared, const std::string& address) {
  Asker asker;
  auto links = ValueOrThrow(net::Links::Create(
      {.identity = IdentityOf("/job:bench/task:0"), .shared_memory = shared}, &asker));
  const std::shared_ptr<Link> link = links->To("/job:bench/task:1", address);
  asker.Volley(*link, 100);
  shared = link->kind() == net::LinkKind::kMemory;
  const std::string kind = shared ? "shared memory" : "tcp";

  constexpr int kRounds = 200;
  const double volley =
      MedianOf(options.seconds / 8, [&] { return Timed([&] { asker.Volley(*link, kRounds); }); });
  Report({"link", "round trip of 4 bytes, " + kind, volley / kRounds * 1e6, "us"}, options.json);
  const double waiting = MedianOf(options.seconds / 8, [&] {
    return Timed([&] { asker.Ask([&] { link->Send("ping", {}); }); });
  });
  Report({"link", "round trip of 4 bytes, a thread waits, " + kind, waiting * 1e6, "us"},
         options.json);

  const auto small = std::make_shared<std::vector<std::byte>>(kSmallBytes * kSmallMessages);
  const double one = MedianOf(options.seconds / 8, [&] {
    return Timed([&] { asker.Ask([&] { link->Send("p", {{*small, small}}); }); });
  });
  const double many = MedianOf(options.seconds / 8, [&] {
    return Timed([&] {
      asker.Ask([&] {
        for (int i = 0; i < kSmallMessages; ++i) {
          const ConstBytes piece = ConstBytes(*small).subspan(size_t(i) * kSmallBytes, kSmallBytes);
          link->Send(i + 1 < kSmallMessages ? "n" : "p", {{piece, small}});
        }
      });
    });
  });
  Report({"link", "400 bytes of 1000 messages, more than in one, " + kind,
          (many - one) / kSmallMessages * 1e6, "us"},
         options.json);

  const auto ordinary = std::make_shared<std::vector<std::byte>>(kLargeBytes);
  BenchLarge(options, kind, asker, *link, {*ordinary, ordinary}, *ordinary, "ordinary memory");
  if (shared) {
    net::SharedMemory::Block block = ValueOrThrow(links->memory()->Allocate(kLargeBytes));
    BenchLarge(options, kind, asker, *link, {block.bytes, block.owner}, block.bytes,
               "shared memory");
  }
  asker.closing = true;
}

}  // namespace

void BenchLink(const BenchOptions& options, const std::string& listen, const std::string& connect) {
  if (!listen.empty()) Answer(/*shared=*/true, listen, -1);
  if (!connect.empty()) return BenchAt(options, /*shared=*/true, connect);
  for (const bool shared : {false, true}) {
    std::string address;
    const pid_t child = ForkAnswerer(shared, &address);
    BenchAt(options, shared, address);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

}  // namespace tutti::tools
