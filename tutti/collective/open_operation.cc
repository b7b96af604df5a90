#include "tutti/collective/open_operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tutti/base/checked.h"
#include "tutti/base/status.h"

namespace tutti::collective {
namespace {

// Of a rank's data, in a program that runs window by window. With 2 ranks on 2 cores with 1 MB of
// second-level cache each, `tutti bench allreduce --memory ordinary` is fastest here.
constexpr int64_t kWindowBytes = int64_t{512} << 10;
constexpr int64_t kLine = 64;

// All-reduce, reduce and broadcast cut the data as they like; the others have a chunk a rank.
bool CutsEvenly(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduce ||
         operation == Operation::kBroadcast || operation == Operation::kBarrier;
}

}  // namespace

OpenOperation::OpenOperation(const Workshop& workshop, int world)
    : workshop_(workshop), peers_(world) {}

std::string OpenOperation::Name() const {
  std::string name(started() ? NameOf(descriptor_.operation) : "operation");
  if (!identity_.key.empty()) name += fmt::format(" \"{}\"", identity_.key);
  name += fmt::format(", step {}", identity_.step);
  if (!identity_.group.empty()) name += fmt::format(", group \"{}\"", identity_.group);
  return name;
}

absl::Status OpenOperation::Begin(const Call& call, const Descriptor& descriptor,
                                  const Program& program, std::shared_ptr<Handle::Impl> handle) {
  program_ = &program;
  handle_ = std::move(handle);
  descriptor_ = descriptor;
  data_ = static_cast<std::byte*>(call.data);
  input_ = static_cast<const std::byte*>(call.input);
  element_bytes_ = static_cast<int64_t>(SizeOf(call.dtype));
  phase_ = Phase::kCopyIn;
  const bool mean = descriptor.reduction == Reduction::kMean;
  scale_ = mean && program.sums_at_once ? 1.0 / program.contributors : 1.0;
  wire_ = program.may_round ? descriptor.wire : Wire::kAsIs;
  SetLayout(call);

  missing_ = program.peers.size();
  for (const Program::Peer& peer : program.peers) {
    if (peers_[WorldRank(peer.rank)].greeted) --missing_;
  }
  TUTTI_RETURN_IF_ERROR(PrepareStaging());
  for (size_t r = 0; r < peers_.size(); ++r) {
    if (peers_[r].greeted) {
      TUTTI_RETURN_IF_ERROR(Compare(static_cast<int>(r), peers_[r].greeting));
    }
  }
  SetWindow(0);
  copy_piece_ = 0;
  copy_done_ = 0;
  if (!staged_) Open();
  MakeRunnable();
  return absl::OkStatus();
}

void OpenOperation::SetLayout(const Call& call) {
  total_ = call.count;
  if (!call.counts.empty()) {
    total_ = 0;
    for (int64_t count : call.counts) total_ += count;
  } else if (!CutsEvenly(call.operation)) {
    total_ = call.count * program_->chunks;
  }
  identity_.counts.assign(call.counts.begin(), call.counts.end());
  window_ = total_;
}

absl::Status OpenOperation::PrepareStaging() {
  key_ = {};
  staged_ = false;
  const bool shared = std::any_of(program_->uses.begin(), program_->uses.end(),
                                  [](const PieceUse& use) { return use.touched(); });
  if (!shared || total_ == 0) return absl::OkStatus();
  const size_t bytes = static_cast<size_t>(total_ * element_bytes_);
  key_ = workshop_.transport->KeyOf(data_, bytes);
  if (key_.region != 0) return absl::OkStatus();
  staged_ = true;
  if (program_->windowed) window_ = std::min(total_, kWindowBytes / element_bytes_);
  TUTTI_ASSIGN_OR_RETURN(staging_,
                         workshop_.scratch->Take(static_cast<size_t>(window_ * element_bytes_)));
  key_ = staging_->key();
  return absl::OkStatus();
}

void OpenOperation::SendGreetings() {
  Greeting greeting{.descriptor = descriptor_, .ordinary = staged_, .memory = key_};
  std::byte packed[kGreetingBytes + kRiderBytes];
  for (const Program::Peer& peer : program_->peers) {
    greeting.signals = peer.signalled;
    PackGreeting(greeting, packed);
    size_t bytes = kGreetingBytes;
    if (peer.rider >= 0 && IsShort(program_->steps[peer.rider])) {
      const int piece = program_->steps[peer.rider].piece;
      const size_t rider = static_cast<size_t>(CountOf(piece) * element_bytes_);
      if (rider > 0) std::memcpy(packed + bytes, OwnPiece(piece), rider);
      bytes += rider;
    }
    const int rank = WorldRank(peer.rank);
    absl::Status status = workshop_.transport->SendShort(rank, {identity_.id, 0}, {packed, bytes});
    if (!status.ok()) Fail(rank, std::move(status));
  }
}

// The part of the data that runs next.
void OpenOperation::SetWindow(int64_t begin) {
  const Program& program = *program_;
  window_begin_ = begin;
  const int64_t count = std::min(window_, total_ - begin);
  if (!identity_.counts.empty()) {
    layout_.SetVarying(identity_.counts, program.segments, element_bytes_);
  } else if (CutsEvenly(program.operation)) {
    layout_ = Layout::Even(count, program.chunks, program.segments, element_bytes_);
  } else {
    layout_ = Layout::Equal(descriptor_.count, program.chunks, program.segments, element_bytes_);
  }
  scratch_offsets_.clear();
  int64_t end = 0;
  for (int32_t like : program.scratch) {
    scratch_offsets_.push_back(end);
    end += RoundUp(layout_.Of(like).count * element_bytes_, kLine);
  }
  if (end > static_cast<int64_t>(scratch_.size())) scratch_.resize(end);
  if (rounds()) {
    packed_.resize(layout_.total() + end / element_bytes_);
    packed_valid_.assign(program.uses.size(), 0);
  }
}

// After the first copy in: tell the peers, then run, or wait until it is known who stages.
void OpenOperation::Open() {
  if (phase_ == Phase::kCopyIn && first_round_) {
    SendGreetings();
    const bool large = total_ * element_bytes_ > kWindowBytes;
    if (program_->windowed && large && missing_ > 0) {
      phase_ = Phase::kGather;
      return;
    }
  }
  StartRound();
}

void OpenOperation::StartRound() {
  const Program& program = *program_;
  if (first_round_ && program.windowed && window_ == total_) {
    const bool some_stage =
        std::any_of(program.peers.begin(), program.peers.end(), [this](const Program::Peer& peer) {
          return peers_[WorldRank(peer.rank)].greeting.ordinary;
        });
    if (some_stage && total_ * element_bytes_ > kWindowBytes) {
      window_ = kWindowBytes / element_bytes_;
      SetWindow(0);
    }
  }
  phase_ = Phase::kSteps;
  steps_done_ = 0;
  awaiting_ = -1;
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
      requests_[i].operation = this;
      requests_[i].step = static_cast<uint32_t>(i);
    }
  }
  if (rounds()) RoundOwn();
  for (uint32_t step : program.first) Push(step);
  MakeRunnable();
}

