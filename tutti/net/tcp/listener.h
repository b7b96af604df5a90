#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tutti/net/handshake.h"
#include "tutti/net/poller.h"
#include "tutti/net/refusal_log.h"
#include "tutti/net/socket.h"
#include "tutti/net/tcp/greeting.h"

namespace tutti::net::tcp {

struct Shared;

// Accepts connections, and hands over those that have proved who they are. All others cost one log
// line and leave nothing behind: those that say something wrong, those that say nothing in time,
// and when too many have not spoken yet, the ones that have been silent longest.
class Listener final : public EventHandler {
 public:
  using Adopt = std::function<void(const Identity& peer, Socket socket)>;

  Listener(Shared* shared, Handshake::Admit admit, Adopt adopt);
  ~Listener();

  absl::Status Open();
  const std::string& endpoint() const { return endpoint_; }

  void OnEvents(uint32_t events) override;
  // Refuses who has been silent for too long.
  void CheckDeadlines(int64_t now);
  // Forgets the connections that are over. REQUIRES: no event is being handled.
  void Sweep();

 private:
  class Pending;

  void Add(Socket socket, const Address& from);
  void RefuseForWantOfDescriptors();
  void LogRefusal(const std::string& from, std::string_view why);

  Shared* const shared_;
  const Handshake::Admit admit_;
  const Adopt adopt_;
  Socket socket_;
  Socket
      spare_;  // given up to accept, and so refuse, a connection when there are no descriptors left
  std::string endpoint_;
  RefusalLog refusals_;
  std::list<std::unique_ptr<Pending>> pending_;  // oldest first
  int waiting_ = 0;                              // of pending_, those that are not over
};

}  // namespace tutti::net::tcp
