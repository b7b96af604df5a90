#include "tutti/cluster/remote/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "tutti/base/awaited.h"
#include "tutti/base/clock.h"
#include "tutti/net/wire.h"
#include "tutti/runtime/rendezvous/transfer_key.h"

namespace tutti {
namespace {

// For a task that was there and is gone: it may be up again in a moment, or not.
constexpr int64_t kShortPatience = 200'000'000;  // nanoseconds
// Somebody who connects looks this often whether he is to stop. A handshake takes some round trips,
// and its time on a busy host: every try may take longer than the one before.
constexpr int64_t kFirstTry = 200'000'000;
constexpr int64_t kLongestTry = 1'000'000'000;

struct Header {
  DataKind kind = DataKind::kHello;
  uint64_t call = 0;
  std::string_view fields;
};

absl::StatusOr<Header> ParseHeader(std::string_view bytes) {
  constexpr size_t kBytes = 9;
  if (bytes.size() < kBytes) return InvalidArgument("a message of {} bytes", bytes.size());
  net::WireReader in(bytes);
  const uint8_t kind = in.U8();
  if (kind < uint8_t(DataKind::kHello) || kind > uint8_t(DataKind::kTensors)) {
    return InvalidArgument("a message of the unknown kind {}", kind);
  }
  const uint64_t call = in.U64();
  return Header{DataKind(kind), call, bytes.substr(kBytes)};
}

// The device that a value is for; "" of any other message.
std::string_view DeviceOf(const Header& header) {
  if (header.kind != DataKind::kValue) return {};
  net::WireReader in(header.fields);
  in.U64();
  in.I64();
  const uint64_t length = in.U64();
  return DestinationOf(in.Raw(size_t(std::min<uint64_t>(length, header.fields.size() + 1))));
}

// The first line in which two clusters differ, or "".
std::string FirstDifference(const std::vector<std::string>& own,
                            const std::vector<std::string>& other) {
  for (size_t i = 0; i < std::max(own.size(), other.size()); ++i) {
    const std::string_view here = i < own.size() ? own[i] : std::string_view("nothing");
    const std::string_view there = i < other.size() ? other[i] : std::string_view("nothing");
    if (here != there) return fmt::format("{} here, {} there", here, there);
  }
  return {};
}

}  // namespace

TaskPeers::TaskPeers(Options options) : options_(std::move(options)) {}
TaskPeers::~TaskPeers() = default;

void TaskPeers::Start(Network* network, Services* services) {
  network_ = network;
  services_ = services;
}

void TaskPeers::Stop(const absl::Status& reason) {
  std::vector<std::shared_ptr<Peer>> peers;
  {
    std::lock_guard lock(mutex_);
    if (!stopped_.ok()) return;
    stopped_ = reason;
    for (const auto& [link, peer] : by_link_) peers.push_back(peer);
  }
  for (const auto& peer : peers) peer->Close(reason);
  std::unique_lock lock(mutex_);
  connected_.wait(lock, [this] { return connecting_ == 0; });
}

std::shared_ptr<Peer> TaskPeers::Find(const std::string& task) const {
  std::lock_guard lock(mutex_);
  const auto it = by_task_.find(task);
  return it == by_task_.end() ? nullptr : it->second.peer;
}

std::vector<std::shared_ptr<Peer>> TaskPeers::All() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Peer>> all;
  for (const auto& [link, peer] : by_link_) all.push_back(peer);
  return all;
}

namespace {

void Add(const net::Link::Counters& more, net::Link::Counters& sum) {
  sum.messages_sent += more.messages_sent;
  sum.bytes_sent += more.bytes_sent;
  sum.messages_received += more.messages_received;
  sum.bytes_received += more.bytes_received;
}

}  // namespace

net::Link::Counters TaskPeers::Traffic() const {
  std::lock_guard lock(mutex_);
  net::Link::Counters sum = ended_;
  for (const auto& [link, peer] : by_link_) Add(link->counters(), sum);
  return sum;
}

net::Link::Counters TaskPeers::TrafficWith(const std::string& task) const {
  std::lock_guard lock(mutex_);
  net::Link::Counters sum;
  for (const auto& [link, peer] : by_link_) {
    if (peer->identity().task == task) Add(link->counters(), sum);
  }
  return sum;
}

