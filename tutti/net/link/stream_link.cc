#include "tutti/net/link/stream_link.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/token.h"
#include "tutti/net/wire.h"

namespace tutti::net::link {
namespace {

// How much one link may move before the others have their turn.
constexpr size_t kReadBurst = size_t{8} << 20;
constexpr size_t kWriteBurst = size_t{2} << 20;
// What the sending thread writes by itself: more would keep it busy with copying.
constexpr size_t kDirectBytes = size_t{64} << 10;
// Messages that follow each other more closely are left to the links' thread, which writes those
// that have gathered with one call.
constexpr int64_t kDirectPause = 10'000;
// A message with a larger payload is not kept back: its receiver works on it for longer than a
// message costs.
constexpr size_t kGatheredBytes = size_t{1} << 20;
constexpr int64_t kCloseNanos = 2'000'000'000;
// A larger payload is put into shared memory by the sending thread, before it takes the lock: to
// make room for 2.2 GB took 8 s on a busy host, in which the link could give no sign of life.
constexpr size_t kSlowBytes = size_t{256} << 20;

void ShareLarge(SharedMemory& memory, std::vector<Payload>& payloads) {
  for (Payload& payload : payloads) {
    const size_t bytes = payload.bytes.size();
    if (bytes < kSlowBytes || memory.Find(payload.bytes.data(), bytes).has_value()) continue;
    absl::StatusOr<SharedMemory::Block> block = memory.Allocate(bytes);
    if (!block.ok()) continue;  // it is written to the socket
    std::memcpy(block->bytes.data(), payload.bytes.data(), bytes);
    payload = {block->bytes, std::move(block->owner)};
  }
}

}  // namespace

StreamLink::StreamLink(std::shared_ptr<Context> context, std::string task, std::string address,
                       uint64_t expected)
    : context_(std::move(context)),
      task_(std::move(task)),
      address_(std::move(address)),
      unknown_{.task = task_},
      peer_(&unknown_),
      expected_(expected),
      inbox_(this) {}

LinkKind StreamLink::kind() const { return memory_ ? LinkKind::kMemory : LinkKind::kSocket; }

std::string StreamLink::Describe() const {
  return fmt::format("{} ({}, {})", task_, address_, memory_ ? "shared memory" : "tcp");
}

std::string StreamLink::Named(std::string_view why) const {
  return fmt::format("{} ({}): {}", task_, address_, why);
}

uint64_t StreamLink::incarnation() const {
  const uint64_t known = peer().incarnation;
  return known != 0 ? known : expected_.load();
}

void StreamLink::Expect(uint64_t incarnation) {
  uint64_t none = 0;
  expected_.compare_exchange_strong(none, incarnation);
}

Link::Counters StreamLink::counters() const {
  Counters counters;
  counters.messages_received = received_messages_;
  counters.bytes_received = received_bytes_;
  const std::lock_guard lock(mutex_);
  counters.messages_sent = outbox_.messages();
  counters.bytes_sent = outbox_.bytes();
  return counters;
}

// Sending ----------------------------------------------------------------------------------------

void StreamLink::Send(std::string header, std::vector<Payload> payloads, bool counted) {
  if (header.size() > kMaxTextBytes || payloads.size() > kMaxPayloads) {
    return Close(
        InvalidArgument("a message with a header of {} bytes and {} payloads; at most {} "
                        "and {} can be sent",
                        header.size(), payloads.size(), kMaxTextBytes, kMaxPayloads));
  }
  size_t bytes = 0;
  for (const Payload& payload : payloads) bytes += payload.bytes.size();
  if (memory_ && bytes >= kSlowBytes) ShareLarge(*context_->memory, payloads);
  std::unique_lock lock(mutex_);
  if (state() == State::kBroken) return;
  outbox_.Send(std::move(header), std::move(payloads), counted);
  FlushFromSender(lock, bytes <= kGatheredBytes);
}

void StreamLink::Taken(uint64_t bytes) {
  const uint64_t taken = taken_.fetch_add(bytes) + bytes;
  // A peer that waits either finds these bytes told, or they are told here.
  if (!tell_all_ && taken - told_ < context_->options.window_bytes / 8) return;
  std::unique_lock lock(mutex_);
  if (state() == State::kBroken) return;
  TellTaken();
  FlushFromSender(lock, true);
}

void StreamLink::TellTaken() {
  const uint64_t taken = taken_;
  if (taken == told_) return;
  tell_all_ = false;
  told_ = taken;
  outbox_.SendControl(FrameKind::kTaken, taken);
}

void StreamLink::Released(uint64_t message) {
  std::unique_lock lock(mutex_);
  if (state() == State::kBroken) return;
  outbox_.SendControl(FrameKind::kReleased, message);
  FlushFromSender(lock, true);
}

// Writes what is queued, or lets it gather with what this thread sends next.
void StreamLink::FlushFromSender(std::unique_lock<std::mutex>& lock, bool gathers) {
  if (state() != State::kOpen || outbox_.idle()) return;
  if (gathers && GatheredSends::Add(shared_from_this())) return;
  WriteFromSender(lock, /*pauses=*/true);
}

void StreamLink::WriteQueued() {
  std::unique_lock lock(mutex_);
  if (state() == State::kOpen && !outbox_.idle()) WriteFromSender(lock, /*pauses=*/false);
}

// Writes what is queued if that takes no time, and leaves it to the links' thread otherwise; with
// `pauses` also if the last write was a moment ago.
void StreamLink::WriteFromSender(std::unique_lock<std::mutex>& lock, bool pauses) {
  if (flush_posted_) return;
  const int64_t now = NowNanos();
  const bool direct = (wanted_ & EPOLLOUT) == 0 && (!pauses || now - last_write_ > kDirectPause) &&
                      outbox_.FrontBytes(kDirectBytes) < kDirectBytes;
  if (direct) {
    last_write_ = now;
    int error = 0;
    outbox_.Write(socket_.fd(), kDirectBytes, /*may_copy=*/false, &error);
  }
  // Also where the connection is lost: the links' thread finds the same.
  if (!outbox_.idle()) PostFlush();
  const std::vector<Payload> done = outbox_.TakeDone();
  lock.unlock();
}

void StreamLink::PostFlush() {
  if (std::exchange(flush_posted_, true)) return;
  context_->loop->Post([self = shared_from_this()] { self->Flush(); });
}

void StreamLink::Flush() {
  int error = 0;
  Outbox::Result result = Outbox::Result::kDone;
  bool closed = false;
  {
    std::unique_lock lock(mutex_);
    flush_posted_ = false;
    if (!socket_.valid()) return;
    const bool had = !outbox_.idle();
    result = outbox_.Write(socket_.fd(), kWriteBurst, /*may_copy=*/true, &error);
    if (had) last_write_ = NowNanos();
    if (result == Outbox::Result::kAgain) PostFlush();
    const uint32_t wanted =
        result == Outbox::Result::kFull ? EPOLLIN | EPOLLOUT : uint32_t{EPOLLIN};
    if (wanted != wanted_) {
      wanted_ = wanted;
      context_->loop->Change(watch_, wanted);
    }
    closed = state() == State::kClosing && outbox_.closed();
    const std::vector<Payload> done = outbox_.TakeDone();
    lock.unlock();
  }
  if (result == Outbox::Result::kLost) {
    return OnWriteError(fmt::format("connection lost: {}", ErrnoText(error)));
  }
  // The peer reads the reason and closes; its end is ours.
  if (closed) shutdown(socket_.fd(), SHUT_WR);
}

// What the peer said before it closed, perhaps why, is still there to be read; behind it comes the
// end.
void StreamLink::OnWriteError(const std::string& why) {
  if (state() == State::kHello) return LoseConnection(why);
  if (!write_error_.empty()) return;
  write_error_ = why;
  std::vector<Payload> done;
  const std::lock_guard lock(mutex_);
  outbox_.Drop();
  done = outbox_.TakeDone();
}

// Receiving --------------------------------------------------------------------------------------

void StreamLink::OnEvents(uint32_t events) {
  const auto self = shared_from_this();
  if ((events & ~uint32_t{EPOLLOUT}) != 0) OnReadable();
  if (socket_.valid() && (events & EPOLLOUT) != 0) Flush();
}

void StreamLink::OnReadable() {
  const GatheredSends gathered;  // what is answered to several messages goes together
  left_.Close();                 // the peer speaks on the joined one
  last_heard_ = context_->loop->now();
  const absl::StatusOr<Inbox::Result> result =
      inbox_.Read(socket_.fd(), context_->scratch, kReadBurst);
  if (state() == State::kBroken) return;
  if (closed_by_peer_) return Break(close_reason_);
  if (!result.ok()) {
    if (absl::IsUnavailable(result.status())) {
      return LoseConnection(std::string(MessageOf(result.status())));
    }
    return Break(WithPrefix(result.status(), Named("")), /*tell=*/true);
  }
  if (*result == Inbox::Result::kEnd) {
    return LoseConnection(write_error_.empty() ? "closed the connection" : write_error_);
  }
  bool more = false;
  {
    const std::lock_guard lock(mutex_);
    more = !outbox_.idle() && !flush_posted_ && (wanted_ & EPOLLOUT) == 0;
  }
  if (more) Flush();
}

absl::Status StreamLink::OnControl(const FrameHead& head, std::string_view text) {
  switch (head.kind) {
    case FrameKind::kHello:
      return OnHello(text);
    case FrameKind::kOpen:
      if (state() != State::kHello || dialled_ || peer_window_ == 0) {
        return InvalidArgument("it opened a link at the wrong time");
      }
      Opened(memory_);
      return absl::OkStatus();
    case FrameKind::kTaken: {
      const std::lock_guard lock(mutex_);
      return outbox_.OnTaken(head.number);
    }
    case FrameKind::kReleased: {
      std::unique_lock lock(mutex_);
      const absl::Status status = outbox_.OnReleased(head.number);
      const std::vector<Payload> done = outbox_.TakeDone();
      lock.unlock();
      return status;
    }
    case FrameKind::kWaiting: {
      const std::lock_guard lock(mutex_);
      tell_all_ = true;
      TellTaken();
      return absl::OkStatus();
    }
    case FrameKind::kClose:
      return OnClose(head.number, text);
    case FrameKind::kPing:
      return absl::OkStatus();
    case FrameKind::kMessage:
    case FrameKind::kMessages:
    case FrameKind::kRegion:
    case FrameKind::kForgotten:
      break;
  }
  return Internal("a frame of kind {} is no control frame", static_cast<int>(head.kind));
}

absl::Status StreamLink::OnClose(uint64_t code, std::string_view text) {
  const bool known = code > 0 && code <= static_cast<uint64_t>(absl::StatusCode::kUnauthenticated);
  closed_by_peer_ = true;
  close_reason_ =
      state() == State::kClosing
          ? close_reason_  // both closed it: each has its own reason
          : absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                         Named(fmt::format("closed the link: {}", Printable(text, 1024))));
  return close_reason_.ok() ? Cancelled("closed") : close_reason_;
}

