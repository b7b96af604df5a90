#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tutti/collective/communicator.h"
#include "tutti/collective/greeting.h"
#include "tutti/collective/handle.h"
#include "tutti/collective/layout.h"
#include "tutti/collective/program.h"
#include "tutti/collective/scratch_pool.h"
#include "tutti/net/transport.h"

namespace tutti::collective {

// What a Group asks for.
struct Call {
  Operation operation = Operation::kBarrier;
  const void* input = nullptr;  // kAllToAll; `data` is its output
  void* data = nullptr;
  int64_t count = 0;                // elements: of the data, or of a chunk
  std::span<const int64_t> counts;  // per rank, where they differ
  DType dtype = DType::kUInt8;
};

class OpenOperation;

// What operations share: the links, the memory for staging, and the list of those that have
// something to do.
struct Workshop {
  net::Transport* transport = nullptr;
  ScratchPool* scratch = nullptr;
  std::vector<OpenOperation*>* runnable = nullptr;
};

// An operation from its first greeting or call to its end: runs the steps of a program. Slots are
// kept and used again, with the memory they have grown.
//
// The life of one:
//
//   unstarted   peers have greeted; the caller has not come yet
//   copy in     ordinary memory that peers will read is copied to where they can reach it
//   gather      (large data of which some is staged) wait for all greetings, to know who stages
//   steps       the program runs
//   copy out    what peers wrote into staged memory goes to the caller's
//   finish      a mean that could not be made on the way; rounding of what travelled rounded
//   closing     wait for greetings that are missing: an operation ends OK only when every rank that
//               it had to do with has called it alike
//   done
//
// Windows. Staging large data as a whole would move it through memory three times. Programs that
// move everything through memory links are therefore run window by window, when some rank stages:
// copy in, steps, copy out for a part of the data that fits the cache, then for the next.
//
// Work comes in two kinds. Light work (posting messages, signals) is done at once; heavy work
// (copies and sums) in slices, so that other operations get their turn. Not thread-safe: under the
// engine's lock.
class OpenOperation {
 public:
  OpenOperation(const Workshop& workshop, int world);
  OpenOperation(const OpenOperation&) = delete;
  OpenOperation& operator=(const OpenOperation&) = delete;

  // What its caller knows of it.
  struct Identity {
    uint64_t id = 0;
    uint64_t sequence = 0;        // its age: order of the calls
    uint64_t world_sequence = 0;  // its number among the operations of the world, from 1; else 0
    int priority = 0;
    int64_t step = 0;
    std::string key;
    std::string group;             // empty: the world
    std::span<const int> members;  // world ranks of the group
    std::vector<int64_t> counts;   // own copy
  };
  Identity& identity() { return identity_; }
  const Identity& identity() const { return identity_; }
  std::string Name() const;  // all-reduce "grads/b3", step 7

  // Starts it. `program` outlives the operation. Greetings that came before are compared: an error
  // says how they differ.
  absl::Status Begin(const Call& call, const Descriptor& descriptor, const Program& program,
                     std::shared_ptr<Handle::Impl> handle);
  bool started() const { return phase_ != Phase::kUnstarted; }
  bool done() const { return phase_ == Phase::kDone; }
  bool all_greeted() const { return missing_ == 0; }
  const std::shared_ptr<Handle::Impl>& handle() const { return handle_; }
  const Program* program() const { return program_; }

  // Short messages of peers, by world rank. An error says that the ranks disagree. `rider`: the
  // first message of the peer, or nothing, if that comes by itself.
  absl::Status AddGreeting(int peer, const Greeting& greeting, net::ConstBytes rider);
  void AddSignal(int peer);

  // Does all light work there is.
  void RunLight();
  bool has_light() const;
  bool has_heavy() const;
  // Does heavy work on up to `budget` bytes; returns what is left of the budget.
  int64_t RunHeavy(int64_t budget);
  bool has_work() const { return runnable_; }
  // Takes it off the list of those that have something to do, if there is nothing.
  bool Rest();

  // What went wrong on a link or here, and the peer (world rank) it has to do with, or -1.
  const absl::Status& error() const { return error_; }
  int error_peer() const { return error_peer_; }
  bool error_told() const { return error_told_; }
  void set_error_told() { error_told_ = true; }

  // The world ranks that it waits for, as far as can be seen here.
  std::vector<int> WaitsFor() const;
  // Whether it waits for a greeting or signals of this world rank that have not come. (Messages
  // that cannot come end with an error by themselves.)
  bool Needs(int peer) const;

  // Makes the slot ready for another operation. REQUIRES: no request of it is open.
  void Reset();

