#include "tutti/collective/operation/operation_peers.h"

#include <algorithm>

#include "tutti/base/status.h"

namespace tutti::collective {

void OperationPeers::Begin(const RankProgram& program, std::span<const int> members) {
  program_ = &program;
  members_ = members;
  missing_ = program.peers.size();
  for (const RankProgram::Peer& peer : program.peers) {
    if (Member(peer.rank).has_envelope) --missing_;
  }
}

void OperationPeers::End() {
  program_ = nullptr;
  missing_ = 0;
  for (Peer& peer : peers_) {
    peer.has_envelope = false;
    peer.signals = 0;
    peer.memory = nullptr;
    peer.piggyback.clear();
    peer.receive.reset();
  }
}

std::vector<int> OperationPeers::Missing() const {
  std::vector<int> ranks;
  for (const RankProgram::Peer& peer : program_->peers) {
    const int rank = WorldRank(peer.rank);
    if (!peers_[rank].has_envelope) ranks.push_back(rank);
  }
  return ranks;
}

bool OperationPeers::SomeStage() const {
  return std::any_of(program_->peers.begin(), program_->peers.end(), [this](const auto& peer) {
    const Peer& state = peers_[WorldRank(peer.rank)];
    return state.has_envelope && state.envelope.ordinary;
  });
}

absl::StatusOr<std::byte*> OperationPeers::Memory(int rank, const OperationData& data) {
  const int world_rank = WorldRank(rank);
  Peer& peer = peers_[world_rank];
  if (peer.memory == nullptr) {
    const int64_t reach =
        peer.envelope.ordinary ? std::min(data.window(), data.total()) : data.total();
    auto memory = transport_->Map(world_rank, peer.envelope.memory,
                                  static_cast<size_t>(reach * data.element_bytes()));
    if (!memory.ok()) {
      return WithPrefix(memory.status(),
                        "cannot reach the memory of rank " + std::to_string(world_rank) + ": ");
    }
    peer.memory = *memory;
  }
  return peer.memory + (peer.envelope.ordinary ? 0 : data.window_begin() * data.element_bytes());
}

}  // namespace tutti::collective
