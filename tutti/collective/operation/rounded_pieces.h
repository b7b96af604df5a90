#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tutti/collective/communicator.h"
#include "tutti/collective/operation/operation_data.h"
#include "tutti/collective/operation/rank_program.h"

namespace tutti::collective {

// What of an operation's float32 data travels, rounded to 16 bits. Pieces are packed when they are
// first sent, and again after they have changed. Used again for other operations. Not thread-safe.
class RoundedPieces {
 public:
  // kAsIs: data travels as it is, and nothing below may be called but active().
  void Begin(Wire wire) { wire_ = wire; }
  bool active() const { return wire_ != Wire::kAsIs; }
  Wire wire() const { return wire_; }

  // Another window begins: nothing is packed.
  void StartWindow(const OperationData& data, const RankProgram& program);
  // What travels of a piece.
  const std::byte* Packed(const OperationData& data, int piece);
  void Changed(int piece) { valid_[piece] = 0; }
  // Who adds up what it also sends adds up what the others get.
  void RoundOwn(const OperationData& data, const RankProgram& program);
  // Rounds `count` values as if they had travelled.
  void Round(float* values, int64_t count) const;

 private:
  Wire wire_ = Wire::kAsIs;
  std::vector<uint16_t> packed_;
  std::vector<uint8_t> valid_;  // per piece
};

}  // namespace tutti::collective
