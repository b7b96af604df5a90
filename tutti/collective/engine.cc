#include "tutti/collective/engine.h"

#include <algorithm>
#include <utility>

#include "tutti/base/checked.h"
#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/collective/algorithms/algorithm.h"
#include "tutti/collective/reduce.h"

namespace tutti::collective {
namespace {

// Operations that peers have begun and this rank has not: more than any program has in flight.
constexpr size_t kMaxOpen = 1 << 16;
// How far this rank has come is told this often, and whenever it waits.
constexpr uint64_t kTellEvery = 16;
// Heavy work between two looks at the links: about 20 us.
constexpr int64_t kSliceBytes = int64_t{256} << 10;

// Gives memory back under the lock of the links that it came from.
class SharedMemory final : public net::RegisteredMemory {
 public:
  SharedMemory(std::shared_ptr<Links> links, std::unique_ptr<net::RegisteredMemory> memory)
      : links_(std::move(links)), memory_(std::move(memory)) {}
  ~SharedMemory() override {
    const std::lock_guard lock(links_->mutex);
    memory_.reset();
  }
  net::Bytes bytes() const override { return memory_->bytes(); }
  net::MemoryKey key() const override { return memory_->key(); }

 private:
  std::shared_ptr<Links> links_;
  std::unique_ptr<net::RegisteredMemory> memory_;
};

// About 1 us of looking, in which most short messages come; the transport's own waiting begins with
// asking for the time, which takes as long as some looks. Where the ranks of this host outnumber
// the cores, whoever is waited for may need this one: then it is given away at once. A look at
// sockets is a system call, and their transport knows better how long to look.
int LooksOf(const net::Transport& transport) {
  int neighbours = 0;  // this rank among them
  for (int peer = 0; peer < transport.size(); ++peer) {
    neighbours += transport.link(peer) != net::LinkKind::kSocket;
  }
  return neighbours == 1 || transport.crowded() ? 0 : 20;
}

bool HasChunkPerRank(Operation operation) {
  return operation != Operation::kAllReduce && operation != Operation::kReduce &&
         operation != Operation::kBroadcast && operation != Operation::kBarrier;
}

// The input of an all-to-all may not overlap what it writes.
absl::Status CheckApart(const GroupState& group, const Call& call) {
  if (call.count > 0 && call.input == nullptr) {
    return InvalidArgument("all-to-all: the input is null, but its count is {}", call.count);
  }
  const auto bytes = uintptr_t(call.count) * uintptr_t(group.size()) * SizeOf(call.dtype);
  const auto input = reinterpret_cast<uintptr_t>(call.input);
  const auto output = reinterpret_cast<uintptr_t>(call.data);
  if (input >= output + bytes || output >= input + bytes) return absl::OkStatus();
  return InvalidArgument("all-to-all: input and output, of {} bytes each, overlap by {}", bytes,
                         bytes - (input > output ? input - output : output - input));
}

// What can be seen to be wrong with a call at once.
absl::Status CheckCall(const GroupState& group, const Call& call, const CallOptions& options) {
  const std::string_view name = NameOf(call.operation);
  if (SizeOf(call.dtype) == 0) return InvalidArgument("{}: the dtype is not set", name);
  if (!call.counts.empty() && call.counts.size() != static_cast<size_t>(group.size())) {
    return InvalidArgument("{}: {} counts for {} ranks; expected one for each", name,
                           call.counts.size(), group.size());
  }
  if (call.count < 0) {
    return InvalidArgument("{}: the count is {}, expected 0 or more", name, call.count);
  }
  if (options.root < 0 || options.root >= group.size()) {
    return InvalidArgument("{}: the root is {}, expected a rank of the group: 0 to {}", name,
                           options.root, group.size() - 1);
  }
  const int64_t chunks = HasChunkPerRank(call.operation) ? 2 * int64_t{group.size()} : 1;
  const auto elements = CheckedMul(call.count, chunks);
  const auto bytes =
      elements ? CheckedMul(*elements, static_cast<int64_t>(SizeOf(call.dtype))) : std::nullopt;
  if (!bytes) {
    return InvalidArgument("{}: {} elements of {} for {} ranks are more bytes than 2^63", name,
                           call.count, NameOf(call.dtype), group.size());
  }
  if (call.count > 0 && call.data == nullptr) {
    return InvalidArgument("{}: the data is null, but its count is {}", name, call.count);
  }
  if (IsReduction(call.operation) && !CanReduce(call.dtype)) {
    return InvalidArgument(
        "{}: cannot reduce {}; expected float16, bfloat16, float32, float64, int32 or int64", name,
        NameOf(call.dtype));
  }
  if (options.reduction < Reduction::kSum || options.reduction > Reduction::kProduct) {
    return InvalidArgument("{}: there is no reduction {}", name, int(options.reduction));
  }
  if (options.wire < Wire::kAsIs || options.wire > Wire::kFloat16) {
    return InvalidArgument("{}: there is no wire format {}", name, int(options.wire));
  }
  if (options.wire != Wire::kAsIs && call.dtype != DType::kFloat32) {
    return InvalidArgument("{}: only float32 can travel as another type; this is {}", name,
                           NameOf(call.dtype));
  }
  return call.operation == Operation::kAllToAll ? CheckApart(group, call) : absl::OkStatus();
}

Descriptor DescriptorOf(const GroupState& group, const Call& call, const CallOptions& options,
                        const Choice& choice) {
  Descriptor descriptor{.operation = call.operation,
                        .dtype = call.dtype,
                        .reduction = options.reduction,
                        .wire = options.wire,
                        .algorithm = choice.algorithm.Pack(),
                        .segments = choice.segments,
                        .root = static_cast<uint16_t>(options.root),
                        .group_size = static_cast<uint16_t>(group.size()),
                        .group_members = group.members_hash(),
                        .counts = 0,
                        .count = call.count};
  if (!call.counts.empty()) {
    descriptor.counts = static_cast<uint32_t>(StableHash(std::as_bytes(call.counts)));
  }
  return descriptor;
}

int64_t BytesOf(const GroupState& group, const Call& call) {
  int64_t elements = call.count;
  if (call.counts.empty() && HasChunkPerRank(call.operation)) elements *= group.size();
  return elements * static_cast<int64_t>(SizeOf(call.dtype));
}

}  // namespace

Engine::Engine(std::unique_ptr<net::Transport> transport, Control* control, double late_seconds)
    : links_(std::make_shared<Links>()),
      transport_(transport.get()),
      control_(control),
      rank_(transport->rank()),
      size_(transport->size()),
      late_nanos_(static_cast<int64_t>(late_seconds * 1e9)),
      handles_(HandlePool::Create()),
      looks_(LooksOf(*transport)),
      scratch_(transport_),
      workshop_{.transport = transport_, .scratch = &scratch_, .runnable = &runnable_},
      broken_(size_) {
  links_->transport = std::move(transport);
  stats_.waited_nanos.resize(size_);
  open_.reserve(256);
  if (transport_->NeedsService()) service_ = std::thread([this] { Serve(); });
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
    parked_.notify_all();
    // What peers still wait for may lie in queues: signals of operations that are done here.
    while (open_.empty() && transport_->Progress()) continue;
  }
  Fail(Cancelled("the communicator of rank {} was destroyed", rank_));
  transport_->Wake();
  if (service_.joinable()) service_.join();
}

