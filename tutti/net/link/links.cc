#include "tutti/net/link/links.h"

#include <fmt/core.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/net/link/joining.h"
#include "tutti/net/link/stream_link.h"
#include "tutti/net/shm/introduction.h"

namespace tutti::net {

uint64_t MakeIncarnation() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto millis =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  return millis << 20 | (std::random_device()() & 0xfffff);
}

namespace link {
namespace {

constexpr size_t kScratchBytes = size_t{256} << 10;
constexpr int64_t kLongestEnd = 2'500'000'000;

bool IsClient(const std::string& task) { return task == kClientTask; }

// Tasks have one link at a time; clients share a name, and have one for each process.
std::string KeyOf(const std::string& task, uint64_t incarnation) {
  return IsClient(task) ? fmt::format("{}/{}", task, incarnation) : task;
}

class LinkTable final : public Links {
 public:
  LinkTable(LinksOptions options, LinkEvents* events) : context_(std::make_shared<Context>()) {
    context_->options = std::move(options);
    context_->events = events;
    context_->memory = context_->options.memory != nullptr ? context_->options.memory
                                                           : std::make_shared<SharedMemory>();
    context_->scratch.resize(kScratchBytes);
    context_->check = [this](const TaskIdentity& peer) { return Check(peer); };
    context_->gone = [this](StreamLink* link) { Gone(link); };
  }
  ~LinkTable() override;
  absl::Status Open();

  void Serve(Port* port) override;
  std::shared_ptr<Link> To(const std::string& task, const std::string& address,
                           uint64_t incarnation) override;
  std::vector<std::shared_ptr<Link>> All() const override;
  const std::shared_ptr<SharedMemory>& memory() const override { return context_->memory; }
  uint64_t refused() const override { return refused_; }

 private:
  std::shared_ptr<StreamLink> Find(const std::string& key) const;
  absl::Status Check(const TaskIdentity& peer);
  Refusal Admit(const Identity& peer, std::string* why);
  Refusal AdmitLater(const StreamLink& first, const Identity& peer, std::string* why);
  void Adopt(const Identity& peer, Socket socket);
  void Join(const std::string& secret, Socket socket);
  void Add(const std::string& key, const std::shared_ptr<StreamLink>& link);
  void Gone(StreamLink* link);
  void Tick();
  // Whether the connection that this side makes stays when both sides make one.
  bool OwnStays(const Identity& peer) const {
    const Identity& own = context_->options.identity;
    return std::pair(own.task, own.incarnation) < std::pair(peer.task, peer.incarnation);
  }

