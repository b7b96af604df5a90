#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/collective/operation/envelope.h"
#include "tutti/collective/operation/operation_data.h"
#include "tutti/collective/operation/rank_program.h"
#include "tutti/net/transport.h"

namespace tutti::collective {

// What has arrived from the other ranks for one operation: envelopes, signals that were not awaited
// yet, and where each rank's data can be reached. Envelopes may arrive before the local call.
// Reused for later operations. Not thread-safe.
class OperationPeers {
 public:
  struct Peer {
    bool has_envelope = false;
    uint32_t signals = 0;
    std::byte* memory = nullptr;  // mapped at the first use
    Envelope envelope;
    std::vector<std::byte> piggyback;  // that came before it was asked for
    std::optional<uint32_t> receive;   // the step that waits for the envelope and its piggyback
  };

  OperationPeers(net::Transport* transport, int world) : transport_(transport), peers_(world) {}

  // The call has come. `members`: the world ranks of the group.
  void Begin(const RankProgram& program, std::span<const int> members);
  void End();

  Peer& operator[](int world_rank) { return peers_[world_rank]; }
  const Peer& operator[](int world_rank) const { return peers_[world_rank]; }
  int size() const { return static_cast<int>(peers_.size()); }
  int WorldRank(int rank) const { return members_[rank]; }
  Peer& Member(int rank) { return peers_[members_[rank]]; }

  // Envelopes of the program's peers that have not come.
  size_t missing() const { return missing_; }
  void CountEnvelope() { missing_ -= missing_ > 0 ? 1 : 0; }
  std::vector<int> Missing() const;  // their world ranks
  // Some peer has its data in ordinary memory.
  bool SomeStage() const;

  // Where the window that runs begins in the memory of a rank of the group. A peer that stages has
  // only the window there.
  absl::StatusOr<std::byte*> Memory(int rank, const OperationData& data);

 private:
  net::Transport* const transport_;
  std::vector<Peer> peers_;  // by world rank
  const RankProgram* program_ = nullptr;
  std::span<const int> members_;
  size_t missing_ = 0;
};

}  // namespace tutti::collective