TaskPeers::Refusals TaskPeers::Refused() const {
  std::lock_guard lock(mutex_);
  Refusals all = refused_;
  if (network_ != nullptr && stopped_.ok()) all.links += network_->refused_links();
  return all;
}

void TaskPeers::Get(const std::string& task, int64_t patience_nanos, GetDone done) {
  absl::StatusOr<std::shared_ptr<Peer>> now = nullptr;
  {
    std::lock_guard lock(mutex_);
    Slot& slot = by_task_[task];
    if (!stopped_.ok()) {
      now = stopped_;
    } else if (slot.peer != nullptr) {
      now = slot.peer;
    } else {
      const int64_t patience =
          slot.reached ? std::min(patience_nanos, kShortPatience) : patience_nanos;
      slot.waiting.push_back({std::move(done), NowNanos() + patience});
      if (slot.connecting) return;
      slot.connecting = true;
      ++connecting_;
    }
  }
  if (!now.ok() || *now != nullptr) {
    done(std::move(now));
    return;
  }
  try {
    threads_.Post([this, task] { Connect(task); });
  } catch (...) {
    std::vector<Waiter> waiting;
    const absl::Status status = StatusFromCurrentException();
    {
      std::lock_guard lock(mutex_);
      waiting.swap(by_task_[task].waiting);
      by_task_[task].connecting = false;
      if (--connecting_ == 0) connected_.notify_all();
    }
    for (const Waiter& waiter : waiting) waiter.done(status);
  }
}

int64_t TaskPeers::EndOfTry(const std::string& task, int64_t nanos) const {
  int64_t end = NowNanos() + nanos;
  std::lock_guard lock(mutex_);
  for (const Waiter& waiter : by_task_.at(task).waiting) end = std::min(end, waiter.deadline);
  return end;
}

bool TaskPeers::Answer(const std::string& task, absl::StatusOr<std::shared_ptr<Peer>> peer) {
  std::vector<Waiter> answered;
  bool again = false;
  {
    std::lock_guard lock(mutex_);
    Slot& slot = by_task_[task];
    const bool over = peer.ok() || !absl::IsUnavailable(peer.status()) || !stopped_.ok();
    if (!stopped_.ok()) peer = stopped_;
    if (peer.ok() && !(*peer)->status().ok()) peer = (*peer)->status();
    // Broken forgets a peer before it tells it: one that came into the slot then would stay there.
    if (peer.ok() && std::none_of(by_link_.begin(), by_link_.end(),
                                  [&](const auto& entry) { return entry.second == *peer; })) {
      peer = Unavailable("{}: the link broke as soon as it was open", (*peer)->description());
    }
    if (peer.ok()) {
      slot.peer = *peer;
      slot.reached = true;
    }
    const int64_t now = NowNanos();
    const auto first =
        std::stable_partition(slot.waiting.begin(), slot.waiting.end(),
                              [&](const Waiter& waiter) { return !over && waiter.deadline > now; });
    answered.assign(std::make_move_iterator(first), std::make_move_iterator(slot.waiting.end()));
    slot.waiting.erase(first, slot.waiting.end());
    again = slot.connecting = !slot.waiting.empty();
  }
  for (const Waiter& waiter : answered) waiter.done(peer);
  return again;
}

void TaskPeers::Connect(const std::string& task) {
  const int64_t begun = NowNanos();
  int64_t nanos = kFirstTry;
  for (bool again = true; again; nanos = std::min(2 * nanos, kLongestTry)) {
    absl::StatusOr<std::shared_ptr<Peer>> peer = Reach(task, EndOfTry(task, nanos));
    if (!peer.ok() && MessageOf(peer.status()).find(task) == std::string_view::npos) {
      peer = WithPrefix(peer.status(), fmt::format("{} ({}): ", task, network_->AddressOf(task)));
    }
    if (absl::IsUnavailable(peer.status()) && nanos > kFirstTry) {
      peer = Unavailable("{}; tried for {:.1f} s in all", MessageOf(peer.status()),
                         double(NowNanos() - begun) * 1e-9);
    }
    // The callbacks are gone when it returns: one may hold what holds this object, and must go
    // before Stop returns.
    again = Answer(task, std::move(peer));
  }
  std::lock_guard lock(mutex_);
  if (--connecting_ == 0) connected_.notify_all();
}

