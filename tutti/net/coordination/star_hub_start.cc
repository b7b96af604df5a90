// The start of a job at rank 0. A rank connects through the door (star_door.h), sends its process
// id and fingerprint, and waits. When the last rank has joined, all get the welcome message at
// once, with the list of where each rank runs, and the start is over. If the timeout expires first,
// all ranks that have joined get the same list of missing ranks and reasons.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tutti/base/cancellation.h"
#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/coordination/star_hub.h"
#include "tutti/net/port/listen_at.h"

namespace tutti::net {
namespace {

constexpr int64_t kTellNanos = 200'000'000;
constexpr int64_t kLookNanos = 50'000'000;  // between looks for a cancellation
constexpr size_t kMaxListed = 16;

}  // namespace

using Type = ControlMessage::Type;

absl::StatusOr<std::unique_ptr<Star>> StarHub::Connect(const StarOptions& options) {
  const int64_t deadline = NowNanos() + static_cast<int64_t>(options.timeout_seconds * 1e9);
  TUTTI_ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> loop, EventLoop::Create("tutti-star"));
  std::unique_ptr<StarHub> hub(new StarHub(options, std::move(loop)));
  hub->peers_.resize(static_cast<size_t>(options.size));
  hub->peer(0).presence = Presence::kHere;
  hub->own_address_ = "127.0.0.1";
  if (options.size > 1) TUTTI_RETURN_IF_ERROR(hub->Listen(deadline));
  hub->places_[0] = fmt::format("host {}, pid {}", hub->own_address_, getpid());
  TUTTI_RETURN_IF_ERROR(hub->WaitForAll(deadline));
  if (options.size > 1) hub->port_ = ToString(Endpoint{hub->own_address_, hub->port_number_});
  return std::unique_ptr<Star>(std::move(hub));
}

absl::StatusOr<Socket> StarHub::OpenListener(int64_t deadline) const {
  if (options().listener >= 0) return Socket(options().listener);
  const std::string where = options().address.empty() ? "127.0.0.1:0" : options().address;
  const Cancellation* const cancellation = options().cancellation;
  absl::StatusOr<Socket> listener =
      ListenAt(where, {.deadline_nanos = deadline, .stopped = [cancellation] {
                         return cancellation != nullptr && cancellation->cancelled();
                       }});
  if (absl::IsCancelled(listener.status())) return cancellation->status();
  if (!listener.ok()) return WithPrefix(listener.status(), "rank 0: ");
  return listener;
}

absl::Status StarHub::Listen(int64_t deadline) {
  absl::StatusOr<Socket> listener = OpenListener(deadline);
  if (!listener.ok()) return listener.status();
  // Told at once: a rank that cannot be accepted would seem not to come.
  if (const int64_t left = DescriptorsLeft(); left >= 0 && left < size() - 1) {
    return WithPrefix(
        NoDescriptor(fmt::format("connections of {} ranks need {} descriptors, {} are left",
                                 size() - 1, size() - 1, left),
                     EMFILE),
        "rank 0: ");
  }
  TUTTI_ASSIGN_OR_RETURN(const Address bound, LocalAddress(listener->fd()));
  if (!bound.wildcard()) own_address_ = bound.host();
  port_number_ = bound.port();

  Identity own;
  own.job = options().job;
  own.token = options().token;
  own.rank = 0;
  own.size = size();
  own.generation = options().generation;
  own.purpose = Identity::Purpose::kControl;
  own.any_size = true;  // Join compares
  own.any_purpose = true;
  door_ = std::make_unique<StarDoor>(
      &loop(), own, *std::move(listener),
      StarDoor::Callbacks{
          .admit = [this](const Identity& peer, std::string* text) { return Admit(peer, text); },
          .join = [this](
                      const Identity& peer, const std::string& host, const ControlMessage& join,
                      std::unique_ptr<ControlLink>* link) { return Join(peer, host, join, link); },
          .refused =
              [this](int rank, const std::string& why) {
                if (complete_) return;
                if (rank > 0) {
                  peer(rank).trouble = "was refused: " + why;
                } else {
                  ++strangers_;
                  last_stranger_ = why;
                }
              },
          .exhausted =
              [this](int error) {
                shortage_ = MessageOf(NoDescriptor("rank 0 can accept no connection", error));
              }});
  TUTTI_RETURN_IF_ERROR(door_->Open());
  if (options().file.empty()) return absl::OkStatus();
  meeting_ = MeetingFile{ToString(bound), options().job, options().generation};
  return WriteMeetingFile(options().file, *meeting_);
}

void StarHub::Serve(Identity::Purpose purpose, Handler handler, Handshake::Admit admit) {
  TUTTI_CHECK(!port().empty());
  loop().Post([this, purpose, service = StarDoor::Service{std::move(handler), std::move(admit)}] {
    door_->Serve(purpose, service);
  });
}

absl::Status StarHub::WaitForAll(int64_t deadline) {
  loop().Post([this, deadline] {
    BeginIfComplete();
    if (complete_) return;
    loop().After(std::max<int64_t>(0, deadline - NowNanos()), [this] {
      if (complete_) return;
      GiveUpStarting(DeadlineExceeded("{} after {} s", MissingRanks(), options().timeout_seconds));
    });
    TellWhoIsMissing();
  });
  TUTTI_RETURN_IF_ERROR(loop().Start());
  const auto started = [this] { return started_.has_value(); };
  const Cancellation* const cancellation = options().cancellation;
  std::unique_lock lock(start_mutex_);
  while (cancellation != nullptr && !cancellation->cancelled() &&
         !start_changed_.wait_for(lock, std::chrono::nanoseconds(kLookNanos), started)) {
  }
  if (cancellation != nullptr && cancellation->cancelled() && !started()) {
    loop().Post([this, cancellation] {
      if (!complete_) GiveUpStarting(cancellation->status());
    });
  }
  start_changed_.wait(lock, started);
  return *started_;
}

