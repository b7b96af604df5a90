#include "tutti/collective/operation/rounded_pieces.h"

#include <algorithm>

#include "tutti/collective/reduce/reduce.h"

namespace tutti::collective {

void RoundedPieces::StartWindow(const OperationData& data, const RankProgram& program) {
  packed_.resize(static_cast<size_t>(data.elements()));
  valid_.assign(program.uses.size(), 0);
}

const std::byte* RoundedPieces::Packed(const OperationData& data, int piece) {
  uint16_t* const packed = packed_.data() + data.PlaceOf(piece);
  if (valid_[piece] == 0) {
    Pack(wire_, reinterpret_cast<const float*>(data.At(piece)), packed, data.CountOf(piece));
    valid_[piece] = 1;
  }
  return reinterpret_cast<const std::byte*>(packed);
}

void RoundedPieces::RoundOwn(const OperationData& data, const RankProgram& program) {
  for (const int32_t piece : program.rounds_own) {
    const std::byte* const packed = Packed(data, piece);
    Unpack(wire_, packed, reinterpret_cast<float*>(data.At(piece)), data.CountOf(piece));
  }
}

void RoundedPieces::Round(float* values, int64_t count) const {
  constexpr int64_t kBlock = 1024;
  uint16_t packed[kBlock];
  for (int64_t i = 0; i < count; i += kBlock) {
    const int64_t n = std::min(kBlock, count - i);
    Pack(wire_, values + i, packed, n);
    Unpack(wire_, packed, values + i, n);
  }
}

}  // namespace tutti::collective
