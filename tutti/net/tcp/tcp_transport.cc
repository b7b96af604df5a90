// The TCP transport.
//
// Connections. Whoever has something to send to a peer connects to it, and sends on the connections
// that it made; what it receives comes on those that the peer made. So two ranks that open at the
// same time need no rule for who wins, a stream is wholly one rank's business, and closing a
// connection can never destroy bytes under way (see OutStream). Stream 0 is made first and carries
// small frames; the streams for bulk are made with the first large message. Every connection begins
// with the handshake of tutti/net/handshake.h. The transport either listens itself (Door), or
// another part of this process does, at a port that serves more purposes (Entrance).
//
// Messages. tutti/net/message/engine.h tells how messages and receives meet; this transport carries
// what the engine says as frames (tutti/net/tcp/outbox.cc) and hands it what comes
// (tutti/net/tcp/inbox.cc). A message up to kEagerBytes is one kEager frame; an offer is a
// kAnnounce, an invitation a kReady, whose id the kData frames bring back.
// docs/formats/data-plane.md has what is on the wire.
//
// Bytes. A payload is written from the caller's memory and read into the caller's memory; besides
// the kernel's two copies, each side reads it once for the checksum, a frame at a time while it is
// in the cache. A receive without memory is read into a buffer of one frame and handed over from
// there. Send writes at once if the socket takes it: no thread is woken. Between ranks of one host,
// where the cores that copy are the limit and not a wire, a peer gets a single stream for bulk and
// a small send buffer, so that what is under way stays in the caches.
//
// Progress. One level-triggered epoll set holds the sockets. Nothing is unfinished but what the set
// will report again: a stream that has more to write asks for EPOLLOUT, and what was not read is
// reported again. Wait looks at the set from outside, without the lock.
#include "tutti/net/tcp/tcp_transport.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <utility>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/net/port/door.h"
#include "tutti/net/refusal_log.h"
#include "tutti/net/tcp/entrance.h"
#include "tutti/net/tcp/link.h"
#include "tutti/net/tcp/shared.h"

namespace tutti::net {
namespace tcp {
namespace {

constexpr int64_t kFlushNanos = 1'000'000'000;

int Cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

class TcpTransportImpl final : public TcpTransport {
 public:
  explicit TcpTransportImpl(const TcpOptions& options);
  ~TcpTransportImpl() override;
  absl::Status Open(Socket listener);
  absl::Status OpenBehind(const std::string& endpoint);

  const std::string& endpoint() const override { return endpoint_; }
  std::shared_ptr<Entrance> entrance() const override { return entrance_; }
  absl::Status Connect(std::span<const std::string> endpoints) override;

  int rank() const override { return shared_.options.rank; }
  int size() const override { return shared_.options.size; }
  LinkKind link(int peer) const override {
    return peer == rank() ? LinkKind::kSelf : LinkKind::kSocket;
  }
  std::string Describe(int peer) const override;

