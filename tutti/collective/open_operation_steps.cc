#include <algorithm>
#include <cstring>

#include "tutti/base/status.h"
#include "tutti/collective/open_operation.h"
#include "tutti/collective/reduce.h"

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

void OpenOperation::StepRequest::Done(const absl::Status& status) {
  open = false;
  if (status.ok()) {
    operation->Complete(step);
  } else {
    operation->Fail(operation->WorldRank(operation->program_->steps[step].peer), status);
  }
}

void OpenOperation::StepRequest::Take(size_t offset, net::ConstBytes piece) {
  operation->Taken(step, offset, piece);
}

void OpenOperation::Push(uint32_t step) {
  (IsHeavy(program_->steps[step].kind) ? heavy_ : light_).push_back(step);
}

void OpenOperation::Complete(uint32_t index) {
  const ProgramStep& step = program_->steps[index];
  ++steps_done_;
  waits_[index] = kStepDone;
  if (rounds() && step.piece >= 0 && step.kind != StepKind::kSend) packed_valid_[step.piece] = 0;
  for (uint32_t i = 0; i < step.dependents; ++i) {
    const uint32_t dependent = program_->dependents[step.first_dependent + i];
    if (--waits_[dependent] == 0) Push(dependent);
  }
  MakeRunnable();
}

void OpenOperation::RunStep(uint32_t index) {
  const ProgramStep& step = program_->steps[index];
  switch (step.kind) {
    case StepKind::kSend:
      return RunSend(index);
    case StepKind::kReceive:
    case StepKind::kReceiveReduce:
      return RunReceive(index);
    case StepKind::kAwait:
      return RunAwait(index);
    default:
      break;
  }
  if (!(step.opening && first_round_)) {
    const int peer = WorldRank(step.peer);
    absl::Status status = workshop_.transport->SendShort(peer, {identity_.id, 1}, {});
    if (!status.ok()) return Fail(peer, std::move(status));
  }
  Complete(index);
}

// A rider goes with the greeting. Rounded data does not: it is packed later.
bool OpenOperation::IsShort(const ProgramStep& step) const {
  return !rounds() && CountOf(step.piece) * element_bytes_ <= static_cast<int64_t>(kRiderBytes);
}

// Empty messages are not sent: both sides know that they are empty.
void OpenOperation::RunSend(uint32_t index) {
  const ProgramStep& step = program_->steps[index];
  const int64_t count = CountOf(step.piece);
  if (count == 0 || (step.rides && IsShort(step))) return Complete(index);
  const std::byte* bytes = OwnPiece(step.piece);
  size_t size = static_cast<size_t>(count * element_bytes_);
  if (rounds()) {
    bytes = Packed(step.piece);
    size = static_cast<size_t>(count) * 2;
  }
  requests_[index].open = true;
  workshop_.transport->Send(WorldRank(step.peer), {identity_.id, step.message}, {bytes, size},
                            &requests_[index]);
}

const std::byte* OpenOperation::Packed(int piece) {
  const int data_pieces = program_->data_pieces();
  const int64_t begin =
      piece < data_pieces
          ? layout_.Of(piece).begin
          : layout_.total() + scratch_offsets_[piece - data_pieces] / element_bytes_;
  uint16_t* const packed = packed_.data() + begin;
  if (packed_valid_[piece] == 0) {
    Pack(wire_, reinterpret_cast<const float*>(OwnPiece(piece)), packed, CountOf(piece));
    packed_valid_[piece] = 1;
  }
  return reinterpret_cast<const std::byte*>(packed);
}

// Who adds up what it also sends adds up what the others get.
void OpenOperation::RoundOwn() {
  for (const int32_t piece : program_->rounds_own) {
    const std::byte* const packed = Packed(piece);
    Unpack(wire_, packed, reinterpret_cast<float*>(OwnPiece(piece)), CountOf(piece));
  }
}

// What may ride with the greeting is not asked for before that has come.
void OpenOperation::RunReceive(uint32_t index) {
  const ProgramStep& step = program_->steps[index];
  if (CountOf(step.piece) == 0) return Complete(index);
  if (step.message > 0 || !IsShort(step)) return PostReceive(index);
  Peer& peer = peers_[WorldRank(step.peer)];
  if (!peer.greeted) {
    peer.receive = index;
  } else if (peer.rider.empty()) {
    PostReceive(index);
  } else {
    TakeRider(index, peer.rider);
  }
}

void OpenOperation::TakeRider(uint32_t index, net::ConstBytes rider) {
  const ProgramStep& step = program_->steps[index];
  const size_t expected = static_cast<size_t>(CountOf(step.piece) * element_bytes_);
  if (rider.size() != expected) {
    const int peer = WorldRank(step.peer);
    return Fail(peer, InvalidArgument("rank {} sent {} bytes with its greeting; expected {}", peer,
                                      rider.size(), expected));
  }
  if (step.kind == StepKind::kReceiveReduce) {
    Taken(index, 0, rider);
  } else {
    std::memcpy(OwnPiece(step.piece), rider.data(), rider.size());
  }
  Complete(index);
}

