#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "tutti/collective/operation/envelope.h"
#include "tutti/collective/operation/operation_data.h"
#include "tutti/collective/operation/operation_peers.h"
#include "tutti/collective/operation/rank_program.h"
#include "tutti/collective/operation/rounded_pieces.h"
#include "tutti/net/transport.h"

namespace tutti::collective {

// Runs the steps of a program on an operation's data, once for each window. A step is queued when
// those that it waits for are done. Light steps (messages, signals) are run at once; heavy ones
// (copies and sums) in slices, so that other operations get their turn.
//
// Used again for other operations. Not thread-safe.
class StepRunner {
 public:
  // Who runs it.
  class Owner {
   public:
    virtual void StepsCanGoOn() = 0;
    virtual void StepFailed(int world_rank, absl::Status status) = 0;

   protected:
    ~Owner() = default;
  };
  StepRunner(net::Transport* transport, Owner* owner, OperationData* data, OperationPeers* peers,
             RoundedPieces* rounded)
      : transport_(transport), owner_(*owner), data_(*data), peers_(*peers), rounded_(*rounded) {}
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // `scale` is applied where sums are made at one go. `program` outlives the operation.
  void Begin(const RankProgram& program, const Descriptor& descriptor, uint64_t id, double scale);
  // Starts the steps on the window that `data` has come to.
  void StartWindow();
  void End() { program_ = nullptr; }

  bool done() const { return steps_done_ == program_->steps.size(); }
  bool has_light() const { return light_head_ < light_.size(); }
  bool has_heavy() const { return heavy_head_ < heavy_.size(); }
  void RunNextLight() { RunStep(light_[light_head_++]); }
  // Up to `budget` bytes of the next heavy step; returns what is left of the budget.
  int64_t RunHeavy(int64_t budget);

  // A signal of this rank has come, and is counted: a step that awaits it goes on.
  void Signalled(int world_rank);
  // The envelope of the rank has arrived, with its first message (`piggyback`) or without.
  void EnvelopeArrived(int world_rank, net::ConstBytes piggyback);
  // A message short enough goes with the envelope. Rounded data does not: it is packed later.
  bool IsShort(const ProgramStep& step) const {
    return !rounded_.active() && data_.BytesOf(step.piece) <= static_cast<int64_t>(kPiggybackBytes);
  }

  // The world ranks whose signals or messages are missing.
  std::vector<int> WaitsFor() const;
  // How many signals of a rank of the group have still to be awaited.
  uint32_t AwaitsOf(int rank) const;

 private:
  static constexpr uint32_t kStepDone = UINT32_MAX;
  struct StepRequest final : net::Request {
    void Done(const absl::Status& status) override;
    void Take(size_t offset, net::ConstBytes piece) override;
    StepRunner* runner = nullptr;
    uint32_t step = 0;
    bool open = false;
  };

  void Push(uint32_t step);
  void Complete(uint32_t step);
  void RunStep(uint32_t step);
  void RunSend(uint32_t index);
  void RunSignal(uint32_t index);
  void RunReceive(uint32_t index);
  void PostReceive(uint32_t index);
  void TakePiggyback(uint32_t index, net::ConstBytes piggyback);
  void Taken(uint32_t index, size_t offset, net::ConstBytes piece);
  void RunAwait(uint32_t index);
  bool RunSlice(const ProgramStep& step, int64_t begin, int64_t count);
  bool FindTargets(const ProgramStep& step, int64_t offset);

  net::Transport* const transport_;
  Owner& owner_;
  OperationData& data_;
  OperationPeers& peers_;
  RoundedPieces& rounded_;

  const RankProgram* program_ = nullptr;
  Reduction reduction_ = Reduction::kSum;
  DType dtype_ = DType::kInvalid;
  uint64_t id_ = 0;
  double scale_ = 1;
  std::vector<uint32_t> waits_;  // steps that a step still waits for; kStepDone after it
  std::vector<StepRequest> requests_;
  std::vector<uint32_t> light_, heavy_;  // queues
  size_t light_head_ = 0, heavy_head_ = 0;
  uint32_t steps_done_ = 0;
  std::optional<uint32_t> awaiting_;  // the step that waits for a signal: there is at most one
  int64_t heavy_done_ = 0;            // elements of the first heavy step
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
};

}  // namespace tutti::collective
