// The transport over UCX.
//
// Why. UCX finds the fastest way between two processes by itself: RDMA over InfiniBand or RoCE,
// shared memory, TCP. Our own transports know the last two, and are faster there
// (docs/deploy.md); this one is for the first.
//
// Messages. tutti/net/message/engine.h tells how messages and receives meet; this transport carries
// what the engine says as active messages of UCX: a header (tutti/net/ucx/frame.h), and data. Small
// ones are sent eagerly, and keep their order. The bytes of a long message follow an invitation,
// and UCX chooses how: for those that go to memory that is, where the fabric can, an RDMA read
// straight from the sender's memory. UCX's own matching by tags is not used, because a tag of ours
// and the sender's rank do not fit into 64 bits, and because a message that nobody has asked for
// would be kept without a bound.
//
// Checks. UCX has no handshake of ours. Each rank makes a random key, which it tells the others
// together with its address, through the star, where they have proved that they know the job's
// token; every header carries the key of its receiver. A frame without it is refused. That keeps
// other jobs and strangers out, not somebody who can read the network, and a stranger does reach
// UCX's own code: use it in networks that you trust. Payloads have no checksum of ours, since
// fabrics have their own.
//
// Memory. Done of a request means that UCX does not touch its memory any more, also when a link
// fails: its connection is closed by force then, and UCX is driven until it has let go. UCX's
// shared memory cannot be closed by force; if a transfer is stuck there, all links of the transport
// end, and UCX is not called again (Worker::CloseNow).
//
// The end. A rank that leaves says so to every peer that it has a connection with, and how many
// frames it has sent: they may still be under way on another rail. A rank that dies is told by UCX
// where its transport can tell, and by the star in any case.
//
// Progress. UCX has a descriptor that becomes readable when something comes, after it has been
// armed. Wait arms and sleeps without the caller's lock, so a lock of this transport's own stands
// between it and the other calls.
#include "tutti/net/ucx/ucx_transport.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/net/refusal_log.h"
#include "tutti/net/token.h"
#include "tutti/net/ucx/link.h"
#include "tutti/net/ucx/worker.h"

namespace tutti::net {
namespace ucx {
namespace {

constexpr int64_t kLeaveNanos = 1'000'000'000;
constexpr int64_t kStillNanos = 20'000'000;

int Cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

uint64_t MakeKey() {
  uint64_t key = 0;
  std::memcpy(&key, MakeNonce().data(), sizeof(key));
  return key;
}

// The event descriptor is watched only for sleeping; UCX itself reads what it stands for.
class Nothing final : public EventHandler {
 public:
  void OnEvents(uint32_t /*events*/) override {}
};

class UcxTransportImpl final : public UcxTransport, private Worker::FrameHandler {
 public:
  explicit UcxTransportImpl(const UcxOptions& options) : spin_nanos_(options.spin_nanos) {
    shared_.options = options;
    for (int peer = 0; peer < options.size; ++peer) {
      links_.push_back(peer == options.rank ? nullptr : std::make_unique<Link>(&shared_, peer));
    }
  }
  ~UcxTransportImpl() override;
  absl::Status Open();

  const std::string& endpoint() const override { return endpoint_; }
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
  void Wait(int64_t timeout_nanos) override;
  void Wake() override { shared_.poller.Wake(); }
  bool NeedsService() const override { return size() > 1; }

  void Fail(int peer, const absl::Status& status) override;
  bool NextBroken(BrokenLink* broken) override;

 private:
  using Lock = std::lock_guard<std::recursive_mutex>;

  // The link to a peer that a request can be given to, or null, and the request has ended.
  Link* LinkFor(int peer, Request* request);
  absl::Status CheckPeer(int peer) const;
  void CloseBroken();
  void Leave();

  void OnFrame(const FrameHeader& header, const Payload& payload) override;
  void OnStranger(const absl::Status& why) override;

