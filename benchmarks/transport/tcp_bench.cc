// Bandwidth and latency of the TCP transport between two processes, without collectives above it.
//
//   tcp_bench [--host ADDRESS] [--streams N] [--seconds S]          both ends on this machine
//   tcp_bench --rank R --endpoints HOST:PORT,HOST:PORT [...]        one end; R is 0 or 1
//
// Prints one JSON object a line. `one-way`: rank 0 sends messages of that size, four at a time;
// `both-ways`: both ranks send and receive, the value is what each receives; `taken`: one-way into
// a receive without memory; `round-trip`: an eager message there and back; `plain`: one-way through
// one blocking socket without frames or checksums, as the yardstick. Names in -cpu: processor time
// of both ends together, which says more than bandwidth where others use the machine too.
#include <fmt/core.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/socket.h"
#include "tutti/net/tcp/tcp_transport.h"

namespace tutti::net {
namespace {

struct Settings {
  int rank = -1;
  std::vector<std::string> endpoints;
  std::string host = "127.0.0.1";
  int streams = 2;
  double seconds = 1;
};

struct Flag final : Request {
  void Done(const absl::Status& status) override {
    ThrowIfError(status);
    done = true;
  }
  void Take(size_t /*offset*/, ConstBytes piece) override { sum += std::to_integer<int>(piece[0]); }
  bool done = false;
  int sum = 0;
};

double CpuSeconds(int who = RUSAGE_SELF) {
  rusage usage;
  getrusage(who, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

class Bench {
 public:
  Bench(TcpTransport* transport, double seconds) : transport_(transport), seconds_(seconds) {}

  void Run() {
    for (const size_t bytes : {4, 1 << 10, 16 << 10, 64 << 10}) RoundTrips(bytes);
    for (const size_t bytes : {64 << 10, 256 << 10, 1 << 20, 4 << 20, 64 << 20}) {
      Stream("one-way", bytes, true, false, false);
      Stream("taken", bytes, true, false, true);
      Stream("both-ways", bytes, true, true, false);
    }
  }

 private:
  bool first() const { return transport_->rank() == 0; }
  int peer() const { return 1 - transport_->rank(); }

  void Until(const Flag& flag) {
    while (!flag.done) {
      if (!transport_->Progress()) transport_->Wait(1'000'000'000);
      Transport::BrokenLink broken;
      if (transport_->NextBroken(&broken)) ThrowIfError(broken.status);
    }
  }

  void Print(std::string_view name, size_t bytes, double value, std::string_view unit) const {
    if (!first()) return;
    fmt::print("{{\"bench\": \"tcp\", \"case\": \"{}/{}\", \"value\": {:.4g}, \"unit\": \"{}\"}}\n",
               name, bytes, value, unit);
    std::fflush(stdout);
  }

  // How often to do something that took so long: rank 0 decides.
  int Agree(double seconds_each) {
    int count = static_cast<int>(std::clamp(seconds_ / seconds_each, 3.0, 1e6));
    Exchange(&count, sizeof(count));
    return count;
  }
  void Exchange(void* data, size_t bytes) {
    Flag flag;
    if (first()) {
      transport_->Send(1, {0, ++tag_}, {static_cast<std::byte*>(data), bytes}, &flag);
    } else {
      transport_->Receive(0, {0, ++tag_}, static_cast<std::byte*>(data), bytes, &flag);
    }
    Until(flag);
  }

  void RoundTrips(size_t bytes) {
    std::vector<std::byte> data(bytes);
    const auto run = [&](int count) {
      const int64_t start = NowNanos();
      for (int i = 0; i < count; ++i) {
        Flag receive;
        Flag send;
        const uint32_t there = ++tag_;
        const uint32_t back = ++tag_;
        transport_->Receive(peer(), {0, first() ? back : there}, data.data(), bytes, &receive);
        if (first()) transport_->Send(1, {0, there}, data, &send);
        Until(receive);
        if (!first()) transport_->Send(0, {0, back}, data, &send);
        Until(send);
      }
      return static_cast<double>(NowNanos() - start) / 1e9 / count;
    };
    const double each = run(Agree(run(100)));
    Print("round-trip", bytes, each * 1e6, "us");
  }

  void Stream(std::string_view name, size_t bytes, bool there, bool back, bool take) {
    constexpr size_t kInFlight = 4;
    std::vector<std::vector<std::byte>> out(kInFlight);
    std::vector<std::vector<std::byte>> in(kInFlight);
    for (size_t i = 0; i < kInFlight; ++i) {
      out[i].assign(bytes, std::byte{1});
      in[i].assign(bytes, std::byte{2});
    }
    const bool sends = first() ? there : back;
    const bool receives = first() ? back : there;
    double cpu_each = 0;
    const auto run = [&](int count) {
      const int64_t start = NowNanos();
      const double cpu_start = CpuSeconds();
      const uint32_t base = tag_;
      tag_ += static_cast<uint32_t>(count);
      std::vector<Flag> sent(kInFlight);
      std::vector<Flag> received(kInFlight);
      for (int i = 0; i < count + static_cast<int>(kInFlight); ++i) {
        const size_t slot = static_cast<size_t>(i) % kInFlight;
        if (i >= static_cast<int>(kInFlight)) {
          if (receives) Until(received[slot]);
          if (sends) Until(sent[slot]);
        }
        if (i >= count) continue;
        sent[slot].done = received[slot].done = false;
        const Tag tag = {0, base + static_cast<uint32_t>(i) + 1};
        std::byte* destination = take ? nullptr : in[slot].data();
        if (receives) transport_->Receive(peer(), tag, destination, bytes, &received[slot]);
        if (sends) transport_->Send(peer(), tag, out[slot], &sent[slot]);
      }
      // The last word is the receiver's: the processor time that it took.
      Flag flag;
      ++tag_;
      const double own = CpuSeconds() - cpu_start;
      double word = own;
      auto* bytes_of_word = reinterpret_cast<std::byte*>(&word);
      if (first()) {
        transport_->Receive(1, {0, tag_}, bytes_of_word, sizeof(word), &flag);
      } else {
        transport_->Send(0, {0, tag_}, {bytes_of_word, sizeof(word)}, &flag);
      }
      Until(flag);
      cpu_each = (own + word) / count;
      return static_cast<double>(NowNanos() - start) / 1e9 / count;
    };
    const double each = run(Agree(run(8)));
    Print(name, bytes, static_cast<double>(bytes) / each / 1e9, "GB/s");
    const double moved = static_cast<double>(bytes) * (there + back);
    Print(fmt::format("{}-cpu", name), bytes, cpu_each / moved * 1e9, "CPU s/GB");
  }

  TcpTransport* transport_;
  double seconds_;
  uint32_t tag_ = 0;
};

int RunRank(std::unique_ptr<TcpTransport> transport, const Settings& settings) {
  ThrowIfError(transport->Connect(settings.endpoints));
  Bench(transport.get(), settings.seconds).Run();
  return 0;
}

// What one blocking stream between two processes does here.
void Plain(const std::string& host, double seconds) {
  const Socket listener = ValueOrThrow(Listen(ValueOrThrow(Resolve({host, 0})).front()));
  const Address bound = ValueOrThrow(LocalAddress(listener.fd()));
  std::vector<char> buffer(256 << 10);
  const pid_t child = fork();
  if (child == 0) {
    const Socket fd(socket(bound.family(), SOCK_STREAM, 0));
    if (connect(fd.fd(), bound.get(), bound.length) == 0) {
      while (send(fd.fd(), buffer.data(), buffer.size(), MSG_NOSIGNAL) > 0) {
      }
    }
    _exit(0);
  }
  Socket fd;
  while (!fd.valid()) fd = Socket(accept(listener.fd(), nullptr, nullptr));
  int64_t start = NowNanos();
  int64_t total = 0;
  const auto elapsed = [&] { return static_cast<double>(NowNanos() - start) / 1e9; };
  const double cpu_start = CpuSeconds();
  int64_t all = 0;
  for (bool warm = false; !warm || elapsed() < seconds;) {
    const ssize_t bytes = recv(fd.fd(), buffer.data(), buffer.size(), 0);
    total += bytes;
    all += bytes;
    if (!warm && elapsed() > 0.1) {
      warm = true;
      start = NowNanos();
      total = 0;
    }
  }
  fmt::print("{{\"bench\": \"tcp\", \"case\": \"plain\", \"value\": {:.4g}, \"unit\": \"GB/s\"}}\n",
             static_cast<double>(total) / elapsed() / 1e9);
  std::fflush(stdout);
  fd.Close();
  waitpid(child, nullptr, 0);
  const double cpu = CpuSeconds() - cpu_start + CpuSeconds(RUSAGE_CHILDREN);
  fmt::print(
      "{{\"bench\": \"tcp\", \"case\": \"plain-cpu\", \"value\": {:.4g}, \"unit\": \"CPU "
      "s/GB\"}}\n",
      cpu / static_cast<double>(all) * 1e9);
  std::fflush(stdout);
}

int BothHere(Settings settings) {
  Plain(settings.host, settings.seconds);
  std::vector<std::unique_ptr<TcpTransport>> transports;
  for (int rank = 0; rank < 2; ++rank) {
    transports.push_back(ValueOrThrow(TcpTransport::Listen(
        {.rank = rank, .size = 2, .host = settings.host, .streams_in_host = settings.streams})));
    settings.endpoints.push_back(transports.back()->endpoint());
  }
  const pid_t child = fork();
  const size_t own = child == 0 ? 1 : 0;
  std::unique_ptr<TcpTransport> transport = std::move(transports[own]);
  if (child == 0) _exit(RunRank(std::move(transport), settings));
  const int code = RunRank(std::move(transport), settings);
  waitpid(child, nullptr, 0);
  return code;
}

int OneEnd(const Settings& settings) {
  const auto endpoint = [&](int rank) {
    return ValueOrThrow(ParseEndpoint(settings.endpoints[static_cast<size_t>(rank)]));
  };
  const Endpoint own = endpoint(settings.rank);
  auto transport = ValueOrThrow(TcpTransport::Listen({.rank = settings.rank,
                                                      .size = 2,
                                                      .host = own.host,
                                                      .port = own.port,
                                                      .streams = settings.streams,
                                                      .streams_in_host = settings.streams}));
  // The other end may be started later. It refuses the connection that shows it there.
  const Address other = ValueOrThrow(Resolve(endpoint(1 - settings.rank))).front();
  const int64_t deadline = NowNanos() + 30'000'000'000;
  while (!Connect(other, deadline).ok() && NowNanos() < deadline) usleep(10'000);
  return RunRank(std::move(transport), settings);
}

int Main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = argv[i + 1];
    if (flag == "--rank") settings.rank = std::stoi(value);
    if (flag == "--host") settings.host = value;
    if (flag == "--streams") settings.streams = std::stoi(value);
    if (flag == "--seconds") settings.seconds = std::stod(value);
    if (flag == "--endpoints") {
      const size_t comma = value.find(',');
      settings.endpoints = {value.substr(0, comma), value.substr(comma + 1)};
    }
  }
  return settings.rank >= 0 ? OneEnd(settings) : BothHere(settings);
}

}  // namespace
}  // namespace tutti::net

int main(int argc, char** argv) {
  try {
    return tutti::net::Main(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "tcp_bench: {}\n", error.what());
    return 1;
  }
}
