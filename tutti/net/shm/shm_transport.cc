#include "tutti/net/shm/shm_transport.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/net/memory/memory_transport.h"
#include "tutti/net/shm/introduction.h"
#include "tutti/net/shm/packet_socket.h"
#include "tutti/net/shm/shm_space.h"
#include "tutti/net/socket.h"

// How processes of one host find together. Every rank listens on a Unix socket; of a pair the lower
// rank connects and introduces itself, the higher one answers, and each packet brings the sender's
// mailbox along. All sockets are served at once, so that nobody waits for a third. What does not
// fit is refused with a line in the log, and the others go on.
namespace tutti::net {
namespace shm {
namespace {

constexpr size_t kMostStrangers = 128;  // connections that have not said anything yet

class Meeting {
 public:
  Meeting(const FileDescriptor& listener, const ShmOptions& options)
      : listener_(listener), options_(options) {}

  absl::StatusOr<std::unique_ptr<Transport>> Run();

 private:
  absl::Status Prepare();
  absl::Status ConnectToHigher();
  absl::Status Serve();
  absl::Status ReadAnswer(size_t peer);
  absl::Status ReadStranger(FileDescriptor& socket, bool* known);
  bool Introduce(const FileDescriptor& socket, int to);
  absl::Status ReadIntroduction(const FileDescriptor& socket, int from, Introduction* got,
                                SharedPages* mailbox, bool* later);
  void Admit(FileDescriptor socket, const Introduction& got, SharedPages mailbox);
  absl::StatusOr<std::unique_ptr<Transport>> Finish();

  // By rank; what is known of one so far.
  struct Party {
    bool wanted = false;  // on this host, and not this rank
    EndpointName name;
    FileDescriptor socket;  // of a higher rank, that has not answered yet
    bool admitted = false;
  };