  // Recursive, because memory may be given back from within Request::Done.
  std::recursive_mutex mutex_;
  Nothing nothing_;
  Shared shared_;
  std::vector<std::unique_ptr<Link>> links_;  // null for this rank
  std::string endpoint_;
  bool connected_ = false;
  bool leaving_ = false;
  std::atomic<int64_t> spin_nanos_;
  std::deque<BrokenLink> broken_;
  RefusalLog refusals_;
};

absl::Status UcxTransportImpl::Open() {
  const UcxOptions& options = shared_.options;
  const uint64_t key = MakeKey();
  TUTTI_ASSIGN_OR_RETURN(shared_.worker, Worker::Open(options, key, this));
  TUTTI_RETURN_IF_ERROR(shared_.poller.Open());
  TUTTI_RETURN_IF_ERROR(shared_.poller.Add(shared_.worker->event_fd(), EPOLLIN, &nothing_));
  endpoint_ = ToString({.host = options.host, .key = key, .address = shared_.worker->address()});
  shared_.regions->OnWithdrawn([this](const message::Region& region) {
    const Lock lock(mutex_);
    for (const auto& link : links_) {
      if (link != nullptr) link->Withdraw(region);
    }
  });
  return absl::OkStatus();
}

UcxTransportImpl::~UcxTransportImpl() {
  shared_.regions->OnWithdrawn(nullptr);
  const Lock lock(mutex_);
  if (shared_.worker == nullptr) return;
  Leave();
  shared_.poller.Remove(shared_.worker->event_fd());
  shared_.worker = nullptr;
}

absl::Status UcxTransportImpl::Connect(std::span<const std::string> endpoints) {
  const Lock lock(mutex_);
  if (endpoints.size() != links_.size()) {
    return InvalidArgument("{} endpoints were given for {} ranks", endpoints.size(), links_.size());
  }
  int on_this_host = 1;
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    if (links_[peer] == nullptr) continue;
    const absl::Status status = links_[peer]->SetEndpoint(endpoints[peer]);
    if (!status.ok()) return WithPrefix(status, fmt::format("rank {}: ", peer));
    on_this_host += links_[peer]->host() == shared_.options.host;
  }
  if (on_this_host > Cores()) spin_nanos_.store(0, std::memory_order_relaxed);
  connected_ = true;
  return absl::OkStatus();
}

std::string UcxTransportImpl::Describe(int peer) const {
  if (peer == rank()) return fmt::format("rank {} (this process)", peer);
  if (!CheckPeer(peer).ok()) return fmt::format("rank {} (none such)", peer);
  return links_[static_cast<size_t>(peer)]->Describe();
}

// Requests ---------------------------------------------------------------------------------------

absl::Status UcxTransportImpl::CheckPeer(int peer) const {
  if (peer < 0 || peer >= size()) {
    return InvalidArgument("rank {} does not exist; there are {} ranks", peer, size());
  }
  if (peer == rank()) return InvalidArgument("rank {} has no link to itself", peer);
  return absl::OkStatus();
}

Link* UcxTransportImpl::LinkFor(int peer, Request* request) {
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

absl::StatusOr<std::byte*> UcxTransportImpl::Map(int peer, MemoryKey key, size_t bytes) {
  if (peer == rank()) {
    TUTTI_ASSIGN_OR_RETURN(const std::shared_ptr<message::Region> region,
                           shared_.regions->Find(key, bytes));
    return region->bytes.data() + key.offset;
  }
  return FailedPrecondition("{}: its memory cannot be mapped over UCX; use Get and Put",
                            Describe(peer));
}

void UcxTransportImpl::Put(int peer, MemoryKey destination, ConstBytes source, Request* request) {
  const Lock lock(mutex_);
  if (Link* link = LinkFor(peer, request)) link->Put(destination, source, request);
}

void UcxTransportImpl::Get(int peer, MemoryKey source, Bytes destination, Request* request) {
  const Lock lock(mutex_);
  if (Link* link = LinkFor(peer, request)) link->Get(source, destination, request);
}

void UcxTransportImpl::Send(int peer, Tag tag, ConstBytes data, Request* request) {
  const Lock lock(mutex_);
  if (Link* link = LinkFor(peer, request)) link->Send(tag, data, request);
}

void UcxTransportImpl::Receive(int peer, Tag tag, std::byte* destination, size_t bytes,
                               Request* request) {
  const Lock lock(mutex_);
  if (CheckPeer(peer).ok()) {
    Link& from = *links_[static_cast<size_t>(peer)];
    if (from.lost() && from.engine().receiver.TakeKept(tag, destination, bytes, request)) return;
  }
  if (Link* link = LinkFor(peer, request)) link->Receive(tag, destination, bytes, request);
}

absl::Status UcxTransportImpl::SendShort(int peer, Tag tag, ConstBytes data) {
  if (data.size() > kShortBytes) {
    return InvalidArgument("a short message has at most {} bytes, got {}", kShortBytes,
                           data.size());
  }
  struct Outcome final : Request {
    void Done(const absl::Status& result) override { status = result; }
    absl::Status status;
  } outcome;
  const Lock lock(mutex_);
  Link* link = LinkFor(peer, &outcome);
  if (link == nullptr) return outcome.status;
  link->SendShort(tag, data);
  return absl::OkStatus();
}

bool UcxTransportImpl::NextShort(ShortMessage* message) {
  const Lock lock(mutex_);
  if (!shared_.shorts.Take(message)) return false;
  links_[static_cast<size_t>(message->peer)]->engine().receiver.Release(0);
  return true;
}

// Progress ---------------------------------------------------------------------------------------

// Until the endpoints are known nothing is read: nobody could be answered.
bool UcxTransportImpl::Progress() {
  const Lock lock(mutex_);
  if (!connected_) return false;
  bool moved = shared_.worker->Progress();
  if (shared_.worker->halted()) {
    for (const auto& link : links_) {
      if (link != nullptr) link->Lose(Aborted("UCX was stopped: it did not release a broken link"));
    }
  }
  for (const Worker::Failure& failure : std::exchange(shared_.worker->failed, {})) {
    failure.link->Lose(Unavailable("connection lost: {}", shared_.worker->Text(failure.status)));
  }
  if (shared_.poller.DeadlinePassed()) {
    const int64_t now = NowNanos();
    for (const auto& link : links_) {
      if (link != nullptr) link->CheckDeadline(now);
    }
  }
  if (!shared_.breaking.empty()) {
    CloseBroken();
    moved = true;
  }
  return moved;
}

void UcxTransportImpl::Wait(int64_t timeout_nanos) {
  {
    const Lock lock(mutex_);
    if (connected_ && !shared_.worker->Arm()) return;
  }
  shared_.poller.Wait(timeout_nanos, spin_nanos_.load(std::memory_order_relaxed));
}

void UcxTransportImpl::OnFrame(const FrameHeader& header, const Payload& payload) {
  if (leaving_) return shared_.worker->Drop(payload);
  if (header.from >= static_cast<uint32_t>(size()) ||
      header.from == static_cast<uint32_t>(rank())) {
    shared_.worker->Drop(payload);
    return OnStranger(InvalidArgument("says that it is rank {} of {}", header.from, size()));
  }
  links_[header.from]->OnFrame(header, payload);
}

void UcxTransportImpl::OnStranger(const absl::Status& why) {
  if (!refusals_.HasRoom()) return;
  Log(LogLevel::kWarning, "rank {} ({}, ucx) refused a message: its sender {}", rank(),
      shared_.options.host, MessageOf(why));
}

// The end ----------------------------------------------------------------------------------------

void UcxTransportImpl::CloseBroken() {
  for (Link* link : std::exchange(shared_.breaking, {})) {
    const absl::Status status = link->status();
    link->Close(status);
    broken_.push_back({link->peer(), status});
  }
}

void UcxTransportImpl::Fail(int peer, const absl::Status& status) {
  TUTTI_CHECK(!status.ok());
  const Lock lock(mutex_);
  if (!CheckPeer(peer).ok()) return;
  Link* link = links_[static_cast<size_t>(peer)].get();
  std::erase(shared_.breaking, link);
  link->Forget();
  link->Close(status);
}

bool UcxTransportImpl::NextBroken(BrokenLink* broken) {
  const Lock lock(mutex_);
  if (broken_.empty()) return false;
  *broken = std::move(broken_.front());
  broken_.pop_front();
  return true;
}

// Sends what SendShort has promised, and the news that this rank leaves. UCX's word that the peer
// has all of it needs the peer's help, which may be busy or leave too: what UCX has sent, and
// nothing has moved for a while after that, is taken for delivered.
void UcxTransportImpl::Leave() {
  leaving_ = true;
  std::vector<Link*> open;
  for (const auto& link : links_) {
    if (link != nullptr && link->BeginLeave()) open.push_back(link.get());
  }
  const int64_t end = NowNanos() + kLeaveNanos;
  int64_t still_since = NowNanos();
  const auto busy = [](const Link* link) { return link->HasTransfers(); };
  for (int64_t now = NowNanos(); !open.empty() && now < end; now = NowNanos()) {
    if (shared_.worker->Progress() || std::ranges::any_of(open, busy)) still_since = now;
    if (now - still_since > kStillNanos) break;
    std::erase_if(open, [](Link* link) { return link->EndLeave(/*give_up=*/false); });
  }
  for (Link* link : open) link->EndLeave(/*give_up=*/true);
}

}  // namespace
}  // namespace ucx

bool UcxTransport::IsBuiltIn() { return true; }

absl::StatusOr<std::unique_ptr<UcxTransport>> UcxTransport::Open(const UcxOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return InvalidArgument("rank {} of {} ranks does not exist", options.rank, options.size);
  }
  auto transport = std::make_unique<ucx::UcxTransportImpl>(options);
  TUTTI_RETURN_IF_ERROR(transport->Open());
  return transport;
}

}  // namespace tutti::net
