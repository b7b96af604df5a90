#include "tutti/collective/operation/operation_data.h"

#include <algorithm>
#include <cstring>

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

absl::Status OperationData::Begin(const Call& call, const RankProgram& program) {
  program_ = &program;
  data_ = static_cast<std::byte*>(call.data);
  input_ = static_cast<const std::byte*>(call.input);
  element_bytes_ = static_cast<int64_t>(SizeOf(call.dtype));
  count_ = call.count;
  total_ = call.count;
  if (!call.counts.empty()) {
    total_ = 0;
    for (int64_t count : call.counts) total_ += count;
  } else if (!CutsEvenly(call.operation)) {
    total_ = call.count * program.chunks;
  }
  counts_.assign(call.counts.begin(), call.counts.end());
  window_ = total_;
  TUTTI_RETURN_IF_ERROR(PrepareStaging());
  SetWindow(0);
  StartCopies();
  return absl::OkStatus();
}

bool OperationData::large() const { return total_ * element_bytes_ > kWindowBytes; }

absl::Status OperationData::PrepareStaging() {
  key_ = {};
  staged_ = false;
  const bool shared = std::any_of(program_->uses.begin(), program_->uses.end(),
                                  [](const PieceUse& use) { return use.touched(); });
  if (!shared || total_ == 0) return absl::OkStatus();
  const size_t bytes = static_cast<size_t>(total_ * element_bytes_);
  key_ = transport_->KeyOf(data_, bytes);
  if (key_.region != 0) return absl::OkStatus();
  staged_ = true;
  if (program_->windowed) window_ = std::min(total_, kWindowBytes / element_bytes_);
  TUTTI_ASSIGN_OR_RETURN(staging_, pool_->Take(static_cast<size_t>(window_ * element_bytes_)));
  key_ = staging_->key();
  return absl::OkStatus();
}

void OperationData::CutIntoWindows() {
  if (window_ < total_ || !large()) return;
  window_ = kWindowBytes / element_bytes_;
  SetWindow(0);
}

void OperationData::SetWindow(int64_t begin) {
  const RankProgram& program = *program_;
  window_begin_ = begin;
  const int64_t count = std::min(window_, total_ - begin);
  if (!counts_.empty()) {
    layout_.SetVarying(counts_, program.segments, element_bytes_);
  } else if (CutsEvenly(program.operation)) {
    layout_ = PieceLayout::Even(count, program.chunks, program.segments, element_bytes_);
  } else {
    layout_ = PieceLayout::Equal(count_, program.chunks, program.segments, element_bytes_);
  }
  scratch_offsets_.clear();
  scratch_bytes_ = 0;
  for (int32_t like : program.scratch) {
    scratch_offsets_.push_back(scratch_bytes_);
    scratch_bytes_ += RoundUp(layout_.Of(like).count * element_bytes_, kLine);
  }
  if (scratch_bytes_ > static_cast<int64_t>(scratch_.size())) scratch_.resize(scratch_bytes_);
}

int64_t OperationData::PlaceOf(int piece) const {
  const int data_pieces = program_->data_pieces();
  if (piece < data_pieces) return layout_.Of(piece).begin;
  return layout_.total() + scratch_offsets_[piece - data_pieces] / element_bytes_;
}

std::byte* OperationData::At(int piece) const {
  const int data_pieces = program_->data_pieces();
  if (piece >= data_pieces) {
    return const_cast<std::byte*>(scratch_.data()) + scratch_offsets_[piece - data_pieces];
  }
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

int64_t OperationData::Copy(bool in, int64_t budget) {
  const int pieces = program_->data_pieces();
  for (; copy_piece_ < pieces; ++copy_piece_, copy_done_ = 0) {
    const PieceUse& use = program_->uses[copy_piece_];
    const bool wanted = use.touched() && (in ? use.peers_read || use.starts_read
                                             : use.peers_write || use.own_writes);
    if (!wanted) continue;
    const Range range = layout_.Of(copy_piece_);
    const int64_t count =
        std::min(range.count - copy_done_, std::max<int64_t>(1, budget / element_bytes_));
    std::byte* staged = At(copy_piece_) + copy_done_ * element_bytes_;
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
  return copies_done() ? budget : 0;
}

}  // namespace tutti::collective