  absl::StatusOr<std::unique_ptr<RegisteredMemory>> Allocate(size_t bytes) override {
    return shared_.regions->Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<RegisteredMemory>> Register(Bytes bytes) override {
    return shared_.regions->Register(bytes);
  }
  MemoryKey KeyOf(const void* data, size_t bytes) const override {
    return shared_.regions->KeyOf(data, bytes);
  }
  absl::StatusOr<std::byte*> Map(int peer, MemoryKey key, size_t bytes) override;
  void Put(int peer, MemoryKey destination, ConstBytes source, Request* request) override;
  void Get(int peer, MemoryKey source, Bytes destination, Request* request) override;

  void Send(int peer, Tag tag, ConstBytes data, Request* request) override;
  void Receive(int peer, Tag tag, std::byte* destination, size_t bytes, Request* request) override;
  absl::Status SendShort(int peer, Tag tag, ConstBytes data) override;
  bool NextShort(ShortMessage* message) override;

  bool Progress() override;
  void Wait(int64_t timeout_nanos) override {
    shared_.poller.Wait(timeout_nanos, spin_nanos_.load(std::memory_order_relaxed));
  }
  void Wake() override { shared_.poller.Wake(); }
  bool NeedsService() const override { return size() > 1; }

  void Fail(int peer, const absl::Status& status) override;
  bool NextBroken(BrokenLink* broken) override;

 private:
  // The link to a peer that a request can be given to, or null, and the request has ended.
  Link* LinkFor(int peer, Request* request);
  absl::Status Prepare();
  absl::StatusOr<Socket> OpenListener() const;
  void Adopt(const Identity& peer, Socket accepted);
  void AdoptGiven();
  absl::Status CheckPeer(int peer) const;
  void CheckDeadlines();
  void CloseBroken();
  void Flush();

  Shared shared_;
  std::vector<std::unique_ptr<Link>> links_;  // null for this rank
  std::unique_ptr<Door> door_;                // null if it does not listen itself
  std::shared_ptr<Entrance> entrance_;        // null if it does
  RefusalLog refusals_;                       // of what came through the entrance
  std::string endpoint_;
  bool connected_ = false;
  std::atomic<int64_t> spin_nanos_;
  std::deque<BrokenLink> broken_;
};

TcpTransportImpl::TcpTransportImpl(const TcpOptions& options)
    : shared_{.options = options,
              .identity = {.job = options.job,
                           .token = options.token,
                           .rank = options.rank,
                           .size = options.size,
                           .generation = options.generation,
                           .purpose = Identity::Purpose::kTcpData}},
      spin_nanos_(options.spin_nanos) {
  for (int peer = 0; peer < options.size; ++peer) {
    links_.push_back(peer == options.rank ? nullptr : std::make_unique<Link>(&shared_, peer));
  }
}

TcpTransportImpl::~TcpTransportImpl() {
  if (entrance_ != nullptr) entrance_->Close();
  shared_.regions->OnWithdrawn(nullptr);
  Flush();
}

absl::Status TcpTransportImpl::Prepare() {
  TUTTI_RETURN_IF_ERROR(shared_.poller.Open());
  shared_.regions->OnWithdrawn([this](const message::Region& region) {
    for (const auto& link : links_) {
      if (link != nullptr) link->Withdraw(region);
    }
  });
  return absl::OkStatus();
}

absl::StatusOr<Socket> TcpTransportImpl::OpenListener() const {
  const TcpOptions& options = shared_.options;
  const Endpoint wanted = {options.host, static_cast<uint16_t>(options.port)};
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Address> addresses, Resolve(wanted));
  return net::Listen(addresses.front());
}

absl::Status TcpTransportImpl::OpenBehind(const std::string& endpoint) {
  TUTTI_RETURN_IF_ERROR(Prepare());
  endpoint_ = endpoint;
  entrance_ = std::make_shared<Entrance>(&shared_.poller);
  return absl::OkStatus();
}

absl::Status TcpTransportImpl::Open(Socket listener) {
  const TcpOptions& options = shared_.options;
  TUTTI_RETURN_IF_ERROR(Prepare());
  if (!listener.valid()) {
    TUTTI_ASSIGN_OR_RETURN(listener, OpenListener());
  }
  TUTTI_ASSIGN_OR_RETURN(const Address bound, LocalAddress(listener.fd()));
  endpoint_ = bound.wildcard() ? ToString(Endpoint{options.host, bound.port()}) : ToString(bound);
  door_ = std::make_unique<Door>(
      &shared_.poller, shared_.identity,
      Door::Options{.who = fmt::format("rank {} ({}, tcp)", rank(), endpoint_),
                    .handshake_seconds = options.connect_seconds,
                    .max_pending = options.max_pending},
      Door::Hooks{.admit =
                      [this](const Identity& peer, std::string* why) {
                        return links_[static_cast<size_t>(peer.rank)]->Admit(peer.stream, why);
                      },
                  .adopt = [this](const Identity& peer,
                                  Socket accepted) { Adopt(peer, std::move(accepted)); },
                  .moved = [this] { shared_.moved = true; },
                  .wake_by = [this](int64_t nanos) { shared_.poller.WakeBy(nanos); }});
  return door_->Open(std::move(listener));
}

void TcpTransportImpl::Adopt(const Identity& peer, Socket accepted) {
  Link& link = *links_[static_cast<size_t>(peer.rank)];
  const absl::Status status = link.Adopt(std::move(accepted), peer.stream);
  if (!status.ok()) link.Break(status);
}

// Their handshakes are over, so one that does not fit is closed without a word to the peer.
void TcpTransportImpl::AdoptGiven() {
  shared_.moved = true;
  for (Connection& given : entrance_->Take()) {
    if (!CheckPeer(given.peer.rank).ok()) continue;
    std::string why;
    const Link& link = *links_[static_cast<size_t>(given.peer.rank)];
    const Refusal refusal = link.Admit(given.peer.stream, &why);
    if (refusal == Refusal::kNone) {
      Adopt(given.peer, std::move(given.socket));
    } else if (refusal != Refusal::kNotAdmitted && refusals_.HasRoom()) {
      Log(LogLevel::kWarning, "rank {} ({}, tcp) closed a connection of {}: {}", rank(), endpoint_,
          Describe(given.peer.rank), why);
    }
  }
}

absl::Status TcpTransportImpl::Connect(std::span<const std::string> endpoints) {
  if (endpoints.size() != links_.size()) {
    return InvalidArgument("{} endpoints were given for {} ranks", endpoints.size(), links_.size());
  }
  int on_this_host = 1;
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    if (links_[peer] == nullptr) continue;
    const absl::Status status = links_[peer]->SetEndpoint(endpoints[peer]);
    if (!status.ok()) return WithPrefix(status, fmt::format("rank {}: ", peer));
    on_this_host += links_[peer]->on_this_host();
  }
  if (on_this_host > Cores()) spin_nanos_.store(0, std::memory_order_relaxed);
  connected_ = true;
  return absl::OkStatus();
}

std::string TcpTransportImpl::Describe(int peer) const {
  if (peer == rank()) return fmt::format("rank {} (this process)", peer);
  if (!CheckPeer(peer).ok()) return fmt::format("rank {} (none such)", peer);
  return links_[static_cast<size_t>(peer)]->Describe();
}

// Requests ---------------------------------------------------------------------------------------

absl::Status TcpTransportImpl::CheckPeer(int peer) const {
  if (peer < 0 || peer >= size()) {
    return InvalidArgument("rank {} does not exist; there are {} ranks", peer, size());
  }
  if (peer == rank()) return InvalidArgument("rank {} has no link to itself", peer);
  return absl::OkStatus();
}

Link* TcpTransportImpl::LinkFor(int peer, Request* request) {
  absl::Status status = CheckPeer(peer);
  if (status.ok() && !connected_) {
    status = FailedPrecondition("Connect has not been called with the endpoints of all ranks");
  }
  Link* link = status.ok() ? links_[static_cast<size_t>(peer)].get() : nullptr;
  if (status.ok() && !link->alive()) status = link->status();
  if (status.ok()) return link;
  request->Done(status);
  return nullptr;
}

absl::StatusOr<std::byte*> TcpTransportImpl::Map(int peer, MemoryKey key, size_t bytes) {
  if (peer == rank()) {
    TUTTI_ASSIGN_OR_RETURN(const std::shared_ptr<message::Region> region,
                           shared_.regions->Find(key, bytes));
    return region->bytes.data() + key.offset;
  }
  return FailedPrecondition("{}: its memory cannot be mapped over TCP; use Get and Put",
                            Describe(peer));
}

void TcpTransportImpl::Put(int peer, MemoryKey destination, ConstBytes source, Request* request) {
  if (Link* link = LinkFor(peer, request)) link->out().Put(destination, source, request);
}

void TcpTransportImpl::Get(int peer, MemoryKey source, Bytes destination, Request* request) {
  if (Link* link = LinkFor(peer, request)) link->in().Get(source, destination, request);
}

void TcpTransportImpl::Send(int peer, Tag tag, ConstBytes data, Request* request) {
  if (Link* link = LinkFor(peer, request)) link->Send(tag, data, request);
}

void TcpTransportImpl::Receive(int peer, Tag tag, std::byte* destination, size_t bytes,
                               Request* request) {
  if (CheckPeer(peer).ok()) {
    Link& from = *links_[static_cast<size_t>(peer)];
    if (from.lost() && from.engine().receiver.TakeKept(tag, destination, bytes, request)) return;
  }
  if (Link* link = LinkFor(peer, request)) link->Receive(tag, destination, bytes, request);
}

absl::Status TcpTransportImpl::SendShort(int peer, Tag tag, ConstBytes data) {
  if (data.size() > kShortBytes) {
    return InvalidArgument("a short message has at most {} bytes, got {}", kShortBytes,
                           data.size());
  }
  struct Outcome final : Request {
    void Done(const absl::Status& result) override { status = result; }
    absl::Status status;
  } outcome;
  Link* link = LinkFor(peer, &outcome);
  if (link == nullptr) return outcome.status;
  link->out().SendControl(
      {.kind = FrameKind::kShort, .index = tag.index, .operation = tag.operation},
      {reinterpret_cast<const char*>(data.data()), data.size()});
  return absl::OkStatus();
}

bool TcpTransportImpl::NextShort(ShortMessage* message) {
  if (!shared_.shorts.Take(message)) return false;
  links_[static_cast<size_t>(message->peer)]->engine().receiver.Release(0);
  return true;
}

// Progress ---------------------------------------------------------------------------------------

bool TcpTransportImpl::Progress() {
  shared_.moved = false;
  shared_.poller.Dispatch();
  if (entrance_ != nullptr && !entrance_->empty()) AdoptGiven();
  if (shared_.poller.DeadlinePassed()) CheckDeadlines();
  if (!shared_.breaking.empty()) CloseBroken();
  if (door_ != nullptr) door_->Sweep();
  return shared_.moved;
}

void TcpTransportImpl::CheckDeadlines() {
  const int64_t now = NowNanos();
  if (door_ != nullptr) door_->CheckDeadlines(now);
  for (const auto& link : links_) {
    if (link != nullptr) link->CheckDeadlines(now);
  }
}

void TcpTransportImpl::CloseBroken() {
  for (Link* link : std::exchange(shared_.breaking, {})) {
    const absl::Status status = link->status();
    link->Close(status);
    broken_.push_back({link->peer(), status});
  }
  shared_.moved = true;
}

void TcpTransportImpl::Fail(int peer, const absl::Status& status) {
  TUTTI_CHECK(!status.ok());
  if (!CheckPeer(peer).ok()) return;
  Link* link = links_[static_cast<size_t>(peer)].get();
  std::erase(shared_.breaking, link);
  link->Forget();
  link->Close(status);
}

bool TcpTransportImpl::NextBroken(BrokenLink* broken) {
  if (broken_.empty()) return false;
  *broken = std::move(broken_.front());
  broken_.pop_front();
  return true;
}

// Sends what SendShort has promised. Only the streams with such frames are served: requests of the
// caller's are not touched any more.
void TcpTransportImpl::Flush() {
  const int64_t end = NowNanos() + kFlushNanos;
  for (int64_t now = NowNanos(); now < end; now = NowNanos()) {
    std::vector<OutStream*> streams;
    for (const auto& link : links_) {
      if (link != nullptr && link->alive()) link->out().CollectUnsent(&streams);
    }
    if (streams.empty()) return;
    std::vector<pollfd> fds;
    for (const OutStream* stream : streams) {
      // EPOLLIN and EPOLLOUT are POLLIN and POLLOUT.
      fds.push_back({stream->fd(), static_cast<short>(stream->wanted()), 0});
    }
    const int64_t millis = (end - now) / 1'000'000;
    if (poll(fds.data(), fds.size(), static_cast<int>(millis)) <= 0) return;
    for (size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].revents != 0) streams[i]->OnEvents(static_cast<uint32_t>(fds[i].revents));
    }
  }
}

}  // namespace
}  // namespace tcp