  const FileDescriptor& listener_;
  const ShmOptions& options_;
  std::vector<int> local_;  // ranks of this host
  std::vector<Party> parties_;
  std::vector<FileDescriptor> strangers_;
  Secret secret_{};
  FileDescriptor mailbox_file_;
  SharedPages mailbox_pages_;
  memory::Mailbox mailbox_;
  cpu_set_t cores_{};  // of all ranks
  std::vector<ShmPeer> peers_;
  std::vector<memory::HostRanks::Rank> host_ranks_;
};

absl::Status Meeting::Prepare() {
  const int rank = options_.rank;
  if (options_.size < 1 || rank < 0 || rank >= options_.size ||
      options_.names.size() != static_cast<size_t>(options_.size)) {
    return InvalidArgument("shm: rank {} of {}, with the names of {} endpoints", rank,
                           options_.size, options_.names.size());
  }
  parties_.resize(options_.names.size());
  for (int peer = 0; peer < options_.size; ++peer) {
    const std::string& text = options_.names[static_cast<size_t>(peer)];
    if (text.empty() && peer != rank) continue;
    auto name = ParseEndpointName(text);
    if (!name) return InvalidArgument("shm: the endpoint of rank {} is malformed", peer);
    local_.push_back(peer);
    if (peer == rank) secret_ = name->secret;
    Party& party = parties_[static_cast<size_t>(peer)];
    party.wanted = peer != rank;
    party.name = *std::move(name);
  }
  const int ranks = static_cast<int>(local_.size());
  const uint64_t cells = memory::Mailbox::CellsFor(ranks);
  TUTTI_ASSIGN_OR_RETURN(
      mailbox_pages_, SharedPages::Create(memory::Mailbox::BytesFor(ranks, cells), &mailbox_file_));
  mailbox_ = memory::Mailbox::Format(mailbox_pages_.bytes(), ranks, cells);
  host_ranks_.push_back({.rank = rank, .mailbox = mailbox_});
  if (sched_getaffinity(0, sizeof(cores_), &cores_) != 0) CPU_ZERO(&cores_);
  return absl::OkStatus();
}

bool Meeting::Introduce(const FileDescriptor& socket, int to) {
  Introduction own;
  own.from = options_.rank;
  own.to = to;
  own.size = options_.size;
  own.pid = getpid();
  own.secret = parties_[static_cast<size_t>(to)].name.secret;
  own.mailbox_bytes = mailbox_pages_.bytes().size();
  if (sched_getaffinity(0, sizeof(own.cores), &own.cores) != 0) CPU_ZERO(&own.cores);
  return SendPacket(socket, std::as_bytes(std::span(&own, 1)), mailbox_file_.get()) ==
         Transfer::kDone;
}

absl::Status Meeting::ConnectToHigher() {
  for (size_t peer = static_cast<size_t>(options_.rank) + 1; peer < parties_.size(); ++peer) {
    Party& party = parties_[peer];
    if (!party.wanted || party.admitted || party.socket.ok()) continue;
    auto socket = ConnectTo(party.name.socket);
    if (!socket.ok()) {
      if (absl::IsUnavailable(socket.status())) continue;  // a full listener: again, in a while
      return WithPrefix(socket.status(), fmt::format("shm: rank {}: ", peer));
    }
    if (Introduce(*socket, static_cast<int>(peer))) party.socket = *std::move(socket);
  }
  return absl::OkStatus();
}

// Reads the introduction of rank `from` (kNoRank: of any lower one), and opens its mailbox. The
// error is what is wrong with it, or RESOURCE_EXHAUSTED: with this rank.
absl::Status Meeting::ReadIntroduction(const FileDescriptor& socket, int from, Introduction* got,
                                       SharedPages* mailbox, bool* later) {
  size_t bytes = 0;
  FileDescriptor file;
  const Transfer result =
      ReceivePacket(socket, std::as_writable_bytes(std::span(got, 1)), &bytes, &file);
  *later = result == Transfer::kLater;
  if (*later) return absl::OkStatus();
  if (result == Transfer::kNoDescriptor)
    return NoDescriptor("its mailbox cannot be opened", EMFILE);
  if (result == Transfer::kClosed) return Unavailable("it closed the connection");
  TUTTI_ASSIGN_OR_RETURN(const Credentials credentials, CredentialsOf(socket));
  if (credentials.user != geteuid()) {
    return Unavailable("it runs as user {}, this rank as {}", credentials.user, geteuid());
  }
  if (bytes != sizeof(*got)) return Unavailable("it sent {} bytes, not an introduction", bytes);
  const std::string mistake = Mistake(*got, from, options_.rank, options_.size, secret_);
  if (!mistake.empty()) return Unavailable("{}", mistake);
  if (!parties_[static_cast<size_t>(got->from)].wanted) {
    return Unavailable("it says that it is rank {}, which is on another host", got->from);
  }
  if (parties_[static_cast<size_t>(got->from)].admitted) {
    return Unavailable("rank {} is connected already", got->from);
  }
  TUTTI_ASSIGN_OR_RETURN(*mailbox, SharedPages::Open(file, got->mailbox_bytes));
  return absl::OkStatus();
}

void Meeting::Admit(FileDescriptor socket, const Introduction& got, SharedPages mailbox) {
  mailbox.Populate();
  parties_[static_cast<size_t>(got.from)].admitted = true;
  CPU_OR(&cores_, &cores_, &got.cores);
  peers_.push_back({.rank = got.from,
                    .pid = got.pid,
                    .socket = std::move(socket),
                    .mailbox = std::move(mailbox)});
}

absl::Status Meeting::ReadAnswer(size_t peer) {
  Party& party = parties_[peer];
  Introduction got;
  SharedPages mailbox;
  bool later = false;
  const absl::Status read =
      ReadIntroduction(party.socket, static_cast<int>(peer), &got, &mailbox, &later);
  if (later) return absl::OkStatus();
  const std::string where = fmt::format("shm: rank {}: ", peer);
  if (absl::IsResourceExhausted(read)) return WithPrefix(read, where);
  // It was this rank that asked, and nobody else can answer.
  if (!read.ok()) return Unavailable("{}{}", where, MessageOf(read));
  Admit(std::move(party.socket), got, std::move(mailbox));
  return absl::OkStatus();
}

// `known`: it is a stranger no longer, but a peer, or refused.
absl::Status Meeting::ReadStranger(FileDescriptor& socket, bool* known) {
  Introduction got;
  SharedPages mailbox;
  bool later = false;
  absl::Status read = ReadIntroduction(socket, kNoRank, &got, &mailbox, &later);
  *known = !later;
  if (later) return absl::OkStatus();
  if (absl::IsResourceExhausted(read)) return WithPrefix(read, "shm: ");
  if (read.ok() && !Introduce(socket, got.from)) read = Unavailable("it takes no answer");
  if (!read.ok()) {
    const auto credentials = CredentialsOf(socket);
    Log(LogLevel::kWarning, "shm: refused a connection of pid {}: {}",
        credentials.ok() ? credentials->pid : 0, MessageOf(read));
    return absl::OkStatus();
  }
  Admit(std::move(socket), got, std::move(mailbox));
  return absl::OkStatus();
}

// Waits a while for news on all sockets, and serves them.
absl::Status Meeting::Serve() {
  std::vector<pollfd> sockets = {{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
  for (const FileDescriptor& stranger : strangers_) {
    sockets.push_back({.fd = stranger.get(), .events = POLLIN, .revents = 0});
  }
  const size_t first_party = sockets.size();
  for (const Party& party : parties_) {
    sockets.push_back({.fd = party.socket.get(), .events = POLLIN, .revents = 0});
  }
  if (poll(sockets.data(), sockets.size(), 10) <= 0) return absl::OkStatus();
  for (size_t peer = 0; peer < parties_.size(); ++peer) {
    if (sockets[first_party + peer].revents != 0) TUTTI_RETURN_IF_ERROR(ReadAnswer(peer));
  }
  std::vector<FileDescriptor> still;
  for (size_t i = 0; i < strangers_.size(); ++i) {
    bool known = false;
    if (sockets[1 + i].revents != 0) TUTTI_RETURN_IF_ERROR(ReadStranger(strangers_[i], &known));
    if (!known) still.push_back(std::move(strangers_[i]));
  }
  strangers_ = std::move(still);
  if (sockets[0].revents != 0) {
    if (strangers_.size() >= kMostStrangers) {
      Log(LogLevel::kWarning, "shm: {} connections say nothing; closed the oldest",
          strangers_.size());
      strangers_.erase(strangers_.begin());
    }
    auto socket = AcceptFrom(listener_);
    if (!socket.ok()) return WithPrefix(socket.status(), "shm: ");
    if (socket->ok()) strangers_.push_back(*std::move(socket));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Transport>> Meeting::Run() {
  TUTTI_RETURN_IF_ERROR(Prepare());
  const int64_t end = NowNanos() + static_cast<int64_t>(options_.timeout_seconds * 1e9);
  while (peers_.size() + 1 < local_.size()) {
    TUTTI_RETURN_IF_ERROR(ConnectToHigher());
    TUTTI_RETURN_IF_ERROR(Serve());
    if (NowNanos() < end) continue;
    std::vector<int> missing;
    for (int rank : local_) {
      const Party& party = parties_[static_cast<size_t>(rank)];
      if (party.wanted && !party.admitted) missing.push_back(rank);
    }
    return DeadlineExceeded("shm: after {} s rank {} still waits for rank{} {}",
                            options_.timeout_seconds, options_.rank, missing.size() > 1 ? "s" : "",
                            fmt::join(missing, ", "));
  }
  return Finish();
}

absl::StatusOr<std::unique_ptr<Transport>> Meeting::Finish() {
  for (const ShmPeer& peer : peers_) {
    auto mailbox = memory::Mailbox::Open(peer.mailbox.bytes(), static_cast<int>(local_.size()));
    if (!mailbox.ok()) {
      return WithPrefix(mailbox.status(), fmt::format("shm: rank {}: ", peer.rank));
    }
    host_ranks_.push_back({.rank = peer.rank, .mailbox = *mailbox});
  }
  std::ranges::sort(host_ranks_, {}, &memory::HostRanks::Rank::rank);
  const int cores = CPU_COUNT(&cores_);
  memory::HostRanks ranks{.rank = options_.rank,
                          .size = options_.size,
                          .own = mailbox_,
                          .reachable = std::move(host_ranks_),
                          .crowded = static_cast<int>(local_.size()) > std::max(cores, 1)};
  auto space =
      std::make_unique<ShmSpace>(options_.rank, std::move(mailbox_pages_), std::move(peers_));
  return std::make_unique<memory::MemoryTransport>(std::move(space), ranks);
}

}  // namespace
}  // namespace shm

absl::StatusOr<std::unique_ptr<ShmEndpoint>> ShmEndpoint::Open() {
  const shm::EndpointName name = shm::MakeEndpointName();
  TUTTI_ASSIGN_OR_RETURN(shm::FileDescriptor listener, shm::ListenOn(name.socket));
  std::unique_ptr<ShmEndpoint> endpoint(new ShmEndpoint);
  endpoint->name_ = shm::ToString(name);
  endpoint->listener_ = std::move(listener);
  return endpoint;
}

bool ShmEndpoint::SameHost(std::string_view one, std::string_view other) {
  const auto first = shm::ParseEndpointName(one);
  const auto second = shm::ParseEndpointName(other);
  return first && second && first->host == second->host;
}

absl::StatusOr<std::unique_ptr<Transport>> ShmTransport::Connect(std::unique_ptr<ShmEndpoint> own,
                                                                 const ShmOptions& options) {
  return shm::Meeting(own->listener_, options).Run();
}

}  // namespace tutti::net
