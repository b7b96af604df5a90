#include "tutti/collective/operation/open_operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/collective/reduce/reduce.h"

namespace tutti::collective {
namespace {

// Groups that exchange with everybody are small.
constexpr int kMostRiders = 64;

}  // namespace

OpenOperation::OpenOperation(const Workshop& workshop, int world)
    : workshop_(workshop),
      data_(workshop.transport, workshop.scratch),
      peers_(workshop.transport, world),
      steps_(workshop.transport, this, &data_, &peers_, &rounded_) {}

std::string OpenOperation::Name() const {
  std::string name(started() ? NameOf(descriptor_.operation) : "operation");
  if (!identity_.key.empty()) name += fmt::format(" \"{}\"", identity_.key);
  name += fmt::format(", step {}", identity_.step);
  if (!identity_.group.empty()) name += fmt::format(", group \"{}\"", identity_.group);
  return name;
}

absl::Status OpenOperation::Begin(const Call& call, const Descriptor& descriptor,
                                  const RankProgram& program,
                                  std::shared_ptr<Handle::Impl> handle) {
  program_ = &program;
  handle_ = std::move(handle);
  descriptor_ = descriptor;
  phase_ = Phase::kCopyIn;
  peers_.Begin(program, identity_.members);
  rounded_.Begin(program.may_round ? descriptor.wire : Wire::kAsIs);
  const bool scales = descriptor.reduction == Reduction::kMean && program.sums_at_once;
  steps_.Begin(program, descriptor, identity_.id, scales ? 1.0 / program.contributors : 1.0);
  TUTTI_RETURN_IF_ERROR(data_.Begin(call, program));
  for (int rank = 0; rank < peers_.size(); ++rank) {
    if (peers_[rank].has_envelope) TUTTI_RETURN_IF_ERROR(Compare(rank, peers_[rank].envelope));
  }
  if (!data_.staged()) Open();
  MakeRunnable();
  return absl::OkStatus();
}

void OpenOperation::SendEnvelopes() {
  Envelope envelope{.descriptor = descriptor_, .ordinary = data_.staged(), .memory = data_.key()};
  std::byte packed[kEnvelopeBytes + kPiggybackBytes];
  for (const RankProgram::Peer& peer : program_->peers) {
    envelope.signals = peer.signalled;
    PackEnvelope(envelope, packed);
    size_t bytes = kEnvelopeBytes;
    if (peer.piggyback >= 0 && steps_.IsShort(program_->steps[peer.piggyback])) {
      const int piece = program_->steps[peer.piggyback].piece;
      const size_t piggyback = static_cast<size_t>(data_.BytesOf(piece));
      if (piggyback > 0) std::memcpy(packed + bytes, data_.At(piece), piggyback);
      bytes += piggyback;
    }
    const int rank = peers_.WorldRank(peer.rank);
    absl::Status status = workshop_.transport->SendShort(rank, {identity_.id, 0}, {packed, bytes});
    if (!status.ok()) StepFailed(rank, std::move(status));
  }
}

// After the copy in: at first tell the peers, then run, or wait for all envelopes.
void OpenOperation::Open() {
  if (!data_.first_window()) return StartWindow();
  SendEnvelopes();
  gathers_piggybacks_ = program_->one_round && !rounded_.active() &&
                        program_->ranks <= kMostRiders &&
                        data_.BytesOf(0) <= static_cast<int64_t>(kPiggybackBytes);
  const bool to_know_who_stages = program_->windowed && data_.large();
  if (!gathers_piggybacks_ && !(to_know_who_stages && peers_.missing() > 0)) return StartWindow();
  phase_ = Phase::kGather;
}

void OpenOperation::EndGather() {
  if (gathers_piggybacks_ && SumPiggybacks()) {
    phase_ = Phase::kClosing;
  } else {
    StartWindow();
  }
}

// Adds up in the order of the ranks what the envelopes brought, as the program would. False where a
// peer's data comes by itself or is not what it should be: the steps deal with that.
bool OpenOperation::SumPiggybacks() {
  const void* sources[kMostRiders];
  void* own = data_.At(0);
  const size_t bytes = static_cast<size_t>(data_.BytesOf(0));
  for (int rank = 0; rank < program_->ranks; ++rank) {
    sources[rank] = own;
    if (rank == program_->rank) continue;
    const std::vector<std::byte>& piggyback = peers_.Member(rank).piggyback;
    if (piggyback.size() != bytes) return false;
    sources[rank] = piggyback.data();
  }
  const bool mean = descriptor_.reduction == Reduction::kMean;
  ReduceToAll(descriptor_.reduction, descriptor_.dtype, sources, program_->ranks, &own, 1,
              data_.CountOf(0), mean ? 1.0 / program_->contributors : 1.0);
  return true;
}

void OpenOperation::StartWindow() {
  if (data_.first_window() && program_->windowed && peers_.SomeStage()) data_.CutIntoWindows();
  phase_ = Phase::kSteps;
  steps_.StartWindow();
  MakeRunnable();
}

void OpenOperation::EndWindow() {
  data_.StartCopies();
  if (phase_ == Phase::kSteps && data_.staged()) {
    phase_ = Phase::kCopyOut;
    return;
  }
  if (!data_.last_window()) {
    data_.NextWindow();
    if (data_.staged()) {
      phase_ = Phase::kCopyIn;
    } else {
      StartWindow();
    }
    return;
  }
  finished_ = 0;
  const bool to_finish = (ScalesAtEnd() || rounded_.active()) && FinalRange().count > 0;
  phase_ = to_finish ? Phase::kFinish : Phase::kClosing;
}

// What RunLight would do something about.
bool OpenOperation::has_light() const {
  if (!error_.ok()) return false;
  switch (phase_) {
    case Phase::kSteps:
      return steps_.has_light() || steps_.done();
    case Phase::kGather:
    case Phase::kClosing:
      return has_all_envelopes();
    default:
      return false;
  }
}

void OpenOperation::RunLight() {
  if (phase_ == Phase::kGather && has_all_envelopes() && error_.ok()) EndGather();
  if (phase_ == Phase::kSteps) {
    while (steps_.has_light() && error_.ok()) steps_.RunNextLight();
    if (steps_.done()) EndWindow();
  }
  if (phase_ == Phase::kClosing && has_all_envelopes() && error_.ok()) phase_ = Phase::kDone;
}

bool OpenOperation::has_heavy() const {
  if (!error_.ok()) return false;
  return phase_ == Phase::kCopyIn || phase_ == Phase::kCopyOut || phase_ == Phase::kFinish ||
         (phase_ == Phase::kSteps && steps_.has_heavy());
}

int64_t OpenOperation::RunHeavy(int64_t budget) {
  while (budget > 0 && has_heavy()) {
    switch (phase_) {
      case Phase::kCopyIn:
        budget = RunCopies(true, budget);
        break;
      case Phase::kCopyOut:
        budget = RunCopies(false, budget);
        break;
      case Phase::kFinish:
        budget = RunFinish(budget);
        break;
      default:
        budget = steps_.RunHeavy(budget);
    }
    RunLight();
  }
  return budget;
}

int64_t OpenOperation::RunCopies(bool in, int64_t budget) {
  budget = data_.Copy(in, budget);
  if (!data_.copies_done()) return 0;
  if (in) {
    Open();
  } else {
    EndWindow();
  }
  return budget;
}

bool OpenOperation::ScalesAtEnd() const {
  return descriptor_.reduction == Reduction::kMean && !program_->sums_at_once &&
         program_->contributors > 1 && IsReduction(program_->operation);
}

// The part of the data that every holder of the result must have alike.
Range OpenOperation::FinalRange() const {
  const bool mean = descriptor_.reduction == Reduction::kMean;
  switch (program_->operation) {
    case Operation::kAllReduce:
      return {0, data_.total()};
    case Operation::kBroadcast:
    case Operation::kAllGather:
      return {0, rounded_.active() ? data_.total() : 0};
    case Operation::kReduce:
      return {0, mean && program_->rank == program_->root ? data_.total() : 0};
    case Operation::kReduceScatter:
      return {program_->rank * descriptor_.count, mean ? descriptor_.count : 0};
    default:
      return {0, 0};
  }
}

int64_t OpenOperation::RunFinish(int64_t budget) {
  const Range range = FinalRange();
  const int64_t element_bytes = data_.element_bytes();
  const int64_t count =
      std::min(range.count - finished_, std::max<int64_t>(1, budget / element_bytes));
  std::byte* data = data_.data() + (range.begin + finished_) * element_bytes;
  const bool same_everywhere =
      program_->operation != Operation::kReduce && program_->operation != Operation::kReduceScatter;
  if (rounded_.active() && same_everywhere) {
    rounded_.Round(reinterpret_cast<float*>(data), count);
  }
  if (ScalesAtEnd()) Scale(descriptor_.dtype, data, count, 1.0 / program_->contributors);
  finished_ += count;
  if (finished_ == range.count) phase_ = Phase::kClosing;
  return budget - count * element_bytes;
}

bool OpenOperation::Rest() {
  // It may have come onto the list while others had their turn: a send of one operation can
  // complete that of another.
  if (has_heavy() || has_light() || phase_ == Phase::kDone) return false;
  runnable_ = false;
  return true;
}

void OpenOperation::MakeRunnable() {
  if (runnable_) return;
  runnable_ = true;
  std::vector<OpenOperation*>& list = *workshop_.runnable;
  const auto before = [](const OpenOperation* a, const OpenOperation* b) {
    if (a->identity_.priority != b->identity_.priority) {
      return a->identity_.priority > b->identity_.priority;
    }
    return a->identity_.sequence < b->identity_.sequence;
  };
  list.insert(std::upper_bound(list.begin(), list.end(), this, before), this);
}

absl::Status OpenOperation::AddEnvelope(int peer, const Envelope& envelope,
                                        net::ConstBytes piggyback) {
  OperationPeers::Peer& state = peers_[peer];
  if (state.has_envelope) {
    return InvalidArgument(
        "{}: rank {} starts it twice; every key and step can be used once, by each rank", Name(),
        peer);
  }
  state.has_envelope = true;
  state.envelope = envelope;
  if (envelope.signals) AddSignal(peer);
  if (started()) TUTTI_RETURN_IF_ERROR(Compare(peer, envelope));
  steps_.EnvelopeArrived(peer, piggyback);
  if (!started()) return absl::OkStatus();
  if (peers_.missing() > 0) {
    peers_.CountEnvelope();
    if (has_all_envelopes()) MakeRunnable();
  }
  return absl::OkStatus();
}

void OpenOperation::AddSignal(int peer) {
  ++peers_[peer].signals;
  if (phase_ == Phase::kSteps) steps_.Signalled(peer);
}

absl::Status OpenOperation::Compare(int peer, const Envelope& envelope) {
  if (envelope.descriptor == descriptor_) return absl::OkStatus();
  return InvalidArgument(
      "{}: {}; all ranks must call it alike", Name(),
      Difference(workshop_.transport->rank(), descriptor_, peer, envelope.descriptor));
}

void OpenOperation::StepFailed(int world_rank, absl::Status status) {
  if (!error_.ok()) return;
  error_ = std::move(status);
  error_peer_ = world_rank;
  MakeRunnable();
}

bool OpenOperation::Needs(int peer) const {
  if (!started()) return false;
  const auto place =
      std::find_if(program_->peers.begin(), program_->peers.end(),
                   [&](const RankProgram::Peer& p) { return peers_.WorldRank(p.rank) == peer; });
  if (place == program_->peers.end()) return false;
  if (!peers_[peer].has_envelope) return true;
  if (phase_ == Phase::kGather && gathers_piggybacks_) return false;
  if (phase_ < Phase::kSteps || !data_.last_window()) return true;
  return phase_ == Phase::kSteps && steps_.AwaitsOf(place->rank) > peers_[peer].signals;
}

std::vector<int> OpenOperation::WaitsFor() const {
  if (!started()) return {};
  std::vector<int> ranks = peers_.Missing();
  if (ranks.empty() && phase_ == Phase::kSteps) ranks = steps_.WaitsFor();
  return ranks;
}

void OpenOperation::Reset() {
  data_.End();
  peers_.End();
  steps_.End();
  handle_.reset();
  program_ = nullptr;
  phase_ = Phase::kUnstarted;
  runnable_ = false;
  gathers_piggybacks_ = false;
  if (!error_.ok()) error_ = absl::OkStatus();
  error_peer_ = -1;
  error_told_ = false;
  seen_nanos = late_nanos = 0;
}

}  // namespace tutti::collective
