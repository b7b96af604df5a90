#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace tutti::net {

// What one rank's bytes and all ranks' bytes together may be in a gather.
inline constexpr size_t kMaxGatherBytes = size_t{64} << 20;
// A whole message: a gather's bytes, and room for the lengths of very many of them.
inline constexpr size_t kMaxControlBytes = kMaxGatherBytes + (size_t{1} << 20);
// Before a rank has joined.
inline constexpr size_t kMaxJoinBytes = size_t{1} << 20;

// One message of the control plane, between rank 0 and another. All kinds have the same fields, and
// use some of them: one form to write, to check and to attack.
struct ControlMessage {
  enum class Type : uint8_t {
    // to rank 0
    kJoin = 1,  // number: process id; texts: the fingerprint's lines
    // to the others
    kWaiting,  // texts[0]: who is still missing
    kRefused,  // code, texts[0]: the job starts without you, or not at all
    kWelcome,  // everybody is there; texts: where each rank runs
    kLeft,     // `rank` left on purpose
    kResult,   // of call `number`: code and texts[0], or texts: the parts
    // both ways
    kHeartbeat,  // counters: rank 0's of all ranks, another's its own
    kCall,       // part of call `number`: rank 1 for a gather, 0 for a broadcast; code; texts[0]
    kLost,       // the sender's link to `rank` broke: code, texts[0]
    kFailure,    // the job cannot go on: code, texts[0]
    kVerdict,    // why the job failed: rank, code, texts[0]
    kLeave,      // the sender leaves on purpose
  };
  static constexpr Type kLast = Type::kLeave;

  Type type = Type::kHeartbeat;
  absl::StatusCode code = absl::StatusCode::kOk;
  int32_t rank = -1;
  uint64_t number = 0;
  std::vector<uint64_t> counters;
  std::vector<std::string> texts;

  bool operator==(const ControlMessage&) const = default;

  // The status in code and texts[0].
  absl::Status status() const;
  // With code and texts[0] of the status; long texts are cut.
  static ControlMessage Of(Type type, int rank, const absl::Status& status);
};

// The message with its length before it.
std::string Encode(const ControlMessage& message);
// From the bytes behind the length. INVALID_ARGUMENT tells what is wrong with them. Nothing is
// allocated for more elements than the bytes can hold.
absl::Status Decode(std::string_view body, ControlMessage* message);

// Cuts a stream of bytes into messages. Holds what has arrived of one message, never more than was
// sent, and refuses lengths over the limit as soon as it sees them.
class ControlReader {
 public:
  explicit ControlReader(size_t max_bytes) : max_bytes_(max_bytes) {}
  void set_max_bytes(size_t bytes) { max_bytes_ = bytes; }

  void Append(std::span<const std::byte> bytes);
  // Takes the next whole message; false if there is none yet. An error is final.
  absl::Status Next(ControlMessage* message, bool* found);

 private:
  size_t max_bytes_;
  std::string buffer_;
  size_t start_ = 0;  // of what has not been taken
};

}  // namespace tutti::net