// First the control connection, whose other end tells who it is, then the link to that process, and
// a hello on it: when it is answered, the other side knows the link and takes control calls.
absl::StatusOr<std::shared_ptr<Peer>> TaskPeers::Reach(const std::string& task, int64_t deadline) {
  const auto slow = std::make_shared<std::weak_ptr<Peer>>();
  const auto guard = std::make_shared<std::mutex>();
  TUTTI_ASSIGN_OR_RETURN(
      const Network::Control control,
      network_->OpenControl(task, deadline, [slow, guard](const absl::Status& reason) {
        std::shared_ptr<Peer> lost;
        {
          std::lock_guard lock(*guard);
          lost = slow->lock();
        }
        if (lost != nullptr) lost->Close(reason);
      }));
  std::shared_ptr<Peer> peer;
  std::shared_ptr<net::Link> link;
  {
    // Held, so that Broken finds the peer.
    std::lock_guard lock(mutex_);
    if (!stopped_.ok()) return stopped_;
    link = network_->OpenLink(task, control.peer);
    auto& entry = by_link_[link.get()];
    if (entry == nullptr) entry = std::make_shared<Peer>(*link, control.peer, options_.self);
    peer = entry;
  }
  {
    std::lock_guard lock(*guard);
    *slow = peer;
  }
  Awaited<absl::Status> hello_answered;
  peer->Ask(
      DataKind::kHello,
      [this](WireMessage& message) {
        net::WireWriter out(&message.fields);
        out.U64(options_.fingerprint.size());
        for (const std::string& line : options_.fingerprint) out.Text32(line);
      },
      [&hello_answered](absl::StatusOr<PeerMessage> answer) {
        absl::Status status = answer.ok() ? DecodeStatus(answer->fields) : answer.status();
        hello_answered.Set(std::move(status));
      });
  if (const absl::Status status = hello_answered.Wait(); !status.ok()) {
    // Before the control connection ends, which would break the link without telling why.
    peer->Close(status);
    return status;
  }
  peer->set_control(control.channel);
  return peer;
}

void TaskPeers::Fence(const net::TaskIdentity& process, const absl::Status& why) {
  std::vector<std::shared_ptr<Peer>> peers;
  {
    std::lock_guard lock(mutex_);
    fenced_.emplace(std::pair(process.task, process.incarnation), why);
    for (const auto& [link, peer] : by_link_) {
      if (peer->identity() == process) peers.push_back(peer);
    }
  }
  for (const auto& peer : peers) peer->Close(why);
}

std::shared_ptr<Peer> TaskPeers::PeerOf(net::Link& link) {
  absl::Status fenced;
  {
    std::lock_guard lock(mutex_);
    fenced = FencedOff(link.peer());
    if (fenced.ok()) {
      auto& peer = by_link_[&link];
      if (peer == nullptr) peer = std::make_shared<Peer>(link, link.peer(), options_.self);
      return peer;
    }
    ++refused_.messages;
    if (!by_link_.contains(&link)) ++refused_.links;
  }
  link.Close(fenced);
  return nullptr;
}

absl::Status TaskPeers::FencedOff(const net::TaskIdentity& process) const {
  if (fenced_.empty()) return absl::OkStatus();
  const auto found = fenced_.find({process.task, process.incarnation});
  return found == fenced_.end() ? absl::OkStatus() : found->second;
}

absl::Status TaskPeers::Place(net::Link& link, std::string_view header,
                              std::span<const uint64_t> sizes, std::span<net::Bytes> places) {
  TUTTI_ASSIGN_OR_RETURN(const Header parsed, ParseHeader(header));
  const std::shared_ptr<Peer> peer = PeerOf(link);
  if (peer == nullptr) return Aborted("{} is fenced off", link.peer().task);
  return peer->Place(options_.pool(DeviceOf(parsed)), sizes, places);
}

