#include "tutti/net/coordination/control_link.h"

#include <fmt/core.h>
#include <sys/epoll.h>

#include <cerrno>
#include <utility>

#include "tutti/base/clock.h"

namespace tutti::net {
namespace {

constexpr size_t kReadBytes = size_t{256} << 10;

std::string HowItEnded(int error) {
  if (error == 0 || error == ECONNRESET || error == EPIPE) return "its connection closed";
  return fmt::format("its connection broke: {}", ErrnoText(error));
}

}  // namespace

ControlLink::ControlLink(EventLoop* loop, Socket socket, ControlReader reader)
    : loop_(loop),
      socket_(std::move(socket)),
      reader_(std::move(reader)),
      last_heard_(NowNanos()) {}

ControlLink::~ControlLink() {
  loop_->Forget(watch_);
  CloseGently(std::move(socket_));
}

absl::Status ControlLink::Open(Callbacks callbacks) {
  Redirect(std::move(callbacks));
  absl::StatusOr<uint64_t> watch =
      loop_->Watch(socket_.fd(), EPOLLIN, [this](uint32_t events) { OnEvents(events); });
  if (!watch.ok()) return watch.status();
  watch_ = *watch;
  reading_ = true;
  return absl::OkStatus();
}

void ControlLink::Redirect(Callbacks callbacks) {
  callbacks_ = std::make_shared<const Callbacks>(std::move(callbacks));
}

void ControlLink::Send(const ControlMessage& message) {
  Send(std::make_shared<const std::string>(Encode(message)));
}

void ControlLink::Send(std::shared_ptr<const std::string> encoded) {
  if (!writable_) return;
  queue_.push_back(std::move(encoded));
  if (queue_.size() == 1) Flush();
}

void ControlLink::Flush() {
  while (!queue_.empty()) {
    const IoResult result =
        WriteSome(socket_.fd(), std::string_view(*queue_.front()).substr(sent_));
    if (result.kind == IoResult::Kind::kAgain) break;
    if (result.kind == IoResult::Kind::kError) {
      // What the peer said before is still to be read, and the end after it.
      writable_ = false;
      queue_.clear();
      break;
    }
    sent_ += result.bytes;
    if (sent_ == queue_.front()->size()) {
      queue_.pop_front();
      sent_ = 0;
    }
  }
  const uint32_t events = (reading_ ? EPOLLIN : 0u) | (queue_.empty() ? 0u : EPOLLOUT);
  loop_->Change(watch_, events);
}

void ControlLink::StopReading() {
  reading_ = false;
  loop_->Forget(watch_);  // or a closed connection would be reported for ever
  writable_ = false;
  queue_.clear();
}

void ControlLink::OnEvents(uint32_t events) {
  const std::weak_ptr<bool> alive = alive_;
  if ((events & EPOLLOUT) != 0) Flush();
  if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) == 0 || !reading_) return;
  // Once round the loop a link reads a bounded piece, so that a busy one holds up nobody.
  static thread_local std::vector<std::byte> piece(kReadBytes);
  const IoResult result = ReadSome(socket_.fd(), piece);
  if (result.kind == IoResult::Kind::kAgain) return;
  if (result.kind == IoResult::Kind::kMoved) {
    last_heard_ = NowNanos();
    reader_.Append(std::span(piece).first(result.bytes));
    Deliver(alive);
    return;
  }
  if (!Deliver(alive)) return;
  StopReading();
  const std::shared_ptr<const Callbacks> callbacks = callbacks_;
  callbacks->closed(HowItEnded(result.error));
}

bool ControlLink::Deliver(const std::weak_ptr<bool>& alive) {
  while (true) {
    const std::shared_ptr<const Callbacks> callbacks = callbacks_;  // may outlive the link
    ControlMessage message;
    bool found = false;
    if (const absl::Status status = reader_.Next(&message, &found); !status.ok()) {
      StopReading();
      callbacks->bad(status);
      return false;
    }
    if (!found) return true;
    callbacks->message(std::move(message));
    if (alive.expired() || !reading_) return false;
  }
}

}  // namespace tutti::net
