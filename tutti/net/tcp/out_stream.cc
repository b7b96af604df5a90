#include "tutti/net/tcp/out_stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/tcp/link.h"
#include "tutti/net/tcp/shared.h"

namespace tutti::net::tcp {

OutStream::OutStream(Shared* shared, Link* link, FrameSource* source, int number)
    : shared_(shared), link_(link), source_(source), number_(number) {}

OutStream::~OutStream() { Close(absl::OkStatus()); }

void OutStream::Connect(const Address& address, int send_buffer) {
  absl::StatusOr<Socket> socket = StartConnect(address);
  absl::Status status = socket.status();
  if (status.ok()) {
    socket_ = *std::move(socket);
    SetNoDelay(socket_.fd());
    if (send_buffer > 0) {
      setsockopt(socket_.fd(), SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(send_buffer));
    }
    wanted_ = EPOLLOUT;
    status = shared_->poller.Add(socket_.fd(), wanted_, this);
  }
  if (!status.ok()) return Lose(fmt::format("cannot connect: {}", MessageOf(status)));
  state_ = State::kConnecting;
  deadline_ = NowNanos() + static_cast<int64_t>(shared_->options.connect_seconds * 1e9);
  shared_->poller.WakeBy(deadline_);
}

void OutStream::OnEvents(uint32_t events) {
  if (!link_->alive()) return;
  switch (state_) {
    case State::kConnecting:
      return FinishConnecting();
    case State::kHandshake:
      return ContinueHandshake();
    case State::kOpen:
      if ((events & ~uint32_t{EPOLLOUT}) != 0) LookForEnd();
      if ((events & EPOLLOUT) != 0) Pump();
      return;
    case State::kNew:
    case State::kClosed:
      return;
  }
}

void OutStream::FinishConnecting() {
  shared_->moved = true;
  if (const absl::Status status = ConnectResult(socket_.fd()); !status.ok()) {
    return Lose(fmt::format("cannot connect: {}", MessageOf(status)));
  }
  Identity own = shared_->identity;
  own.stream = static_cast<uint32_t>(number_);
  handshake_.emplace(own, /*connecting=*/true, link_->peer());
  if (const absl::Status status = handshake_->Start(socket_.fd()); !status.ok()) {
    return Lose(std::string(MessageOf(status)));
  }
  state_ = State::kHandshake;
  Want(EPOLLIN);
}

void OutStream::ContinueHandshake() {
  shared_->moved = true;
  const absl::Status status = handshake_->Continue(socket_.fd());
  if (absl::IsUnavailable(status)) return Lose(std::string(MessageOf(status)));
  if (!status.ok()) return link_->Break(status);
  if (!handshake_->done()) return;
  handshake_.reset();
  deadline_ = 0;
  state_ = State::kOpen;
  Pump();
}

// The peer says nothing on this connection, so what can be read is its end.
void OutStream::LookForEnd() {
  std::byte byte;
  const ssize_t count = recv(socket_.fd(), &byte, 1, 0);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  shared_->moved = true;
  if (count > 0) {
    return link_->Break(InvalidArgument("sent bytes on a connection that it should only read"));
  }
  Lose(count == 0 ? "closed the connection" : fmt::format("connection lost: {}", ErrnoText(errno)));
}

void OutStream::Push(OutFrame frame) {
  const bool first = queue_.empty();
  queue_.push_back(std::move(frame));
  // Otherwise the socket is full, or the stream not open yet: it goes on by itself.
  if (first) Pump();
}

void OutStream::Pump() {
  if (state_ != State::kOpen || !link_->alive()) return;
  size_t budget = kBurstBytes;
  while (budget > 0 && WriteOnce(&budget)) {
  }
  if (state_ != State::kOpen) return;
  const bool more = !queue_.empty() || source_->HasFrames(number_);
  Want(more ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

// One system call. False when there is nothing to write or the socket is full.
bool OutStream::WriteOnce(size_t* budget) {
  if (queue_.empty()) {
    OutFrame frame;
    if (!source_->NextFrame(number_, &frame)) return false;
    queue_.push_back(std::move(frame));
  }
  constexpr size_t kMaxParts = 32;
  iovec parts[kMaxParts];
  msghdr message = {};
  message.msg_iov = parts;
  size_t asked = 0;
  size_t skip = written_;
  const auto add = [&](ConstBytes bytes) {
    const size_t skipped = std::min(skip, bytes.size());
    skip -= skipped;
    if (skipped == bytes.size()) return;
    bytes = bytes.subspan(skipped);
    parts[message.msg_iovlen++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    asked += bytes.size();
  };
  for (const OutFrame& frame : queue_) {
    if (message.msg_iovlen + 2 > kMaxParts || asked >= kMaxPayload) break;
    add(frame.header);
    add(frame.body());
  }
  const ssize_t count = sendmsg(socket_.fd(), &message, MSG_NOSIGNAL);
  if (count < 0) {
    if (errno == EINTR) return true;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      Lose(fmt::format("connection lost: {}", ErrnoText(errno)));
    }
    return false;
  }
  shared_->moved = true;
  const size_t bytes = static_cast<size_t>(count);
  *budget -= std::min(*budget, bytes);
  Advance(bytes);
  return bytes == asked;
}

void OutStream::Advance(size_t bytes) {
  written_ += bytes;
  while (!queue_.empty() && written_ >= kHeaderBytes + queue_.front().body().size()) {
    written_ -= kHeaderBytes + queue_.front().body().size();
    const OutFrame frame = std::move(queue_.front());
    queue_.pop_front();
    source_->Written(frame);
  }
}

void OutStream::Want(uint32_t events) {
  if (events == wanted_) return;
  wanted_ = events;
  shared_->poller.Change(socket_.fd(), events, this);
}

void OutStream::Lose(const std::string& cause) {
  if (socket_.valid()) shared_->poller.Remove(socket_.fd());
  socket_.Close();
  deadline_ = 0;
  state_ = State::kClosed;
  link_->LoseConnection(cause);
}

void OutStream::Close(const absl::Status& status) {
  if (socket_.valid()) shared_->poller.Remove(socket_.fd());
  socket_.Close();
  deadline_ = 0;
  state_ = State::kClosed;
  for (OutFrame& frame : std::exchange(queue_, {})) {
    if (frame.request != nullptr && !status.ok()) frame.request->Done(status);
  }
}

}  // namespace tutti::net::tcp
