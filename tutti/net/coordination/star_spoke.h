#pragma once

#include <memory>
#include <vector>

#include "tutti/net/coordination/control_link.h"
#include "tutti/net/coordination/star_member.h"

namespace tutti::net {

// The star of every rank but 0: one connection to rank 0.
class StarSpoke : public StarMember {
 public:
  static absl::StatusOr<std::unique_ptr<Star>> Connect(const StarOptions& options);
  ~StarSpoke() override;
  void Serve(Identity::Purpose purpose, Handler handler, Handshake::Admit admit) override;

 private:
  friend class StarJourney;  // makes it, once rank 0 has said welcome
  using StarMember::StarMember;

  absl::Status Begin(Socket socket, ControlReader reader, std::vector<std::string> places);
  void OnMessage(ControlMessage message);
  void OnHubLeft();
  void CutOff(const absl::Status& status);  // rank 0 is no longer there, or no longer itself
  void Tick();
  // Concludes with `status` unless rank 0's verdict comes soon.
  void ConcludeSoon(int rank, const absl::Status& status);
  void SendCall(ControlMessage part) override;
  void HandleLost(int rank, const absl::Status& status) override;
  void HandleFailure(const absl::Status& status) override;
  void Farewell();

  std::unique_ptr<ControlLink> link_;  // null once rank 0 has gone
  std::vector<bool> left_;             // by rank: left on purpose
  uint64_t open_call_ = 0;
};

}  // namespace tutti::net
