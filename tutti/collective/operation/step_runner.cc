#include "tutti/collective/operation/step_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/collective/reduce/reduce.h"

namespace tutti::collective {
namespace {

bool IsHeavy(StepKind kind) {
  switch (kind) {
    case StepKind::kCopy:
    case StepKind::kReduce:
    case StepKind::kReduceFrom:
    case StepKind::kStoreTo:
    case StepKind::kReduceToAll:
      return true;
    default:
      return false;
  }
}

}  // namespace

void StepRunner::StepRequest::Done(const absl::Status& status) {
  open = false;
  if (status.ok()) {
    runner->Complete(step);
  } else {
    runner->owner_.StepFailed(runner->peers_.WorldRank(runner->program_->steps[step].peer), status);
  }
}

void StepRunner::StepRequest::Take(size_t offset, net::ConstBytes piece) {
  runner->Taken(step, offset, piece);
}

void StepRunner::Begin(const RankProgram& program, const Descriptor& descriptor, uint64_t id,
                       double scale) {
  program_ = &program;
  reduction_ = descriptor.reduction;
  dtype_ = descriptor.dtype;
  id_ = id;
  scale_ = scale;
}

void StepRunner::StartWindow() {
  const RankProgram& program = *program_;
  steps_done_ = 0;
  awaiting_.reset();
  heavy_done_ = 0;
  light_.clear();
  heavy_.clear();
  light_head_ = heavy_head_ = 0;
  const size_t n = program.steps.size();
  waits_.resize(n);
  for (size_t i = 0; i < n; ++i) waits_[i] = program.steps[i].waits;
  if (requests_.size() < n) {
    requests_ = std::vector<StepRequest>(n);
    for (size_t i = 0; i < n; ++i) {
      requests_[i].runner = this;
      requests_[i].step = static_cast<uint32_t>(i);
    }
  }
  if (rounded_.active()) {
    rounded_.StartWindow(data_, program);
    rounded_.RoundOwn(data_, program);
  }
  for (uint32_t step : program.first) Push(step);
}

void StepRunner::Push(uint32_t step) {
  (IsHeavy(program_->steps[step].kind) ? heavy_ : light_).push_back(step);
}

void StepRunner::Complete(uint32_t index) {
  const ProgramStep& step = program_->steps[index];
  ++steps_done_;
  waits_[index] = kStepDone;
  if (rounded_.active() && step.piece >= 0 && step.kind != StepKind::kSend) {
    rounded_.Changed(step.piece);
  }
  for (uint32_t i = 0; i < step.dependents; ++i) {
    const uint32_t dependent = program_->dependents[step.first_dependent + i];
    if (--waits_[dependent] == 0) Push(dependent);
  }
  owner_.StepsCanGoOn();
}

void StepRunner::RunStep(uint32_t index) {
  switch (program_->steps[index].kind) {
    case StepKind::kSend:
      return RunSend(index);
    case StepKind::kReceive:
    case StepKind::kReceiveReduce:
      return RunReceive(index);
    case StepKind::kAwait:
      return RunAwait(index);
    default:
      return RunSignal(index);
  }
}

// Empty messages are not sent: both sides know that they are empty.
void StepRunner::RunSend(uint32_t index) {
  const ProgramStep& step = program_->steps[index];
  const int64_t count = data_.CountOf(step.piece);
  if (count == 0 || (step.piggybacked && IsShort(step))) return Complete(index);
  net::ConstBytes bytes(data_.At(step.piece), static_cast<size_t>(count * data_.element_bytes()));
  if (rounded_.active()) {
    bytes = {rounded_.Packed(data_, step.piece), static_cast<size_t>(count) * 2};
  }
  requests_[index].open = true;
  transport_->Send(peers_.WorldRank(step.peer), {id_, step.message}, bytes, &requests_[index]);
}

// The first signal to a peer may have gone with the envelope.
void StepRunner::RunSignal(uint32_t index) {
  const ProgramStep& step = program_->steps[index];
  if (!(step.opening && data_.first_window())) {
    const int peer = peers_.WorldRank(step.peer);
    absl::Status status = transport_->SendShort(peer, {id_, 1}, {});
    if (!status.ok()) return owner_.StepFailed(peer, std::move(status));
  }
  Complete(index);
}

// What may be piggybacked on the envelope is not asked for before that has come.
void StepRunner::RunReceive(uint32_t index) {
  const ProgramStep& step = program_->steps[index];
  if (data_.CountOf(step.piece) == 0) return Complete(index);
  if (step.message > 0 || !IsShort(step)) return PostReceive(index);
  OperationPeers::Peer& peer = peers_.Member(step.peer);
  if (!peer.has_envelope) {
    peer.receive = index;
  } else if (peer.piggyback.empty()) {
    PostReceive(index);
  } else {
    TakePiggyback(index, peer.piggyback);
  }
}

void StepRunner::EnvelopeArrived(int world_rank, net::ConstBytes piggyback) {
  OperationPeers::Peer& peer = peers_[world_rank];
  if (!peer.receive) {
    peer.piggyback.assign(piggyback.begin(), piggyback.end());
  } else if (piggyback.empty()) {
    PostReceive(*peer.receive);
  } else {
    TakePiggyback(*peer.receive, piggyback);
  }
}

void StepRunner::TakePiggyback(uint32_t index, net::ConstBytes piggyback) {
  const ProgramStep& step = program_->steps[index];
  const size_t expected = static_cast<size_t>(data_.BytesOf(step.piece));
  if (piggyback.size() != expected) {
    const int peer = peers_.WorldRank(step.peer);
    return owner_.StepFailed(
        peer, InvalidArgument("rank {} sent {} bytes with its envelope; expected {}", peer,
                              piggyback.size(), expected));
  }
  if (step.kind == StepKind::kReceiveReduce) {
    Taken(index, 0, piggyback);
  } else {
    std::memcpy(data_.At(step.piece), piggyback.data(), piggyback.size());
  }
  Complete(index);
}

void StepRunner::PostReceive(uint32_t index) {
  const ProgramStep& step = program_->steps[index];
  const int64_t count = data_.CountOf(step.piece);
  const bool take = rounded_.active() || step.kind == StepKind::kReceiveReduce;
  requests_[index].open = true;
  transport_->Receive(peers_.WorldRank(step.peer), {id_, step.message},
                      take ? nullptr : data_.At(step.piece),
                      static_cast<size_t>(count * (rounded_.active() ? 2 : data_.element_bytes())),
                      &requests_[index]);
}

void StepRunner::Taken(uint32_t index, size_t offset, net::ConstBytes piece) {
  const ProgramStep& step = program_->steps[index];
  std::byte* target = data_.At(step.piece);
  if (!rounded_.active()) {
    ReduceInto(reduction_, dtype_, target + offset, piece.data(),
               static_cast<int64_t>(piece.size()) / data_.element_bytes());
    return;
  }
  float* values = reinterpret_cast<float*>(target) + offset / 2;
  const int64_t count = static_cast<int64_t>(piece.size()) / 2;
  if (step.kind == StepKind::kReceive) {
    Unpack(rounded_.wire(), piece.data(), values, count);
  } else {
    UnpackReduce(reduction_, rounded_.wire(), piece.data(), values, count);
  }
}

void StepRunner::RunAwait(uint32_t index) {
  OperationPeers::Peer& peer = peers_.Member(program_->steps[index].peer);
  if (peer.signals == 0) {
    awaiting_ = index;
    return;
  }
  --peer.signals;
  Complete(index);
}

void StepRunner::Signalled(int world_rank) {
  if (!awaiting_ || peers_.WorldRank(program_->steps[*awaiting_].peer) != world_rank) return;
  const uint32_t index = *std::exchange(awaiting_, std::nullopt);
  --peers_[world_rank].signals;
  Complete(index);
}

int64_t StepRunner::RunHeavy(int64_t budget) {
  const uint32_t index = heavy_[heavy_head_];
  const ProgramStep& step = program_->steps[index];
  const int64_t total = data_.CountOf(step.piece);
  // Whole cache lines, so that every slice but the last is as well aligned as the piece.
  const int64_t most = std::max<int64_t>(64, budget / data_.element_bytes() / 64 * 64);
  const int64_t count = std::min(most, total - heavy_done_);
  if (count > 0 && !RunSlice(step, heavy_done_, count)) return 0;
  heavy_done_ += count;
  if (heavy_done_ == total) {
    ++heavy_head_;
    heavy_done_ = 0;
    Complete(index);
  }
  return budget - count * data_.element_bytes();
}

// False after a failure.
bool StepRunner::RunSlice(const ProgramStep& step, int64_t begin, int64_t count) {
  const int64_t offset = begin * data_.element_bytes();
  const size_t bytes = static_cast<size_t>(count * data_.element_bytes());
  std::byte* const own = data_.At(step.piece) + offset;
  if (step.kind == StepKind::kCopy) {
    std::memcpy(own, data_.At(step.source) + offset, bytes);
    return true;
  }
  if (step.kind == StepKind::kReduce) {
    ReduceInto(reduction_, dtype_, own, data_.At(step.source) + offset, count);
    return true;
  }
  if (!FindTargets(step, offset)) return false;
  const int n = static_cast<int>(targets_.size());
  if (step.kind == StepKind::kStoreTo) {
    for (void* target : targets_) {
      if (target != own) std::memcpy(target, own, bytes);
    }
    return true;
  }
  if (n == 1 && step.kind == StepKind::kReduceFrom) {  // a load; elements may be of any type
    if (targets_[0] != own) std::memcpy(own, targets_[0], bytes);
    return true;
  }
  sources_.assign(targets_.begin(), targets_.end());
  void* target = own;
  const bool to_all = step.kind == StepKind::kReduceToAll;
  ReduceToAll(reduction_, dtype_, sources_.data(), n, to_all ? targets_.data() : &target,
              to_all ? n : 1, count, scale_);
  return true;
}

// The piece of a memory step in the memory of every rank of its set.
bool StepRunner::FindTargets(const ProgramStep& step, int64_t offset) {
  targets_.clear();
  for (int32_t member : program_->sets[step.set]) {
    if (member == program_->rank) {
      targets_.push_back(data_.At(step.piece) + offset);
      continue;
    }
    absl::StatusOr<std::byte*> memory = peers_.Memory(member, data_);
    if (!memory.ok()) {
      owner_.StepFailed(peers_.WorldRank(member), memory.status());
      return false;
    }
    targets_.push_back(*memory + data_.RangeOf(step.piece).begin * data_.element_bytes() + offset);
  }
  return true;
}

std::vector<int> StepRunner::WaitsFor() const {
  std::vector<int> ranks;
  if (awaiting_) ranks.push_back(peers_.WorldRank(program_->steps[*awaiting_].peer));
  for (size_t i = 0; i < program_->steps.size(); ++i) {
    if (requests_[i].open) ranks.push_back(peers_.WorldRank(program_->steps[i].peer));
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

uint32_t StepRunner::AwaitsOf(int rank) const {
  uint32_t awaits = 0;
  for (size_t i = 0; i < program_->steps.size(); ++i) {
    const ProgramStep& step = program_->steps[i];
    awaits += step.kind == StepKind::kAwait && step.peer == rank && waits_[i] != kStepDone;
  }
  return awaits;
}

}  // namespace tutti::collective