void OpenOperation::PostReceive(uint32_t index) {
  const ProgramStep& step = program_->steps[index];
  const int64_t count = CountOf(step.piece);
  const bool take = rounds() || step.kind == StepKind::kReceiveReduce;
  requests_[index].open = true;
  workshop_.transport->Receive(
      WorldRank(step.peer), {identity_.id, step.message}, take ? nullptr : OwnPiece(step.piece),
      static_cast<size_t>(count * (rounds() ? 2 : element_bytes_)), &requests_[index]);
}

void OpenOperation::Taken(uint32_t index, size_t offset, net::ConstBytes piece) {
  const ProgramStep& step = program_->steps[index];
  std::byte* target = OwnPiece(step.piece);
  if (!rounds()) {
    ReduceInto(descriptor_.reduction, descriptor_.dtype, target + offset, piece.data(),
               static_cast<int64_t>(piece.size()) / element_bytes_);
    return;
  }
  float* values = reinterpret_cast<float*>(target) + offset / 2;
  const int64_t count = static_cast<int64_t>(piece.size()) / 2;
  if (step.kind == StepKind::kReceive) {
    Unpack(wire_, piece.data(), values, count);
  } else {
    UnpackReduce(descriptor_.reduction, wire_, piece.data(), values, count);
  }
}

void OpenOperation::RunAwait(uint32_t index) {
  Peer& peer = peers_[WorldRank(program_->steps[index].peer)];
  if (peer.signals == 0) {
    awaiting_ = index;
    return;
  }
  --peer.signals;
  Complete(index);
}

void OpenOperation::AddSignal(int peer) {
  ++peers_[peer].signals;
  if (phase_ != Phase::kSteps || awaiting_ < 0) return;
  if (WorldRank(program_->steps[awaiting_].peer) != peer) return;
  const uint32_t index = static_cast<uint32_t>(awaiting_);
  awaiting_ = -1;
  --peers_[peer].signals;
  Complete(index);
}

int64_t OpenOperation::RunHeavyStep(int64_t budget) {
  const uint32_t index = heavy_[heavy_head_];
  const ProgramStep& step = program_->steps[index];
  const int64_t total = CountOf(step.piece);
  // Whole cache lines, so that every slice but the last is as well aligned as the piece.
  const int64_t most = std::max<int64_t>(64, budget / element_bytes_ / 64 * 64);
  const int64_t count = std::min(most, total - heavy_done_);
  if (count > 0) RunSlice(step, heavy_done_, count);
  if (!error_.ok()) return 0;
  heavy_done_ += count;
  if (heavy_done_ == total) {
    ++heavy_head_;
    heavy_done_ = 0;
    Complete(index);
  }
  return budget - count * element_bytes_;
}

void OpenOperation::RunSlice(const ProgramStep& step, int64_t begin, int64_t count) {
  const int64_t offset = begin * element_bytes_;
  const size_t bytes = static_cast<size_t>(count * element_bytes_);
  std::byte* const own = OwnPiece(step.piece) + offset;
  if (step.kind == StepKind::kCopy) {
    std::memcpy(own, OwnPiece(step.source) + offset, bytes);
    return;
  }
  if (step.kind == StepKind::kReduce) {
    ReduceInto(descriptor_.reduction, descriptor_.dtype, own, OwnPiece(step.source) + offset,
               count);
    return;
  }
  targets_.clear();
  for (int32_t member : program_->sets[step.set]) {
    std::byte* piece = own;
    if (member != program_->rank) {
      std::byte* memory = PeerMemory(member);
      if (memory == nullptr) return;
      piece = memory + layout_.Of(step.piece).begin * element_bytes_ + offset;
    }
    targets_.push_back(piece);
  }
  const int n = static_cast<int>(targets_.size());
  if (step.kind == StepKind::kStoreTo) {
    for (void* target : targets_) {
      if (target != own) std::memcpy(target, own, bytes);
    }
    return;
  }
  if (n == 1 && step.kind == StepKind::kReduceFrom) {  // a load; elements may be of any type
    if (targets_[0] != own) std::memcpy(own, targets_[0], bytes);
    return;
  }
  sources_.assign(targets_.begin(), targets_.end());
  if (step.kind == StepKind::kReduceFrom) {
    void* target = own;
    ReduceToAll(descriptor_.reduction, descriptor_.dtype, sources_.data(), n, &target, 1, count,
                scale_);
  } else {
    ReduceToAll(descriptor_.reduction, descriptor_.dtype, sources_.data(), n, targets_.data(), n,
                count, scale_);
  }
}

