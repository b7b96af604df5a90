#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/collective/communicator.h"
#include "tutti/net/transport.h"

namespace tutti::collective {

// How one rank describes its call of an operation. If the descriptors of two ranks differ, the
// operation fails.
struct Descriptor {
  Operation operation = Operation::kBarrier;
  DType dtype = DType::kInvalid;
  Reduction reduction = Reduction::kSum;
  Wire wire = Wire::kAsIs;
  uint16_t algorithm = 0;  // see AlgorithmId
  uint16_t segments = 1;
  uint16_t root = 0;
  uint16_t group_size = 1;
  uint32_t group_members = 0;  // a hash of who they are
  uint32_t counts = 0;         // a hash of the counts where every rank has its own; else 0
  int64_t count = 0;           // elements of the call; the sum where every rank has its own
  bool operator==(const Descriptor&) const = default;
};

// An algorithm with its parameters, as a number: its place in Algorithms(), and the variant that it
// made of its parameters (0: none).
struct AlgorithmId {
  uint8_t index = 0;
  uint8_t variant = 0;

  uint16_t Pack() const;
  static AlgorithmId Unpack(uint16_t packed);
  // "ring", or with parameters "central:2:own". INVALID_ARGUMENT or NOT_FOUND says what can be
  // given.
  static absl::StatusOr<AlgorithmId> FromName(std::string_view name);
  std::string Name() const;
  bool operator==(const AlgorithmId&) const = default;
};

// The first message of an operation between two ranks: the descriptor, and where the sender's data
// can be reached. Fits a short message, and leaves room for a piggyback: the first message of the
// schedule to that peer goes with it where it is short, so that a small operation is one message.
struct Envelope {
  Descriptor descriptor;
  bool signals = false;   // also the first signal of the schedule
  bool ordinary = false;  // the data is in ordinary memory; `memory` is where it is staged
  net::MemoryKey memory;
};

constexpr size_t kEnvelopeBytes = 40;
constexpr size_t kPiggybackBytes = net::Transport::kShortBytes - kEnvelopeBytes;  // at most
void PackEnvelope(const Envelope& envelope, std::byte* out);
// Checks length and every field; INVALID_ARGUMENT names the first that is out of range.
absl::StatusOr<Envelope> UnpackEnvelope(std::span<const std::byte> bytes);

// What differs, as text for users, lower rank first: "rank 0 gives 1000 float32, rank 2 gives 1001
// float32". REQUIRES: a != b.
std::string Difference(int rank_a, const Descriptor& a, int rank_b, const Descriptor& b);

// A hash that is the same in every process.
uint64_t StableHash(std::span<const std::byte> bytes, uint64_t seed = 0);
inline uint64_t StableHash(std::string_view text, uint64_t seed = 0) {
  return StableHash(std::as_bytes(std::span(text.data(), text.size())), seed);
}
uint64_t MixHash(uint64_t a, uint64_t b);

}  // namespace tutti::collective