void OpenOperation::EndRound() {
  copy_piece_ = 0;
  copy_done_ = 0;
  if (phase_ == Phase::kSteps && staged_) {
    phase_ = Phase::kCopyOut;
    return;
  }
  if (window_begin_ + window_ < total_) {
    first_round_ = false;
    SetWindow(window_begin_ + window_);
    if (staged_) {
      phase_ = Phase::kCopyIn;
    } else {
      StartRound();
    }
    return;
  }
  const bool scales = descriptor_.reduction == Reduction::kMean && !program_->sums_at_once &&
                      program_->contributors > 1;
  const bool to_finish = (scales || rounds()) && FinalRange().count > 0;
  phase_ = to_finish ? Phase::kFinish : Phase::kClosing;
}

// What RunLight would do something about.
bool OpenOperation::has_light() const {
  if (!error_.ok()) return false;
  switch (phase_) {
    case Phase::kSteps:
      return light_head_ < light_.size() || steps_done_ == program_->steps.size();
    case Phase::kGather:
    case Phase::kClosing:
      return missing_ == 0;
    default:
      return false;
  }
}

void OpenOperation::RunLight() {
  if (phase_ == Phase::kGather && missing_ == 0) StartRound();
  if (phase_ == Phase::kSteps) {
    while (light_head_ < light_.size() && error_.ok()) RunStep(light_[light_head_++]);
    if (steps_done_ == program_->steps.size()) EndRound();
  }
  if (phase_ == Phase::kClosing && missing_ == 0 && error_.ok()) phase_ = Phase::kDone;
}