Refusal StarHub::Admit(const Identity& identity, std::string* text) const {
  // One of a job of another size may have any rank: Join tells it what differs.
  if (identity.size != size()) return Refusal::kNone;
  if (peer(identity.rank).presence == Presence::kAbsent) return Refusal::kNone;
  *text = fmt::format("rank {} is taken by {}", identity.rank,
                      places_[static_cast<size_t>(identity.rank)]);
  return Refusal::kTaken;
}

absl::Status StarHub::Join(const Identity& identity, const std::string& host,
                           const ControlMessage& join, std::unique_ptr<ControlLink>* link) {
  const int rank = identity.rank;
  std::string taken;  // by one that was quicker since the handshake
  if (Admit(identity, &taken) != Refusal::kNone) return AlreadyExists("{}", taken);
  TUTTI_RETURN_IF_ERROR(CheckFingerprint(rank, join.texts));
  if (identity.size != size()) {
    return FailedPrecondition("rank {} is of a job of {} ranks, expected {}", rank, identity.size,
                              size());
  }
  if (const absl::StatusOr<Address> local = LocalAddress((*link)->fd());
      local.ok() && own_address_ == "127.0.0.1") {
    own_address_ = local->host();  // where it listens at every address, this is one that works
    places_[0] = fmt::format("host {}, pid {}", own_address_, getpid());
  }
  places_[static_cast<size_t>(rank)] = fmt::format("host {}, pid {}", host, join.number);
  peer(rank).presence = Presence::kHere;
  peer(rank).trouble.clear();
  peer(rank).link = std::move(*link);
  peer(rank).link->set_max_bytes(kMaxControlBytes);
  peer(rank).link->Redirect(
      {.message = [this, rank](ControlMessage message) { OnMessage(rank, std::move(message)); },
       .bad = [this, rank](const absl::Status& why) { OnBad(rank, why); },
       .closed = [this, rank](const std::string& how) { OnClosed(rank, how); }});
  BeginIfComplete();
  return absl::OkStatus();
}

absl::Status StarHub::CheckFingerprint(int rank, const std::vector<std::string>& lines) const {
  const auto differ = [&](std::string_view there, std::string_view here) {
    return FailedPrecondition(
        "rank {} is set up differently: it has {}, rank 0 has {}; all ranks must run the same "
        "program with the same settings",
        rank, there.substr(0, 512), here.substr(0, 512));
  };
  // Lines are compared by name, so that one too many is told as that, and not as the next one.
  const auto name_of = [](std::string_view line) { return line.substr(0, line.find('=')); };
  std::unordered_map<std::string_view, std::string_view> theirs;
  for (const std::string& line : lines) theirs.emplace(name_of(line), line);
  std::unordered_set<std::string_view> known;
  for (const std::string& here : options().fingerprint) {
    known.insert(name_of(here));
    const auto there = theirs.find(name_of(here));
    if (there == theirs.end()) return differ("nothing of that name", here);
    if (there->second != here) return differ(there->second, here);
  }
  for (const std::string& there : lines) {
    if (!known.contains(name_of(there))) return differ(there, "nothing of that name");
  }
  return absl::OkStatus();
}

void StarHub::BeginIfComplete() {
  for (const Peer& peer : peers_) {
    if (peer.presence != Presence::kHere) return;
  }
  complete_ = true;
  ControlMessage welcome;
  welcome.type = Type::kWelcome;
  welcome.texts = places_;
  SendToAll(welcome);
  for (const Peer& peer : peers_) {
    if (peer.link != nullptr) peer.link->set_last_heard(NowNanos());
  }
  loop().After(heartbeat_nanos(), [this] { Tick(); });
  const std::lock_guard lock(start_mutex_);
  started_ = absl::OkStatus();
  start_changed_.notify_all();
}

std::string StarHub::MissingRanks() const {
  std::vector<std::string> lines;
  size_t missing = 0;
  for (int rank = 0; rank < size(); ++rank) {
    if (peer(rank).presence == Presence::kHere || ++missing > kMaxListed) continue;
    const std::string& trouble = peer(rank).trouble;
    lines.push_back(
        fmt::format("rank {} {}", rank, trouble.empty() ? "has not connected" : trouble));
  }
  if (missing > kMaxListed) lines.push_back(fmt::format("{} more", missing - kMaxListed));
  if (strangers_ > 0) {
    lines.push_back(
        fmt::format("besides, {} connections that named no rank were refused, the last: {}",
                    strangers_, last_stranger_));
  }
  if (!shortage_.empty()) lines.push_back(shortage_);
  return fmt::format("{} of {} ranks of job '{}' are missing: {}", missing, size(), options().job,
                     fmt::join(lines, "; "));
}

void StarHub::TellWhoIsMissing() {
  if (complete_) return;
  ControlMessage waiting;
  waiting.type = Type::kWaiting;
  waiting.texts = {MissingRanks()};
  SendToAll(waiting);
  loop().After(kTellNanos, [this] { TellWhoIsMissing(); });
}

void StarHub::GiveUpStarting(const absl::Status& status) {
  SendToAll(ControlMessage::Of(Type::kRefused, kNoRank, status));
  const std::lock_guard lock(start_mutex_);
  started_ = status;
  start_changed_.notify_all();
}

}  // namespace tutti::net