  std::shared_ptr<Context> context_;
  std::unique_ptr<JoiningPlace> joining_;
  std::atomic<uint64_t> refused_ = 0;
  bool ticking_ = false;  // of the loop's thread

  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::map<std::string, std::shared_ptr<StreamLink>> links_;  // by KeyOf
  std::set<std::shared_ptr<StreamLink>> alive_;               // those, and older ones that end
  std::map<std::string, uint64_t> newest_;                    // incarnation, by task
  // Tasks of which a later process has come, and it is not known yet whether the first lives.
  struct Doubt {
    uint64_t first = 0;  // incarnation
    int64_t since = 0;
  };
  std::map<std::string, Doubt> doubts_;
};

absl::Status LinkTable::Open() {
  TUTTI_ASSIGN_OR_RETURN(context_->loop,
                         EventLoop::Create("tutti-links", context_->options.spin_nanos));
  const shm::EndpointName name = shm::MakeEndpointName();
  context_->host = name.host;
  if (context_->options.shared_memory) {
    joining_ = std::make_unique<JoiningPlace>(
        context_->loop.get(),
        [this](const std::string& secret, Socket socket) { Join(secret, std::move(socket)); });
    TUTTI_RETURN_IF_ERROR(joining_->Open(name.socket));
    context_->joining_socket = name.socket;
  }
  return context_->loop->Start();
}

LinkTable::~LinkTable() {
  if (context_->loop == nullptr) return;
  const absl::Status reason = Unavailable("{} is shutting down", context_->options.identity.task);
  {
    std::unique_lock lock(mutex_);
    for (const auto& link : alive_) link->Close(reason);
    ended_.wait_for(lock, std::chrono::nanoseconds(kLongestEnd), [this] { return alive_.empty(); });
  }
  context_->loop->Stop([&] {
    while (true) {
      std::shared_ptr<StreamLink> link;
      {
        const std::lock_guard lock(mutex_);
        if (alive_.empty()) break;
        link = *alive_.begin();
      }
      link->Break(reason);
    }
    joining_.reset();
  });
}

std::shared_ptr<StreamLink> LinkTable::Find(const std::string& key) const {
  const auto found = links_.find(key);
  return found == links_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<Link>> LinkTable::All() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Link>> all;
  for (const auto& [key, link] : links_) all.push_back(link);
  return all;
}

void LinkTable::Add(const std::string& key, const std::shared_ptr<StreamLink>& link) {
  links_[key] = link;
  alive_.insert(link);
}

void LinkTable::Gone(StreamLink* link) {
  const std::lock_guard lock(mutex_);
  std::erase_if(links_, [link](const auto& entry) { return entry.second.get() == link; });
  std::erase_if(alive_, [link](const auto& entry) { return entry.get() == link; });
  ended_.notify_all();
}

// Opening ----------------------------------------------------------------------------------------

std::shared_ptr<Link> LinkTable::To(const std::string& task, const std::string& address,
                                    uint64_t incarnation) {
  const std::string key = KeyOf(task, incarnation);
  std::shared_ptr<StreamLink> older, made;
  absl::Status refused;
  {
    const std::lock_guard lock(mutex_);
    const std::shared_ptr<StreamLink> existing = Find(key);
    if (existing != nullptr) {
      existing->Expect(incarnation);
      const uint64_t there = existing->incarnation();
      if (incarnation == 0 || there == 0 || there == incarnation) return existing;
      if (there < incarnation) older = existing;
    }
    const auto newest = newest_.find(task);
    const uint64_t known = newest == newest_.end() ? 0 : newest->second;
    made = std::make_shared<StreamLink>(context_, task, address, incarnation);
    if (task == context_->options.identity.task && !IsClient(task)) {
      refused = InvalidArgument("{} has no link to itself", task);
      alive_.insert(made);
    } else if (incarnation != 0 && incarnation < known) {
      refused = Aborted("{} ({}): it restarted: incarnation {} is there, {} was expected", task,
                        address, known, incarnation);
      alive_.insert(made);
    } else {
      Add(key, made);
    }
  }
  context_->loop->Post([this, older, made, refused, task, incarnation] {
    if (older != nullptr) {
      older->Break(Aborted("{}: it restarted as incarnation {}", older->Describe(), incarnation));
    }
    if (!refused.ok()) return made->Break(refused);
    if (!std::exchange(ticking_, true)) Tick();
    // The peer's connection may have come first.
    if (made->state() == StreamLink::State::kOpening) made->StartDialing();
  });
  return made;
}

absl::Status LinkTable::Check(const TaskIdentity& peer) {
  if (IsClient(peer.task)) return absl::OkStatus();
  const std::lock_guard lock(mutex_);
  uint64_t& newest = newest_[peer.task];
  if (peer.incarnation < newest) {
    return Aborted("incarnation {} answered, but {} is known already", peer.incarnation, newest);
  }
  newest = peer.incarnation;
  return absl::OkStatus();
}

void LinkTable::Serve(Port* port) {
  port->Serve(
      Identity::Purpose::kLink,
      [this](const Identity& peer, Socket socket) {
        auto shared = std::make_shared<Socket>(std::move(socket));
        context_->loop->Post([this, peer, shared] { Adopt(peer, std::move(*shared)); });
      },
      [this](const Identity& peer, std::string* why) { return Admit(peer, why); });
}

// Asked on the port's thread, so that a peer is told why; Adopt decides.
Refusal LinkTable::Admit(const Identity& peer, std::string* why) {
  const std::lock_guard lock(mutex_);
  const auto newest = newest_.find(peer.task);
  if (newest != newest_.end() && peer.incarnation < newest->second) {
    ++refused_;
    *why = fmt::format(
        "incarnation {} of {} is over: it restarted as {}; if this is the newer process, the clock "
        "of its host is behind: set it, and start the task again",
        peer.incarnation, peer.task, newest->second);
    return Refusal::kIncarnation;
  }
  const std::shared_ptr<StreamLink> existing = Find(KeyOf(peer.task, peer.incarnation));
  if (existing == nullptr) return Refusal::kNone;
  const StreamLink::State state = existing->state();
  if (existing->incarnation() < peer.incarnation) {
    const bool stands = existing->incarnation() != 0 && state == StreamLink::State::kOpen;
    return stands && context_->options.first_stays ? AdmitLater(*existing, peer, why)
                                                   : Refusal::kNone;
  }
  if (state == StreamLink::State::kOpen || state == StreamLink::State::kClosing) {
    *why = fmt::format("{} has a link to {} already", context_->options.identity.task, peer.task);
    return Refusal::kNotAdmitted;
  }
  if (existing->dial_in_handshake() && OwnStays(peer)) {
    *why = fmt::format("{} is opening the link from its side", context_->options.identity.task);
    return Refusal::kNotAdmitted;
  }
  return Refusal::kNone;
}

// The task has restarted, and the end of the first process was not seen yet, or it has two
// processes. Both ends of a link send signs of life several times in half of the silence that they
// bear, so the later process is asked to try again for so long. REQUIRES: mutex_ is held.
Refusal LinkTable::AdmitLater(const StreamLink& first, const Identity& peer, std::string* why) {
  const auto bears = static_cast<int64_t>(context_->options.silence_seconds * 1e9);
  const int64_t now = NowNanos();
  Doubt& doubt = doubts_[peer.task];
  if (doubt.first != first.incarnation() || now - doubt.since > bears) {
    doubt = {.first = first.incarnation(), .since = now};
  }
  // What came right after the question may have been sent before the first process ended.
  if (first.last_heard() > doubt.since + bears / 40) {
    doubts_.erase(peer.task);
    ++refused_;
    *why = fmt::format(
        "{} is taken by another process, {} (incarnation {}), which lives; end that one, or start "
        "this one as another task",
        peer.task, first.Describe(), first.incarnation());
    return Refusal::kTaken;
  }
  if (now - doubt.since > bears / 2) {
    doubts_.erase(peer.task);
    return Refusal::kNone;
  }
  *why = fmt::format("it is asked whether another process of {} lives", peer.task);
  return Refusal::kNotAdmitted;
}

void LinkTable::Adopt(const Identity& peer, Socket socket) {
  const std::string key = KeyOf(peer.task, peer.incarnation);
  std::shared_ptr<StreamLink> link, older;
  {
    const std::lock_guard lock(mutex_);
    link = Find(key);
    if (link != nullptr && link->incarnation() != 0 && link->incarnation() < peer.incarnation) {
      older = std::exchange(link, nullptr);
    }
    if (link != nullptr) {
      // A connection that is not taken is closed; the peer tries again where it needs to.
      const StreamLink::State state = link->state();
      const bool open = state != StreamLink::State::kOpening && state != StreamLink::State::kHello;
      const bool own_is_made =
          state == StreamLink::State::kHello ? link->dialled() : link->dial_in_handshake();
      if (open || (own_is_made && OwnStays(peer))) return;
    } else {
      const absl::StatusOr<Address> from = PeerAddress(socket.fd());
      link = std::make_shared<StreamLink>(context_, peer.task,
                                          from.ok() ? ToString(*from) : "unknown", 0);
      Add(key, link);
    }
  }
  if (older != nullptr) {
    older->Break(
        Aborted("{}: it restarted as incarnation {}", older->Describe(), peer.incarnation));
  }
  if (!std::exchange(ticking_, true)) Tick();
  link->Connected(peer, std::move(socket), /*dialled=*/false);
}

void LinkTable::Join(const std::string& secret, Socket socket) {
  std::shared_ptr<StreamLink> found;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& link : alive_) {
      if (!link->secret().empty() && link->secret() == secret) found = link;
    }
  }
  if (found != nullptr) found->Joined(std::move(socket));
}