void TaskPeers::Received(net::Link& link, std::string_view header,
                         std::vector<net::Payload> payloads) {
  const std::shared_ptr<Peer> peer = PeerOf(link);
  if (peer == nullptr) return;
  const absl::StatusOr<Header> parsed = ParseHeader(header);
  if (!parsed.ok()) {
    link.Close(parsed.status());
    return;
  }
  PeerMessage message{parsed->fields, peer->TakePayloads(std::move(payloads)), header.size()};
  switch (parsed->kind) {
    case DataKind::kHello:
      OnHello(peer, parsed->call, parsed->fields);
      return;
    case DataKind::kAnswer:
      peer->OnAnswer(parsed->call, std::move(message));
      return;
    case DataKind::kTensors:
      peer->OnTensors(parsed->call, std::move(message.tensors));
      return;
    case DataKind::kRun:
    case DataKind::kMasterRun:
    case DataKind::kValue:
      if (services_ != nullptr) {
        services_->OnRequest(peer, parsed->kind, parsed->call, std::move(message));
      }
      return;
  }
}

void TaskPeers::OnHello(const std::shared_ptr<Peer>& peer, uint64_t call, std::string_view fields) {
  net::WireReader in(fields);
  const uint64_t count = in.U64();
  std::vector<std::string> lines;
  for (uint64_t i = 0; i < count && in.ok(); ++i) lines.emplace_back(in.Text32());
  absl::Status status;
  if (!in.Complete()) {
    status = InvalidArgument("a hello that is cut off or too long");
  } else if (!lines.empty() && !options_.fingerprint.empty()) {
    const std::string difference = FirstDifference(options_.fingerprint, lines);
    if (!difference.empty()) {
      status = FailedPrecondition("{} has another cluster than {}: {}", options_.self.task,
                                  peer->identity().task, difference);
      std::lock_guard lock(mutex_);
      ++refused_.links;
    }
  }
  WireMessage answer = StartMessage(DataKind::kAnswer, call);
  EncodeStatus(status, answer);
  (void)peer->Send(std::move(answer));
}

void TaskPeers::Broken(net::Link& link, const absl::Status& reason) {
  std::shared_ptr<Peer> peer;
  absl::Status why = reason;
  {
    std::lock_guard lock(mutex_);
    const auto it = by_link_.find(&link);
    if (it == by_link_.end()) return;  // it never said a word
    peer = std::move(it->second);
    // ABORTED is what the process itself is told; for others it is lost like any other.
    if (const absl::Status fenced = FencedOff(peer->identity()); !fenced.ok()) {
      why = Unavailable("{}", MessageOf(fenced));
    }
    by_link_.erase(it);
    Add(link.counters(), ended_);
    for (auto& [task, slot] : by_task_) {
      if (slot.peer == peer) slot.peer = nullptr;
    }
  }
  peer->OnBroken(why);
  if (services_ != nullptr) {
    services_->OnLost(peer, absl::IsCancelled(why) ? why : peer->status());
  }
}

void TaskPeers::Handle(ControlMethod method, ControlRequest request, ControlDone done) {
  std::shared_ptr<Peer> peer;
  absl::Status fenced;
  {
    std::lock_guard lock(mutex_);
    fenced = FencedOff(request.caller);
    if (!fenced.ok()) ++refused_.messages;
    for (const auto& [link, candidate] : by_link_) {
      if (candidate->identity() == request.caller) peer = candidate;
    }
  }
  if (!fenced.ok()) {
    done(std::move(fenced));
    return;
  }
  if (peer == nullptr || services_ == nullptr) {
    done(FailedPrecondition("{} calls {}, but has no link to {}", request.caller.task,
                            NameOf(method), options_.self.task));
    return;
  }
  const uint64_t call = request.call, tensors = request.tensors;
  peer->AwaitTensors(call, tensors,
                     [this, peer, method, fields = std::move(request.fields),
                      done = std::move(done)](absl::StatusOr<std::vector<Tensor>> given) mutable {
                       if (!given.ok()) {
                         done(given.status());
                         return;
                       }
                       try {
                         services_->OnControl(peer, method, std::move(fields), *std::move(given),
                                              done);
                       } catch (...) {
                         // No thread or no memory was left for it, and it was not begun.
                         done(StatusFromCurrentException());
                       }
                     });
}

}  // namespace tutti