absl::Status StreamLink::Place(std::string_view header, std::span<const uint64_t> sizes,
                               std::span<Bytes> places) {
  return context_->events->Place(*this, header, sizes, places);
}

absl::Status StreamLink::OnMessage(std::string_view header, std::vector<Payload> payloads) {
  // Before it is told: who hears of a message finds it counted.
  received_messages_.store(inbox_.messages(), std::memory_order_relaxed);
  received_bytes_.store(inbox_.bytes(), std::memory_order_relaxed);
  context_->events->Received(*this, header, std::move(payloads));
  return absl::OkStatus();
}

std::shared_ptr<const void> StreamLink::Lease(
    uint64_t message, std::vector<std::shared_ptr<const shm::SharedPages>> pages) {
  struct Held {
    std::weak_ptr<StreamLink> link;
    uint64_t message;
    std::vector<std::shared_ptr<const shm::SharedPages>> pages;
    ~Held() {
      if (const auto alive = link.lock()) alive->Released(message);
    }
  };
  return std::shared_ptr<const Held>(
      new Held{.link = weak_from_this(), .message = message, .pages = std::move(pages)});
}

// The end ----------------------------------------------------------------------------------------

void StreamLink::Close(absl::Status reason) {
  if (state() == State::kBroken) return;
  if (reason.ok()) reason = Cancelled("the link is not needed any more");
  context_->loop->Post([self = shared_from_this(), reason = std::move(reason)] {
    const State state = self->state();
    if (state == State::kBroken || state == State::kClosing) return;
    if (state != State::kOpen) return self->Break(reason, /*tell=*/true);
    self->close_reason_ = reason;
    self->close_by_ = NowNanos() + kCloseNanos;
    self->state_ = State::kClosing;
    {
      const std::lock_guard lock(self->mutex_);
      self->outbox_.SendClose(reason);
    }
    self->Flush();
  });
}