// Several times in the time after which a silent peer is lost; not at all without links.
void LinkTable::Tick() {
  std::vector<std::shared_ptr<StreamLink>> alive;
  {
    const std::lock_guard lock(mutex_);
    alive.assign(alive_.begin(), alive_.end());
  }
  ticking_ = !alive.empty();
  if (!ticking_) return;
  for (const auto& link : alive) link->Tick(context_->loop->now());
  context_->loop->After(static_cast<int64_t>(context_->options.silence_seconds * 1e9 / 8),
                        [this] { Tick(); });
}

}  // namespace
}  // namespace link

absl::StatusOr<std::unique_ptr<Links>> Links::Create(LinksOptions options, LinkEvents* events) {
  const Identity& own = options.identity;
  if (own.task.empty() || own.task.size() > kMaxTaskBytes || own.job.size() > kMaxJobBytes) {
    return InvalidArgument(
        "task name of {} bytes and job name of {}; expected 1 to {} and at most {}",
        own.task.size(), own.job.size(), kMaxTaskBytes, kMaxJobBytes);
  }
  if (options.window_bytes == 0 || !(options.silence_seconds > 0)) {
    return InvalidArgument("a window of {} bytes and silence of {} s; both must be positive",
                           options.window_bytes, options.silence_seconds);
  }
  auto table = std::make_unique<link::LinkTable>(std::move(options), events);
  TUTTI_RETURN_IF_ERROR(table->Open());
  return table;
}

}  // namespace tutti::net
