#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tutti/collective/operation/call.h"
#include "tutti/collective/operation/rank_program.h"
#include "tutti/collective/operation/scratch_pool.h"
#include "tutti/collective/schedule/piece_layout.h"
#include "tutti/net/transport.h"

namespace tutti::collective {

// The data of an operation on this rank: where its pieces lie, and which part of it runs.
//
// Staging. Data that peers touch has to lie where they can reach it. Ordinary memory is therefore
// staged: what they read is copied in before the steps, what was written there is copied out after.
//
// Windows. Staging large data as a whole would move it through memory three times. Programs that
// move everything through memory links are therefore run window by window, when some rank stages:
// copy in, steps, copy out for a part of the data that fits the cache, then for the next.
//
// Used again for other operations, with the memory it has grown. Not thread-safe.
class OperationData {
 public:
  OperationData(net::Transport* transport, ScratchPool* pool)
      : transport_(transport), pool_(pool) {}

  // Begins with the first window. `program` outlives the operation, `call.counts` need not.
  absl::Status Begin(const Call& call, const RankProgram& program);
  // Gives the staging memory back.
  void End() { pool_->Return(std::move(staging_)); }

  bool staged() const { return staged_; }
  net::MemoryKey key() const { return key_; }  // of what peers reach
  int64_t element_bytes() const { return element_bytes_; }
  int64_t total() const { return total_; }  // elements
  std::byte* data() const { return data_; }
  bool large() const;  // more than a window

  // Windows. A rank that does not stage itself runs by windows if a peer stages.
  void CutIntoWindows();
  bool first_window() const { return window_begin_ == 0; }
  bool last_window() const { return window_begin_ + window_ >= total_; }
  void NextWindow() { SetWindow(window_begin_ + window_); }
  int64_t window_begin() const { return window_begin_; }
  int64_t window() const { return window_; }

  // Pieces of the window that runs: data pieces and, behind them, the program's scratch pieces.
  Range RangeOf(int piece) const { return layout_.Of(Like(piece)); }
  int64_t CountOf(int piece) const { return RangeOf(piece).count; }
  int64_t BytesOf(int piece) const { return CountOf(piece) * element_bytes_; }
  std::byte* At(int piece) const;
  // The elements of all pieces side by side, and where a piece begins among them.
  int64_t elements() const { return layout_.total() + scratch_bytes_ / element_bytes_; }
  int64_t PlaceOf(int piece) const;

  // Copies up to `budget` bytes into the staging memory or out of it, and on from there with the
  // next call. Returns what is left of the budget; copies_done() tells whether all is copied.
  void StartCopies() { copy_piece_ = 0, copy_done_ = 0; }
  int64_t Copy(bool in, int64_t budget);
  bool copies_done() const { return copy_piece_ >= program_->data_pieces(); }

 private:
  absl::Status PrepareStaging();
  void SetWindow(int64_t begin);
  int Like(int piece) const {
    const int data_pieces = program_->data_pieces();
    return piece < data_pieces ? piece : program_->scratch[piece - data_pieces];
  }

  net::Transport* const transport_;
  ScratchPool* const pool_;
  const RankProgram* program_ = nullptr;
  std::byte* data_ = nullptr;
  const std::byte* input_ = nullptr;
  int64_t element_bytes_ = 1;
  int64_t count_ = 0;  // of the call
  int64_t total_ = 0;
  std::vector<int64_t> counts_;  // per rank, where they differ
  PieceLayout layout_;           // of the window
  bool staged_ = false;
  Scratch staging_;
  net::MemoryKey key_;
  int64_t window_ = 0;  // elements of a window
  int64_t window_begin_ = 0;
  std::vector<int64_t> scratch_offsets_;  // bytes
  int64_t scratch_bytes_ = 0;
  std::vector<std::byte> scratch_;
  int copy_piece_ = 0;  // where the copies are
  int64_t copy_done_ = 0;
};

}  // namespace tutti::collective