  int64_t start_nanos = 0;  // when it was called
  int64_t seen_nanos = 0;   // when the engine first looked at its age
  int64_t late_nanos = 0;   // when it was last warned about

 private:
  enum class Phase : uint8_t {
    kUnstarted,
    kCopyIn,
    kGather,
    kSteps,
    kCopyOut,
    kFinish,
    kClosing,
    kDone
  };
  static constexpr uint32_t kStepDone = UINT32_MAX;
  struct StepRequest final : net::Request {
    void Done(const absl::Status& status) override;
    void Take(size_t offset, net::ConstBytes piece) override;
    OpenOperation* operation = nullptr;
    uint32_t step = 0;
    bool open = false;
  };
  struct Peer {
    void Reset();
    bool greeted = false;
    uint32_t signals = 0;
    std::byte* memory = nullptr;
    Greeting greeting;
    std::vector<std::byte> rider;  // that came before it was asked for
    int64_t receive = -1;          // the step that waits for the greeting: a rider may be with it
  };

  // open_operation.cc: from phase to phase
  void SetLayout(const Call& call);
  absl::Status PrepareStaging();
  void SendGreetings();
  void SetWindow(int64_t begin);
  void Open();
  void StartRound();
  void EndRound();
  absl::Status Compare(int peer, const Greeting& greeting);
  void Fail(int peer, absl::Status status);
  void MakeRunnable();

  // open_operation_steps.cc: the steps
  void Push(uint32_t step);
  void Complete(uint32_t step);
  void RunStep(uint32_t step);
  void RunSend(uint32_t index);
  const std::byte* Packed(int piece);  // what travels of a piece, rounded
  void RoundOwn();
  void RunReceive(uint32_t index);
  void PostReceive(uint32_t index);
  void TakeRider(uint32_t index, net::ConstBytes rider);
  bool IsShort(const ProgramStep& step) const;  // short enough for a rider
  void RunAwait(uint32_t index);
  void Taken(uint32_t index, size_t offset, net::ConstBytes piece);
  int64_t RunHeavyStep(int64_t budget);
  void RunSlice(const ProgramStep& step, int64_t begin, int64_t count);
  int64_t RunCopies(bool in, int64_t budget);
  int64_t RunFinish(int64_t budget);
  std::byte* PeerMemory(int peer);  // of the group; null after an error
  std::byte* OwnPiece(int piece);
  int64_t CountOf(int piece) const {
    const int data_pieces = program_->data_pieces();
    return layout_.Of(piece < data_pieces ? piece : program_->scratch[piece - data_pieces]).count;
  }
  int WorldRank(int rank) const { return identity_.members[rank]; }
  Range FinalRange() const;
  bool rounds() const { return wire_ != Wire::kAsIs; }

  const Workshop workshop_;
  Identity identity_;
  Phase phase_ = Phase::kUnstarted;
  bool runnable_ = false;
  const Program* program_ = nullptr;
  std::shared_ptr<Handle::Impl> handle_;
  Descriptor descriptor_;
  std::vector<Peer> peers_;  // by world rank
  size_t missing_ = 0;       // greetings
  absl::Status error_;
  int error_peer_ = -1;
  bool error_told_ = false;

  // The data.
  std::byte* data_ = nullptr;
  const std::byte* input_ = nullptr;
  int64_t element_bytes_ = 1;
  int64_t total_ = 0;  // elements
  Layout layout_;      // of the window
  bool staged_ = false;
  Scratch staging_;
  net::MemoryKey key_;
  int64_t window_ = 0;        // elements of a window
  int64_t window_begin_ = 0;  // of the one that runs
  bool first_round_ = true;
  std::vector<int64_t> scratch_offsets_;  // bytes
  std::vector<std::byte> scratch_;
  Wire wire_ = Wire::kAsIs;            // how it really travels
  std::vector<uint16_t> packed_;       // what travels, rounded
  std::vector<uint8_t> packed_valid_;  // per piece
  double scale_ = 1;                   // applied where sums are made

  // The steps.
  std::vector<uint32_t> waits_;  // steps that a step still waits for; kStepDone after it
  std::vector<StepRequest> requests_;
  std::vector<uint32_t> light_, heavy_;  // queues
  size_t light_head_ = 0, heavy_head_ = 0;
  uint32_t steps_done_ = 0;
  int64_t awaiting_ = -1;   // the step that waits for a signal: there is at most one
  int64_t heavy_done_ = 0;  // elements of the first heavy step
  int copy_piece_ = 0;      // copy in, copy out: where they are
  int64_t copy_done_ = 0;
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
};

}  // namespace tutti::collective