bool OpenOperation::has_heavy() const {
  if (!error_.ok()) return false;
  return phase_ == Phase::kCopyIn || phase_ == Phase::kCopyOut || phase_ == Phase::kFinish ||
         (phase_ == Phase::kSteps && heavy_head_ < heavy_.size());
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
        budget = RunHeavyStep(budget);
    }
    RunLight();
  }
  return budget;
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

absl::Status OpenOperation::AddGreeting(int peer, const Greeting& greeting, net::ConstBytes rider) {
  Peer& state = peers_[peer];
  if (state.greeted) {
    return InvalidArgument(
        "{}: rank {} starts it twice; every key and step can be used once, by each rank", Name(),
        peer);
  }
  state.greeted = true;
  state.greeting = greeting;
  if (greeting.signals) AddSignal(peer);
  if (started()) TUTTI_RETURN_IF_ERROR(Compare(peer, greeting));
  if (state.receive < 0) {
    state.rider.assign(rider.begin(), rider.end());
  } else if (rider.empty()) {
    PostReceive(static_cast<uint32_t>(state.receive));
  } else {
    TakeRider(static_cast<uint32_t>(state.receive), rider);
  }
  if (!started()) return absl::OkStatus();
  if (missing_ > 0 && --missing_ == 0) MakeRunnable();
  return absl::OkStatus();
}

absl::Status OpenOperation::Compare(int peer, const Greeting& greeting) {
  if (greeting.descriptor == descriptor_) return absl::OkStatus();
  return InvalidArgument(
      "{}: {}; all ranks must call it alike", Name(),
      Difference(workshop_.transport->rank(), descriptor_, peer, greeting.descriptor));
}

void OpenOperation::Fail(int peer, absl::Status status) {
  if (!error_.ok()) return;
  error_ = std::move(status);
  error_peer_ = peer;
  MakeRunnable();
}

bool OpenOperation::Needs(int peer) const {
  if (!started()) return false;
  const auto place =
      std::find_if(program_->peers.begin(), program_->peers.end(),
                   [&](const Program::Peer& p) { return WorldRank(p.rank) == peer; });
  if (place == program_->peers.end()) return false;
  if (!peers_[peer].greeted) return true;
  const bool last_round = window_begin_ + window_ >= total_;
  if (phase_ < Phase::kSteps || !last_round) return true;
  uint32_t awaits = 0;
  for (size_t i = 0; phase_ == Phase::kSteps && i < program_->steps.size(); ++i) {
    const ProgramStep& step = program_->steps[i];
    if (step.kind == StepKind::kAwait && step.peer == place->rank && waits_[i] != kStepDone) {
      ++awaits;
    }
  }
  return awaits > peers_[peer].signals;
}

std::vector<int> OpenOperation::WaitsFor() const {
  std::vector<int> ranks;
  if (!started()) return ranks;
  for (const Program::Peer& peer : program_->peers) {
    if (!peers_[WorldRank(peer.rank)].greeted) ranks.push_back(WorldRank(peer.rank));
  }
  if (!ranks.empty() || phase_ != Phase::kSteps) return ranks;
  if (awaiting_ >= 0) ranks.push_back(WorldRank(program_->steps[awaiting_].peer));
  for (size_t i = 0; i < program_->steps.size(); ++i) {
    if (requests_[i].open) ranks.push_back(WorldRank(program_->steps[i].peer));
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

void OpenOperation::Reset() {
  workshop_.scratch->Return(std::move(staging_));
  handle_.reset();
  program_ = nullptr;
  phase_ = Phase::kUnstarted;
  runnable_ = false;
  first_round_ = true;
  error_ = absl::OkStatus();
  error_peer_ = -1;
  error_told_ = false;
  missing_ = 0;
  seen_nanos = late_nanos = 0;
  for (Peer& peer : peers_) peer.Reset();
}

void OpenOperation::Peer::Reset() {
  greeted = false;
  signals = 0;
  memory = nullptr;
  greeting = Greeting();
  rider.clear();
  receive = -1;
}

}  // namespace tutti::collective
