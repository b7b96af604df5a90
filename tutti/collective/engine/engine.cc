#include "tutti/collective/engine/engine.h"

#include <algorithm>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/collective/algorithms/algorithm.h"
#include "tutti/collective/engine/check_call.h"

namespace tutti::collective {
namespace {

// How far this rank has come is told this often, and whenever it waits.
constexpr uint64_t kTellEvery = 16;
// Heavy work between two looks at the links: about 20 us.
constexpr int64_t kSliceBytes = int64_t{256} << 10;

// Gives memory back under the lock of the links that it came from.
class GuardedMemory final : public net::RegisteredMemory {
 public:
  GuardedMemory(std::shared_ptr<Links> links, std::unique_ptr<net::RegisteredMemory> memory)
      : links_(std::move(links)), memory_(std::move(memory)) {}
  ~GuardedMemory() override {
    const std::lock_guard lock(links_->mutex);
    memory_.reset();
  }
  net::Bytes bytes() const override { return memory_->bytes(); }
  net::MemoryKey key() const override { return memory_->key(); }

 private:
  std::shared_ptr<Links> links_;
  std::unique_ptr<net::RegisteredMemory> memory_;
};

}  // namespace

Engine::Engine(std::unique_ptr<net::Transport> transport, Control* control, double late_seconds)
    : links_(std::make_shared<Links>()),
      transport_(transport.get()),
      control_(control),
      rank_(transport->rank()),
      size_(transport->size()),
      handles_(HandlePool::Create()),
      late_(transport_, control, static_cast<int64_t>(late_seconds * 1e9)),
      scratch_(transport_),
      open_({.transport = transport_, .scratch = &scratch_, .runnable = &runnable_}, size_),
      activity_(size_),
      failure_(size_),
      driver_(&links_->mutex, transport_, this) {
  links_->transport = std::move(transport);
  start_status_ = driver_.StartService();
}

Engine::~Engine() {
  Stop();
  handles_->Release();
}

void Engine::Stop() {
  {
    const Lock lock(links_->mutex);
    if (stopping_) return;
    stopping_ = true;
    // What peers still wait for may lie in queues: signals of operations that are done here.
    while (open_.empty() && transport_->Progress()) continue;
  }
  Fail(Cancelled("the communicator of rank {} was destroyed", rank_));
  driver_.Stop();
}

// Operations -------------------------------------------------------------------------------------

Handle Engine::EndedHandle(absl::Status status) {
  auto impl =
      std::allocate_shared<Handle::Impl>(HandleAllocator<Handle::Impl>(handles_), nullptr, "");
  impl->Finish(std::move(status));
  return Handle(std::move(impl));
}

Handle Engine::Start(GroupState& group, const Call& call, const CallOptions& options) {
  if (absl::Status status = CheckCall(group, call, options); !status.ok()) {
    return EndedHandle(std::move(status));
  }
  Lock lock(links_->mutex);
  auto handle = TryStart(group, call, options);
  if (handle.ok() && !failure_.failed()) RunWork();
  if (!runnable_.empty() && driver_.asleep()) transport_->Wake();
  Unlock(lock);
  return handle.ok() ? *std::move(handle) : EndedHandle(handle.status());
}

absl::StatusOr<Choice> Engine::ChoiceOf(const GroupState& group, const Call& call,
                                        const CallOptions& options, int64_t bytes) const {
  if (options.algorithm.empty()) return group.selector().Choose(call.operation, bytes);
  Choice choice;
  TUTTI_ASSIGN_OR_RETURN(choice.algorithm, AlgorithmId::FromName(options.algorithm));
  choice.segments =
      SegmentsFor(Algorithms()[choice.algorithm.index].name, call.operation, group.size(), bytes);
  TUTTI_RETURN_IF_ERROR(CheckChoice(choice.algorithm, call.operation, group.shape()));
  return choice;
}

absl::StatusOr<Handle> Engine::TryStart(GroupState& group, const Call& call,
                                        const CallOptions& options) {
  if (!failure_.verdict().ok()) return failure_.verdict();
  const int64_t bytes = BytesOf(group, call);
  TUTTI_ASSIGN_OR_RETURN(const Choice choice, ChoiceOf(group, call, options, bytes));
  TUTTI_ASSIGN_OR_RETURN(const RankProgram* program,
                         group.ProgramFor(call.operation, choice, options.root));

  const uint64_t key_hash = StableHash(options.key);
  const int64_t step = options.step >= 0 ? options.step : group.NextStep(key_hash);
  const uint64_t id = MixHash(MixHash(group.id(), key_hash), static_cast<uint64_t>(step));
  OpenOperation* operation = open_.FindOrOpen(id);
  if (operation == nullptr) {
    return ResourceExhausted("{} operations are open; wait for some of them", open_.size());
  }
  if (operation->started()) {
    return InvalidArgument("{} is under way already; give every call a key and step of its own",
                           operation->Name());
  }
  OpenOperation::Identity& identity = operation->identity();
  identity.sequence = ++sequence_;
  identity.world_sequence = group.is_world() ? ++world_sequence_ : 0;
  identity.priority = options.priority;
  identity.step = step;
  identity.key = options.key;
  identity.group = group.is_world() ? std::string_view() : std::string_view(group.name());
  identity.members = group.ranks();
  auto impl = std::allocate_shared<Handle::Impl>(HandleAllocator<Handle::Impl>(handles_), this,
                                                 Algorithms()[choice.algorithm.index].name);
  Handle handle(impl);
  operation->start_nanos = NowNanos();
  activity_.CountStart(operation->start_nanos, bytes);
  const absl::Status status =
      operation->Begin(call, DescriptorOf(group, call, options, choice), *program, std::move(impl));
  if (!status.ok()) Disagree(status);
  if (world_sequence_ >= told_sequence_ + kTellEvery) TellProgress();
  for (const RankProgram::Peer& peer : program->peers) {
    const int rank = group.ranks()[peer.rank];
    if (!failure_.broken(rank).ok()) failure_.Find(rank, failure_.broken(rank));
  }
  return handle;
}

void Engine::TellProgress() {
  if (control_ == nullptr || told_sequence_ == world_sequence_ || stopping_) return;
  told_sequence_ = world_sequence_;
  control_->SetProgress(world_sequence_);
}

// Light work of all operations first, by priority; then a slice of the first that has heavy work.
bool Engine::RunWork() {
  if (runnable_.empty()) return false;
  OpenOperation* heavy = nullptr;
  for (size_t i = 0; i < runnable_.size(); ++i) {
    runnable_[i]->RunLight();
    if (heavy == nullptr && runnable_[i]->has_heavy()) heavy = runnable_[i];
  }
  if (heavy != nullptr) heavy->RunHeavy(kSliceBytes);
  // Those that are done, failed or have to wait leave the list.
  size_t kept = 0;
  for (size_t i = 0; i < runnable_.size(); ++i) {
    OpenOperation* operation = runnable_[i];
    if (!operation->error().ok() && !operation->error_told()) OnError(operation);
    if (operation->done()) {
      Finish(operation, absl::OkStatus());
    } else if (!operation->Rest()) {
      runnable_[kept++] = operation;
    }
  }
  runnable_.resize(kept);
  return true;
}

void Engine::Finish(OpenOperation* operation, absl::Status status) {
  if (operation->started()) activity_.CountEnd();
  if (operation->handle() != nullptr) {
    Ended ended;
    ended.callback = operation->handle()->Finish(status);
    if (ended.callback) {
      ended.status = std::move(status);
      ended_.push_back(std::move(ended));
    }
  }
  open_.Close(operation);
  driver_.TellWaiting();
}

void Engine::Unlock(Lock& lock) {
  if (ended_.empty() && !failure_.report_due()) {
    lock.unlock();
    return;
  }
  const std::vector<Ended> ended = std::exchange(ended_, {});
  const std::optional<Failure::Finding> due = failure_.TakeDue();
  lock.unlock();
  for (const Ended& one : ended) one.callback(one.status);
  if (due) Report(*due);
}

CommunicatorStats Engine::stats() const {
  const Lock lock(links_->mutex);
  return activity_.stats();
}

void Engine::SetIdle(bool idle) {
  const Lock lock(links_->mutex);
  activity_.SetIdle(idle);
}

// Progress ---------------------------------------------------------------------------------------

bool Engine::Poll() {
  if (open_.count() == 0) return false;
  Lock lock(links_->mutex, std::try_to_lock);
  if (!lock.owns_lock()) return false;  // whoever has it makes progress
  const bool moved = Progress();
  if (!moved) Idle();
  Unlock(lock);
  return moved;
}

bool Engine::Progress() {
  bool moved = TakeMessages();
  net::Transport::BrokenLink broken;
  while (transport_->NextBroken(&broken)) failure_.AddGone(broken);
  if (failure_.has_gone()) {
    // What a rank sent before it went may have come since the last look.
    moved = true;
    TakeMessages();
    for (const net::Transport::BrokenLink& link : failure_.TakeGone()) OnBroken(link);
  }
  return RunWork() || moved;
}

bool Engine::TakeMessages() {
  bool moved = transport_->Progress();
  net::Transport::ShortMessage message;
  while (transport_->NextShort(&message)) {
    moved = true;
    OnShort(message);
  }
  return moved;
}

void Engine::OnShort(const net::Transport::ShortMessage& message) {
  if (!failure_.verdict().ok()) return;
  OpenOperation* operation = open_.FindOrOpen(message.tag.operation);
  if (operation == nullptr) {
    Disagree(ResourceExhausted("rank {} has begun {} operations that rank {} has not called",
                               message.peer, open_.size(), rank_));
    return;
  }
  if (message.bytes == 0) {
    operation->AddSignal(message.peer);
    return;
  }
  const net::ConstBytes data(message.data, message.bytes);
  const size_t own = std::min(kEnvelopeBytes, data.size());
  auto envelope = UnpackEnvelope(data.first(own));
  absl::Status status =
      envelope.ok() ? operation->AddEnvelope(message.peer, *envelope, data.subspan(own))
                    : WithPrefix(envelope.status(), transport_->Describe(message.peer) + ": ");
  if (!status.ok()) Disagree(status);
  if (operation->started() && operation->has_all_envelopes()) {
    activity_.CountWait(operation->start_nanos, message.peer);
  }
}

void Engine::Idle() {
  TellProgress();
  if (open_.empty() && !failure_.waits_for_verdict()) return;
  const int64_t now = NowNanos();
  if (now < next_idle_) return;
  next_idle_ = now + Driver::kSleepNanos;
  if (failure_.overdue(now) && failure_.verdict().ok()) {
    failure_.ReportAgain();
    return;
  }
  for (const net::Transport::BrokenLink& link : failure_.TakeMissedLeavers(now)) OnBroken(link);
  open_.ForEach([&](OpenOperation& operation) { late_.Look(operation, now); });
}

// Failure ----------------------------------------------------------------------------------------

absl::Status Engine::status() const {
  const Lock lock(links_->mutex);
  return failure_.verdict();
}

void Engine::Abort(const absl::Status& status) {
  Lock lock(links_->mutex);
  Disagree(status.ok() ? InvalidArgument("rank {} aborted with an OK status", rank_) : status);
  Unlock(lock);
}

void Engine::OnBroken(const net::Transport::BrokenLink& broken) {
  if (broken.peer < 0 || broken.peer >= size_) return;
  failure_.SetBroken(broken.peer, broken.status);
  // A rank that nobody needs any more may go.
  bool needed = false;
  open_.ForEach([&](const OpenOperation& operation) { needed |= operation.Needs(broken.peer); });
  // A link that this rank itself gave up, for what came over it, is the cause of what the other end
  // will report.
  const bool given_up = absl::IsResourceExhausted(broken.status) ||
                        absl::IsInvalidArgument(broken.status) || absl::IsDataLoss(broken.status);
  if (needed || given_up) failure_.Find(broken.peer, broken.status);
}

void Engine::Left(int peer, const absl::Status& status) {
  {
    const Lock lock(links_->mutex);
    failure_.AddGone({peer, status});
  }
  transport_->Wake();
}

void Engine::Leaves(int peer, const absl::Status& status) {
  const Lock lock(links_->mutex);
  failure_.AddLeaver({peer, status}, NowNanos());
}

void Engine::OnError(OpenOperation* operation) {
  operation->set_error_told();
  const absl::Status status = WithPrefix(operation->error(), operation->Name() + ": ");
  // A message of another length and the like: the link is whole, but the ranks do not fit.
  const bool link_broke = !absl::IsInvalidArgument(status) && !absl::IsOutOfRange(status);
  failure_.Find(link_broke ? operation->error_peer() : net::kNoRank, status);
}

// With no lock held.
void Engine::Report(const Failure::Finding& finding) {
  bool overdue = false;
  {
    const Lock lock(links_->mutex);
    overdue = failure_.overdue(NowNanos());
  }
  if (control_ == nullptr || overdue) {
    Fail(finding.status);
  } else if (finding.peer != net::kNoRank) {
    control_->ReportLost(finding.peer, finding.status);
  } else {
    control_->ReportFailure(finding.status);
  }
}

void Engine::Fail(const absl::Status& status) {
  Lock lock(links_->mutex);
  if (!failure_.SetVerdict(status)) return;
  if (!open_.empty()) {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) transport_->Fail(peer, status);
    }
  }
  while (!open_.empty()) Finish(open_.any(), status);
  runnable_.clear();
  driver_.TellWaiting();
  Unlock(lock);
  transport_->Wake();
}

// Memory and groups ------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<net::RegisteredMemory>> Engine::Allocate(size_t bytes) {
  const Lock lock(links_->mutex);
  TUTTI_ASSIGN_OR_RETURN(auto memory, transport_->Allocate(bytes));
  return std::make_unique<GuardedMemory>(links_, std::move(memory));
}

absl::StatusOr<GroupState*> Engine::AddGroup(std::unique_ptr<GroupState> group) {
  const Lock lock(links_->mutex);
  for (const auto& other : groups_) {
    if (other->name() != group->name()) continue;
    if (other->ranks() == group->ranks()) return other.get();
    return AlreadyExists("there is a group \"{}\" of {} other ranks; a name names one group",
                         group->name(), other->size());
  }
  groups_.push_back(std::move(group));
  return groups_.back().get();
}

}  // namespace tutti::collective
