#include "tutti/net/tcp/link.h"

#include <algorithm>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/tcp/shared.h"

namespace tutti::net::tcp {
namespace {

// After a peer has gone: how long without a byte until what has not come is given up.
constexpr int64_t kGraceNanos = 500'000'000;

// Stream 0 has many small frames, the others few large ones.
constexpr size_t kControlReadAhead = size_t{16} << 10;
constexpr size_t kBulkReadAhead = size_t{1} << 10;

// Of what a peer may make this rank keep, half is for messages that came at once, the other for
// announcements and short messages, which are small.
message::Limits LimitsOf(const TcpOptions& options) {
  return {.rank = options.rank,
          .eager_bytes = kEagerBytes,
          .window = options.max_kept_bytes / 2,
          .kept_bytes = options.max_kept_bytes,
          .invites_early = true};
}

}  // namespace

InStream::InStream(Shared* shared, Link* link, Socket socket, uint32_t number)
    : shared_(shared),
      link_(link),
      socket_(std::move(socket)),
      number_(number),
      reader_(number == 0 ? kControlReadAhead : kBulkReadAhead) {}

InStream::~InStream() { Close(absl::OkStatus()); }

void InStream::OnEvents(uint32_t /*events*/) {
  if (!link_->alive() || closed()) return;
  const FrameReader::Outcome outcome = reader_.Read(socket_.fd(), kBurstBytes, this);
  if (outcome.moved > 0) {
    shared_->moved = true;
    link_->NoteRead();
  }
  if (!outcome.status.ok()) return link_->Break(outcome.status);
  if (!outcome.closed) return;
  shared_->moved = true;
  shared_->poller.Remove(socket_.fd());
  socket_.Close();
  if (outcome.error != 0) {
    link_->LoseConnection(fmt::format("connection lost: {}", ErrnoText(outcome.error)));
  } else {
    link_->LoseConnection(reader_.inside_frame() ? "closed the connection in the middle of a frame"
                                                 : "closed the connection");
  }
}

absl::Status InStream::BeginFrame(const FrameHeader& header, std::byte** target) {
  if (!link_->alive()) return link_->status();
  return link_->in().BeginFrame(header, &landing_, target);
}

absl::Status InStream::EndFrame(const FrameHeader& header, std::byte* payload) {
  if (!link_->alive()) return link_->status();
  return link_->in().EndFrame(header, &landing_, payload);
}

void InStream::Close(const absl::Status& status) {
  if (socket_.valid()) shared_->poller.Remove(socket_.fd());
  socket_.Close();
  landing_.region = nullptr;
  link_->engine().receiver.Abandon(&landing_.eager, status);
}

Link::Link(Shared* shared, int peer)
    : shared_(shared),
      peer_(peer),
      out_(shared, this),
      engine_(&out_, &shared->stash, LimitsOf(shared->options)),
      in_(shared, this, &out_, &engine_) {}

void Link::Send(Tag tag, ConstBytes data, Request* request) {
  if (absl::Status status = engine_.sender.Send(tag, data, request); !status.ok()) Break(status);
}

void Link::Receive(Tag tag, std::byte* destination, size_t bytes, Request* request) {
  const absl::Status status = engine_.receiver.Receive(tag, destination, bytes, request);
  if (!status.ok()) Break(status);
}

absl::Status Link::SetEndpoint(std::string_view endpoint) {
  TUTTI_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(endpoint));
  if (parsed.port == 0) return InvalidArgument("'{}' has port 0; expected 1 to 65535", endpoint);
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Address> addresses, Resolve(parsed));
  endpoint_ = endpoint;
  // Towards itself a host uses the very address that is asked for.
  const absl::StatusOr<std::string> own = AddressTowards(addresses.front());
  on_this_host_ = own.ok() && *own == addresses.front().host();
  out_.SetAddress(addresses.front(), on_this_host_);
  return absl::OkStatus();
}

std::string Link::Describe() const { return fmt::format("rank {} ({}, tcp)", peer_, endpoint_); }

Refusal Link::Admit(uint32_t stream, std::string* why) const {
  if (!alive() || losing_) {
    *why = fmt::format("the link to rank {} is broken", peer_);
    return Refusal::kNotAdmitted;
  }
  if (stream > uint32_t{kMaxTcpStreams}) {
    *why = fmt::format("stream {}, expected 0 to {}", stream, kMaxTcpStreams);
    return Refusal::kNotAdmitted;
  }
  const bool taken = std::any_of(in_streams_.begin(), in_streams_.end(),
                                 [&](const auto& other) { return other->number() == stream; });
  if (taken) {
    *why = fmt::format("rank {} has stream {} already", peer_, stream);
    return Refusal::kTaken;
  }
  return Refusal::kNone;
}

absl::Status Link::Adopt(Socket socket, uint32_t stream) {
  auto& added = in_streams_.emplace_back(
      std::make_unique<InStream>(shared_, this, std::move(socket), stream));
  return shared_->poller.Add(added->fd(), EPOLLIN, added.get());
}

void Link::Break(const absl::Status& status) {
  if (!alive()) return;
  status_ = WithPrefix(status, Describe() + ": ");
  shared_->breaking.push_back(this);
  // Nobody may be making progress: let a sleeper see to it.
  shared_->poller.Wake();
}

bool Link::AllRead() const {
  return std::all_of(in_streams_.begin(), in_streams_.end(),
                     [](const auto& stream) { return stream->closed(); });
}

void Link::LoseConnection(std::string_view cause) {
  if (!alive()) return;
  if (!losing_) {
    losing_ = true;
    cause_ = cause;
    last_read_ = NowNanos();
    shared_->poller.WakeBy(last_read_ + kGraceNanos);
  }
  if (AllRead()) GiveUp();
}

void Link::GiveUp() {
  lost_ = true;
  Break(Unavailable("{}", cause_));
}

void Link::NoteRead() {
  if (losing_) last_read_ = NowNanos();
}

void Link::Withdraw(const message::Region& region) {
  const bool reading = std::any_of(in_streams_.begin(), in_streams_.end(),
                                   [&](const auto& stream) { return stream->Uses(region); });
  if (!reading && !out_.Uses(region)) return;
  Break(FailedPrecondition("was at registered memory when it was given back"));
}

void Link::CheckDeadlines(int64_t now) {
  if (!alive()) return;
  if (losing_) {
    if (now - last_read_ >= kGraceNanos) return GiveUp();
    shared_->poller.WakeBy(last_read_ + kGraceNanos);
  }
  if (out_.Overdue(now) != nullptr) {
    LoseConnection(
        fmt::format("cannot connect: no answer for {} s", shared_->options.connect_seconds));
  }
}

void Link::Close(const absl::Status& status) {
  status_ = status;
  out_.Close(status);
  engine_.Close(status);
  if (!lost_) engine_.receiver.DropKept();
  for (const auto& stream : in_streams_) stream->Close(status);
  in_streams_.clear();
}

}  // namespace tutti::net::tcp
