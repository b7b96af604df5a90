#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tutti::collective {

// Limits of a schedule. A schedule from outside that exceeds them is refused.
inline constexpr int kMaxRanks = 4096;
inline constexpr int kMaxPieces = 1 << 24;

// A collective operation. The numbers are sent over the network and never change.
enum class Operation : uint8_t {
  kAllReduce = 1,
  kReduceScatter = 2,  // rank r keeps the sum of chunk r
  kAllGather = 3,      // rank r brings chunk r; chunks may have different sizes
  kBroadcast = 4,
  kReduce = 5,
  kGather = 6,
  kScatter = 7,
  kAllToAll = 8,  // chunk d of rank r's input becomes chunk r of rank d's output
  kBarrier = 9,
};
std::string_view NameOf(Operation operation);  // "all-reduce"
absl::StatusOr<Operation> OperationFromName(std::string_view name);

// One instruction of one rank. `piece` and `source` number pieces of the rank's memory (see
// Schedule), `peer` a rank, `set` an entry of Schedule::sets.
enum class StepKind : uint8_t {
  kSend = 1,     // send PEER PIECE           the peer's k-th receive from here takes the k-th send
  kReceive = 2,  // receive PEER PIECE
  kReceiveReduce = 3,  // receive-reduce PEER PIECE piece = piece + what comes
  kCopy = 4,           // copy PIECE SOURCE         piece = source
  kReduce = 5,         // reduce PIECE SOURCE       piece = piece + source
  kSignal = 6,         // signal PEER               an empty message, taken by the peer's await
  kAwait = 7,          // await PEER
  // Loads and stores in peers' memory (kMemory links only). The sum runs in the order of the set.
  kReduceFrom = 8,   // reduce-from SET PIECE       own piece = sum of the piece over all of the set
  kStoreTo = 9,      // store-to SET PIECE          the piece of all of the set = own piece
  kReduceToAll = 10  // reduce-to-all SET PIECE     both at once, without the pass in between
};
std::string_view NameOf(StepKind kind);

struct Step {
  StepKind kind;
  int32_t peer = -1;    // kSend, kReceive, kReceiveReduce, kSignal, kAwait
  int32_t piece = -1;   // all but kSignal and kAwait
  int32_t source = -1;  // kCopy, kReduce
  int32_t set = -1;     // kReduceFrom, kStoreTo, kReduceToAll
  bool operator==(const Step&) const = default;
};

// The pieces of its own rank's memory that a step accesses: it writes one and reads up to two (-1:
// none). Steps of kMemory links also access the same piece of peers; a store-to counts as a read
// here.
struct Touched {
  int32_t write = -1;
  int32_t read = -1;
  int32_t also_read = -1;
};
Touched TouchedBy(const Step& step);

// The program of a collective: per rank a list of steps. One engine runs it on any transport, the
// verifier proves it, the tuner costs it, `tutti explain` draws it.
//
// Memory. The data has `chunks` chunks (all-to-all: the input's, then the output's), each cut into
// `segments` pieces; piece c * segments + s is segment s of chunk c. Behind them come the scratch
// pieces: scratch[i] names the data piece whose size it has. All-reduce, reduce and broadcast cut
// the data evenly, so that sizes differ by an element at most; in the others chunk c belongs to
// rank c and has the size the caller gave, which is the same for all chunks in reduce-scatter and
// all-to-all.
//
// Order. A rank's steps start in the order of the list, and overlap. A step waits for an earlier
// step of its rank only if
//   - one of the two writes a piece that the other reads or writes,
//   - the earlier one is an await: whatever follows it happens after it, or
//   - it is a signal: a signal says that all of the list before it is done.
// What peers load and store in a rank's memory is therefore ordered by signal and await alone.
struct Schedule {
  std::string algorithm;  // "ring"
  Operation operation = Operation::kAllReduce;
  int ranks = 1;
  int chunks = 1;
  int segments = 1;
  int root = 0;  // kBroadcast, kReduce, kGather, kScatter
  std::vector<int32_t> scratch;
  std::vector<std::vector<int32_t>> sets;  // ranks, each set in ascending order
  std::vector<std::vector<Step>> steps;    // one list a rank
  // Ranks whose data counts; empty means all. (Servers on hosts of their own bring none.)
  std::vector<int32_t> contributors;

  int data_pieces() const { return chunks * segments; }
  int pieces() const { return data_pieces() + static_cast<int>(scratch.size()); }
  bool operator==(const Schedule&) const = default;
};

// The text form, one step a line:
//
//   schedule direct all-reduce ranks=2 chunks=2 segments=1 root=0
//   scratch: 0 1        the data piece that each scratch piece is as large as, where there are any
//   contributors: 0 1   where not all ranks are
//   set 0: 0 1          where there are sets
//   rank 0
//     signal 1
//     await 1
//     reduce-to-all 0 0
//     ...
//
// ParseSchedule gives back an equal schedule, and for anything else an INVALID_ARGUMENT that names
// the line, what stands there and what was expected. It checks all numbers against their ranges.
std::string ToText(const Schedule& schedule);
std::string ToText(const Step& step);  // "send 1 0"
absl::StatusOr<Schedule> ParseSchedule(std::string_view text);

// OK if all numbers are in their ranges, and the chunks fit the operation: what ParseSchedule
// guarantees and Verify checks first. Says nothing of what the steps do. INVALID_ARGUMENT.
absl::Status CheckSchedule(const Schedule& schedule);
// The part of it that concerns one step.
absl::Status CheckStep(const Schedule& schedule, int rank, const Step& step);

// True where `later` has to wait for `earlier`, both of one rank, as described above.
bool MustWait(const Step& earlier, const Step& later);

}  // namespace tutti::collective
