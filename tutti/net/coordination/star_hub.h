#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tutti/net/coordination/control_link.h"
#include "tutti/net/coordination/meeting_file.h"
#include "tutti/net/coordination/star_door.h"
#include "tutti/net/coordination/star_member.h"

namespace tutti::net {

// Rank 0's star: it admits the ranks, receives their heartbeats, combines their calls, and decides
// what the first cause of a failure was.
class StarHub : public StarMember {
 public:
  static absl::StatusOr<std::unique_ptr<Star>> Connect(const StarOptions& options);
  ~StarHub() override;
  void Serve(Identity::Purpose purpose, Handler handler, Handshake::Admit admit) override;

 private:
  enum class Presence : uint8_t { kAbsent, kHere, kLeft, kDead };
  struct Peer {
    Presence presence = Presence::kAbsent;
    std::unique_ptr<ControlLink> link;  // while it is here
    std::string trouble;                // why it is not here yet, where that is known
  };
  // A gather or broadcast that some ranks have called and not all.
  struct OpenCall {
    ControlMessage first;  // without its bytes
    int first_rank = 0;
    std::vector<std::optional<std::string>> parts;
    int missing = 0;
    size_t bytes = 0;
    int64_t since = 0;
    absl::Status error;
  };

  using StarMember::StarMember;

  // Starting: star_hub_start.cc.
  absl::StatusOr<Socket> OpenListener(int64_t deadline) const;
  absl::Status Listen(int64_t deadline);
  absl::Status WaitForAll(int64_t deadline);
  Refusal Admit(const Identity& peer, std::string* text) const;
  absl::Status Join(const Identity& peer, const std::string& host, const ControlMessage& join,
                    std::unique_ptr<ControlLink>* link);
  absl::Status CheckFingerprint(int rank, const std::vector<std::string>& lines) const;
  void TellWhoIsMissing();
  std::string MissingRanks() const;
  void GiveUpStarting(const absl::Status& status);
  void BeginIfComplete();

  // Judging: star_hub.cc.
  void OnMessage(int rank, ControlMessage message);
  void OnBad(int rank, const absl::Status& why);
  void OnClosed(int rank, const std::string& how);
  void OnLeave(int rank);
  void Tick();
  void SendToAll(const ControlMessage& message);
  void Decide(int rank, const absl::Status& status);
  void Lost(int by, int rank, const absl::Status& status);
  void SendCall(ControlMessage part) override;
  void HandleLost(int rank, const absl::Status& status) override;
  void HandleFailure(const absl::Status& status) override;
  void Farewell();

  // Calls: star_hub_calls.cc.
  void TakePart(int rank, ControlMessage part);
  void AddPart(int rank, ControlMessage part);
  void FinishOpenCall();
  void FailOpenCall(const absl::Status& status);
  void Answer(int rank, const ControlMessage& result);
  void WarnOfLateCall();

  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  const Peer& peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }

  std::vector<Peer> peers_;
  std::unique_ptr<StarDoor> door_;
  std::optional<MeetingFile> meeting_;
  uint16_t port_number_ = 0;
  bool complete_ = false;
  int strangers_ = 0;  // refused connections that named no rank
  std::string last_stranger_;
  std::string shortage_;  // of descriptors, when one was last felt
  std::unique_ptr<OpenCall> call_;
  uint64_t calls_done_ = 0;
  int left_rank_ = kNoRank;  // the first that left
  // A reported loss that says more than that a link is gone, if there is one.
  std::pair<int, absl::Status> reason_ = {kNoRank, absl::OkStatus()};
  int64_t warned_ = 0;

  std::mutex start_mutex_;
  std::condition_variable start_changed_;
  std::optional<absl::Status> started_;  // guarded by start_mutex_
};

}  // namespace tutti::net