void StreamLink::Tick(int64_t now) {
  const State at = state();
  if (at == State::kOpening || at == State::kBroken) return;
  if (at == State::kClosing && now >= close_by_) return Break(close_reason_);
  const auto silence = static_cast<int64_t>(context_->options.silence_seconds * 1e9);
  if (now - last_heard() > silence) {
    return LoseConnection(
        fmt::format("has sent nothing for {:g} s", context_->options.silence_seconds));
  }
  if (at == State::kHello) return;
  {
    const std::lock_guard lock(mutex_);
    outbox_.ForgetRegions();
    if (now - last_ping_ > silence / 10) {
      last_ping_ = now;
      outbox_.SendPing();
    }
  }
  Flush();
}

// What the end of the connection means: the end of the link, unless it was not open yet and this
// side can try again.
void StreamLink::LoseConnection(const std::string& why) {
  switch (state()) {
    case State::kHello:
      if (dialled_ && NowNanos() < dial_deadline_) {
        DropSocket();
        return StartDialing();
      }
      [[fallthrough]];
    case State::kOpening:
    case State::kOpen:
      return Break(Unavailable("{}", Named(why)));
    case State::kClosing:
      return Break(close_reason_);
    case State::kBroken:
      return;
  }
}

void StreamLink::Break(const absl::Status& status, bool tell) {
  const auto self = shared_from_this();
  std::vector<Payload> done;
  {
    const std::lock_guard lock(mutex_);
    if (state() == State::kBroken) return;
    state_ = State::kBroken;
    if (tell && socket_.valid() && outbox_.idle()) {
      WriteSome(socket_.fd(), EncodeFrame(FrameKind::kClose, static_cast<uint64_t>(status.code()),
                                          MessageOf(status).substr(0, 1024)));
    }
    outbox_.Drop();
    done = outbox_.TakeDone();
  }
  dial_.reset();
  ++dial_round_;
  if (dial_watch_ != 0) context_->loop->Forget(std::exchange(dial_watch_, 0));
  early_.Close();
  DropSocket();
  context_->gone(this);
  context_->events->Broken(*this, status);
}

}  // namespace tutti::net::link
