#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tutti/collective/engine/handle.h"
#include "tutti/collective/operation/call.h"
#include "tutti/collective/operation/envelope.h"
#include "tutti/collective/operation/operation_data.h"
#include "tutti/collective/operation/operation_peers.h"
#include "tutti/collective/operation/rank_program.h"
#include "tutti/collective/operation/rounded_pieces.h"
#include "tutti/collective/operation/scratch_pool.h"
#include "tutti/collective/operation/step_runner.h"
#include "tutti/net/transport.h"

namespace tutti::collective {

class OpenOperation;

// What operations share: the links, the memory for staging, and the list of those that have
// something to do.
struct Workshop {
  net::Transport* transport = nullptr;
  ScratchPool* scratch = nullptr;
  std::vector<OpenOperation*>* runnable = nullptr;
};

// An operation from its first envelope or call to its end. Takes it from phase to phase; its data,
// what peers say and the steps are parts of their own. Slots are kept and used again, with the
// memory they have grown.
//
// The life of one:
//
//   unstarted   envelopes of peers are here; the caller has not come yet
//   copy in     ordinary memory that peers will read is copied to where they can reach it
//   gather      wait for all envelopes: of large data of which some is staged, to know who stages;
//               of data that goes with the envelopes, since they bring all there is to add up
//   steps       the program runs; not where the envelopes have brought everything
//   copy out    what peers wrote into staged memory goes to the caller's
//   finish      a mean that could not be made on the way; rounding of what travelled rounded
//   closing     wait for envelopes that are missing: an operation ends OK only when every rank that
//               it had to do with has called it alike
//   done
//
// Work comes in two kinds. Light work (posting messages, signals) is done at once; heavy work
// (copies and sums) in slices, so that other operations get their turn. Not thread-safe: under the
// engine's lock.
class OpenOperation final : private StepRunner::Owner {
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
    std::string_view group;        // the group's own name; empty: the world
    std::span<const int> members;  // world ranks of the group
  };
  Identity& identity() { return identity_; }
  const Identity& identity() const { return identity_; }
  std::string Name() const;  // all-reduce "grads/b3", step 7

  // Starts it. `program` outlives the operation. Envelopes that came before are compared: an error
  // says how they differ.
  absl::Status Begin(const Call& call, const Descriptor& descriptor, const RankProgram& program,
                     std::shared_ptr<Handle::Impl> handle);
  bool started() const { return phase_ != Phase::kUnstarted; }
  bool done() const { return phase_ == Phase::kDone; }
  bool has_all_envelopes() const { return peers_.missing() == 0; }
  const std::shared_ptr<Handle::Impl>& handle() const { return handle_; }

  // Short messages of peers, by world rank. An error says that the ranks disagree. `piggyback`: the
  // first message of the peer, or nothing, if that comes by itself.
  absl::Status AddEnvelope(int peer, const Envelope& envelope, net::ConstBytes piggyback);
  void AddSignal(int peer);

  // Does all light work there is.
  void RunLight();
  bool has_light() const;
  bool has_heavy() const;
  // Does heavy work on up to `budget` bytes; returns what is left of the budget.
  int64_t RunHeavy(int64_t budget);
  // Takes it off the list of those that have something to do, if there is nothing.
  bool Rest();

  // What went wrong on a link or here, and the peer (world rank) it has to do with, or -1.
  const absl::Status& error() const { return error_; }
  int error_peer() const { return error_peer_; }
  bool error_told() const { return error_told_; }
  void set_error_told() { error_told_ = true; }

  // The world ranks that it waits for, as far as can be seen here.
  std::vector<int> WaitsFor() const;
  // Whether it waits for an envelope or signals of this world rank that have not come. (Messages
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

  void StepsCanGoOn() override { MakeRunnable(); }
  void StepFailed(int world_rank, absl::Status status) override;

  void SendEnvelopes();
  void Open();
  void EndGather();
  bool SumPiggybacks();
  void StartWindow();
  void EndWindow();
  int64_t RunCopies(bool in, int64_t budget);
  int64_t RunFinish(int64_t budget);
  Range FinalRange() const;
  bool ScalesAtEnd() const;
  absl::Status Compare(int peer, const Envelope& envelope);
  void MakeRunnable();

  const Workshop workshop_;
  Identity identity_;
  Phase phase_ = Phase::kUnstarted;
  bool runnable_ = false;
  bool gathers_piggybacks_ = false;  // all that is to be added up comes with the envelopes
  const RankProgram* program_ = nullptr;
  std::shared_ptr<Handle::Impl> handle_;
  Descriptor descriptor_;
  absl::Status error_;
  int error_peer_ = -1;
  bool error_told_ = false;
  int64_t finished_ = 0;  // elements that RunFinish is done with

  OperationData data_;
  OperationPeers peers_;
  RoundedPieces rounded_;
  StepRunner steps_;
};

}  // namespace tutti::collective