// Where the window of a peer begins. A peer that stages has only the window there.
std::byte* OpenOperation::PeerMemory(int rank) {
  const int world_rank = WorldRank(rank);
  Peer& peer = peers_[world_rank];
  if (peer.memory == nullptr) {
    const int64_t reach = peer.greeting.ordinary ? std::min(window_, total_) : total_;
    auto memory = workshop_.transport->Map(world_rank, peer.greeting.memory,
                                           static_cast<size_t>(reach * element_bytes_));
    if (!memory.ok()) {
      Fail(world_rank, WithPrefix(memory.status(), "cannot reach the memory of rank " +
                                                       std::to_string(world_rank) + ": "));
      return nullptr;
    }
    peer.memory = *memory;
  }
  return peer.memory + (peer.greeting.ordinary ? 0 : window_begin_ * element_bytes_);
}

std::byte* OpenOperation::OwnPiece(int piece) {
  const int data_pieces = program_->data_pieces();
  if (piece >= data_pieces) return scratch_.data() + scratch_offsets_[piece - data_pieces];
  const int64_t begin = layout_.Of(piece).begin;
  if (staged_ && program_->uses[piece].touched()) {
    return staging_->bytes().data() + begin * element_bytes_;
  }
  if (program_->operation == Operation::kAllToAll) {
    const int64_t half = layout_.total() / 2;
    // Steps only read the input's pieces.
    if (begin < half || piece < data_pieces / 2) {
      return const_cast<std::byte*>(input_) + begin * element_bytes_;
    }
    return data_ + (begin - half) * element_bytes_;
  }
  return data_ + (window_begin_ + begin) * element_bytes_;
}

// What peers read has to be where they can reach it; what they or this rank wrote there goes back.
int64_t OpenOperation::RunCopies(bool in, int64_t budget) {
  const int pieces = program_->data_pieces();
  for (; copy_piece_ < pieces; ++copy_piece_, copy_done_ = 0) {
    const PieceUse& use = program_->uses[copy_piece_];
    const bool wanted = use.touched() && (in ? use.peers_read || use.starts_read
                                             : use.peers_write || use.own_writes);
    if (!wanted) continue;
    const Range range = layout_.Of(copy_piece_);
    const int64_t count =
        std::min(range.count - copy_done_, std::max<int64_t>(1, budget / element_bytes_));
    std::byte* staged = OwnPiece(copy_piece_) + copy_done_ * element_bytes_;
    std::byte* ordinary = data_ + (window_begin_ + range.begin + copy_done_) * element_bytes_;
    const size_t bytes = static_cast<size_t>(count * element_bytes_);
    if (bytes > 0) std::memcpy(in ? staged : ordinary, in ? ordinary : staged, bytes);
    copy_done_ += count;
    budget -= static_cast<int64_t>(bytes);
    if (copy_done_ < range.count) return 0;
    if (budget <= 0) {
      ++copy_piece_;
      copy_done_ = 0;
      break;
    }
  }
  if (copy_piece_ < pieces) return 0;
  if (in) {
    Open();
  } else {
    EndRound();
  }
  return budget;
}

// The part of the data that every holder of the result must have alike.
Range OpenOperation::FinalRange() const {
  const bool mean = descriptor_.reduction == Reduction::kMean;
  switch (program_->operation) {
    case Operation::kAllReduce:
      return {0, total_};
    case Operation::kBroadcast:
    case Operation::kAllGather:
      return {0, rounds() ? total_ : 0};
    case Operation::kReduce:
      return {0, mean && program_->rank == program_->root ? total_ : 0};
    case Operation::kReduceScatter:
      return {program_->rank * descriptor_.count, mean ? descriptor_.count : 0};
    default:
      return {0, 0};
  }
}

int64_t OpenOperation::RunFinish(int64_t budget) {
  const Range range = FinalRange();
  const int64_t count =
      std::min(range.count - copy_done_, std::max<int64_t>(1, budget / element_bytes_));
  std::byte* data = data_ + (range.begin + copy_done_) * element_bytes_;
  const bool same_everywhere =
      program_->operation != Operation::kReduce && program_->operation != Operation::kReduceScatter;
  if (rounds() && same_everywhere) {
    constexpr int64_t kBlock = 1024;
    uint16_t packed[kBlock];
    for (int64_t i = 0; i < count; i += kBlock) {
      float* values = reinterpret_cast<float*>(data) + i;
      const int64_t n = std::min(kBlock, count - i);
      Pack(wire_, values, packed, n);
      Unpack(wire_, packed, values, n);
    }
  }
  if (IsReduction(program_->operation) && descriptor_.reduction == Reduction::kMean &&
      !program_->sums_at_once) {
    Scale(descriptor_.dtype, data, count, 1.0 / program_->contributors);
  }
  copy_done_ += count;
  if (copy_done_ == range.count) phase_ = Phase::kClosing;
  return budget - count * element_bytes_;
}

}  // namespace tutti::collective