namespace {

absl::Status Check(const TcpOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return InvalidArgument("rank {} of {} ranks does not exist", options.rank, options.size);
  }
  for (const int streams : {options.streams, options.streams_in_host}) {
    if (streams >= 1 && streams <= kMaxTcpStreams) continue;
    return InvalidArgument("{} streams to each peer; expected 1 to {}", streams, kMaxTcpStreams);
  }
  if (options.job.size() > kMaxJobBytes) {
    return InvalidArgument("the job's name has {} bytes; expected at most {}", options.job.size(),
                           kMaxJobBytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpTransport>> TcpTransport::Listen(const TcpOptions& options) {
  Socket listener(options.listener);
  TUTTI_RETURN_IF_ERROR(Check(options));
  auto transport = std::make_unique<tcp::TcpTransportImpl>(options);
  TUTTI_RETURN_IF_ERROR(transport->Open(std::move(listener)));
  return transport;
}

absl::StatusOr<std::unique_ptr<TcpTransport>> TcpTransport::Behind(const std::string& endpoint,
                                                                   const TcpOptions& options) {
  TUTTI_RETURN_IF_ERROR(Check(options));
  auto transport = std::make_unique<tcp::TcpTransportImpl>(options);
  TUTTI_RETURN_IF_ERROR(transport->OpenBehind(endpoint));
  return transport;
}

}  // namespace tutti::net