Handle Engine::EndedHandle(absl::Status status, std::string_view algorithm) {
  auto impl = std::allocate_shared<Handle::Impl>(HandleAllocator<Handle::Impl>(handles_), nullptr,
                                                 algorithm);
  impl->Finish(std::move(status));
  return Handle(std::move(impl));
}

Handle Engine::Start(GroupState& group, const Call& call, const CallOptions& options) {
  if (absl::Status status = CheckCall(group, call, options); !status.ok()) {
    return EndedHandle(std::move(status));
  }
  Lock lock(links_->mutex);
  auto handle = TryStart(group, call, options);
  if (handle.ok() && !failed_.load(std::memory_order_relaxed)) RunWork();
  if (!runnable_.empty() && asleep_) transport_->Wake();
  Unlock(lock);
  return handle.ok() ? *std::move(handle) : EndedHandle(handle.status());
}

absl::StatusOr<Handle> Engine::TryStart(GroupState& group, const Call& call,
                                        const CallOptions& options) {
  if (!failure_.ok()) return failure_;
  Choice choice;
  const int64_t bytes = BytesOf(group, call);
  if (options.algorithm.empty()) {
    choice = group.selector().Choose(call.operation, bytes);
  } else {
    TUTTI_ASSIGN_OR_RETURN(choice.algorithm, AlgorithmId::FromName(options.algorithm));
    choice.segments =
        SegmentsFor(Algorithms()[choice.algorithm.index].name, call.operation, group.size(), bytes);
    TUTTI_RETURN_IF_ERROR(CheckChoice(choice.algorithm, call.operation, group.shape()));
  }
  TUTTI_ASSIGN_OR_RETURN(const Program* program,
                         group.ProgramFor(call.operation, choice, options.root));

  const uint64_t key_hash = StableHash(options.key);
  const int64_t step = options.step >= 0 ? options.step : group.NextStep(key_hash);
  const uint64_t id = MixHash(MixHash(group.id(), key_hash), static_cast<uint64_t>(step));
  OpenOperation* operation = Slot(id);
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
  identity.group = group.is_world() ? "" : group.name();
  identity.members = group.ranks();
  const std::string_view algorithm = Algorithms()[choice.algorithm.index].name;
  auto impl =
      std::allocate_shared<Handle::Impl>(HandleAllocator<Handle::Impl>(handles_), this, algorithm);
  Handle handle(impl);
  CountStart(*operation, bytes);
  const absl::Status status =
      operation->Begin(call, DescriptorOf(group, call, options, choice), *program, std::move(impl));
  if (!status.ok()) Disagree(status);
  if (world_sequence_ >= told_sequence_ + kTellEvery) TellProgress();
  for (const Program::Peer& peer : program->peers) {
    const int rank = group.ranks()[peer.rank];
    if (!broken_[rank].ok()) Lost(rank, broken_[rank]);
  }
  return handle;
}

void Engine::TellProgress() {
  if (control_ == nullptr || told_sequence_ == world_sequence_ || stopping_) return;
  told_sequence_ = world_sequence_;
  control_->SetProgress(world_sequence_);
}

void Engine::CountStart(OpenOperation& operation, int64_t bytes) {
  const int64_t now = NowNanos();
  operation.start_nanos = now;
  if (started_++ == 0) active_since_ = now;
  ++stats_.operations;
  stats_.bytes += bytes;
}

CommunicatorStats Engine::stats() const {
  const Lock lock(links_->mutex);
  CommunicatorStats stats = stats_;
  if (started_ > 0) stats.active_nanos += NowNanos() - active_since_;
  return stats;
}

void Engine::SetIdle(bool idle) {
  const Lock lock(links_->mutex);
  const int64_t now = NowNanos();
  if (idle) {
    if (idle_++ == 0) idle_since_ = now;
  } else if (--idle_ == 0) {
    stats_.exposed_nanos += now - idle_since_;
  }
}

// `peer` was the last to start the operation.
void Engine::CountWait(const OpenOperation& operation, int peer) {
  if (idle_ == 0) return;
  const int64_t now = NowNanos();
  const int64_t from = std::max({operation.start_nanos, idle_since_, waited_until_});
  stats_.waited_nanos[peer] += std::max<int64_t>(0, now - from);
  waited_until_ = now;
}

OpenOperation* Engine::Slot(uint64_t id) {
  const auto [place, is_new] = open_.try_emplace(id, nullptr);
  if (!is_new) return place->second;
  if (open_.size() > kMaxOpen) {
    open_.erase(place);
    return nullptr;
  }
  if (free_.empty()) {
    slots_.push_back(std::make_unique<OpenOperation>(workshop_, size_));
    free_.push_back(slots_.back().get());
  }
  OpenOperation* operation = free_.back();
  free_.pop_back();
  operation->identity().id = id;
  place->second = operation;
  open_count_.store(open_.size(), std::memory_order_relaxed);
  return operation;
}

void Engine::OnShort(const net::Transport::ShortMessage& message) {
  if (!failure_.ok()) return;
  OpenOperation* operation = Slot(message.tag.operation);
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
  const size_t own = std::min(kGreetingBytes, data.size());
  auto greeting = UnpackGreeting(data.first(own));
  absl::Status status =
      greeting.ok() ? operation->AddGreeting(message.peer, *greeting, data.subspan(own))
                    : WithPrefix(greeting.status(), transport_->Describe(message.peer) + ": ");
  if (!status.ok()) Disagree(status);
  if (operation->started() && operation->all_greeted()) CountWait(*operation, message.peer);
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
  if (operation->started() && --started_ == 0) {
    stats_.active_nanos += NowNanos() - active_since_;
  }
  if (operation->handle() != nullptr) {
    Ended ended;
    ended.callback = operation->handle()->Finish(status);
    if (ended.callback) {
      ended.status = std::move(status);
      ended_.push_back(std::move(ended));
    }
  }
  open_.erase(operation->identity().id);
  open_count_.store(open_.size(), std::memory_order_relaxed);
  operation->Reset();
  free_.push_back(operation);
  if (waiting_ > 0) changed_.notify_all();
}

void Engine::Unlock(Lock& lock) {
  if (ended_.empty() && !report_due_) {
    lock.unlock();
    return;
  }
  const std::vector<Ended> ended = std::exchange(ended_, {});
  const bool report = std::exchange(report_due_, false);
  const absl::Status expected = expected_;
  const int peer = expected_peer_;
  lock.unlock();
  for (const Ended& one : ended) one.callback(one.status);
  if (report) Report(peer, expected);
}

absl::StatusOr<std::unique_ptr<net::RegisteredMemory>> Engine::Allocate(size_t bytes) {
  const Lock lock(links_->mutex);
  TUTTI_ASSIGN_OR_RETURN(auto memory, transport_->Allocate(bytes));
  return std::make_unique<SharedMemory>(links_, std::move(memory));
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
