#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/cluster/remote/peer.h"
#include "tutti/runtime/executor/lane_threads.h"
#include "tutti/runtime/local_master.h"

namespace tutti {

// The masters of sessions whose clients are other processes, one LocalMaster each over a copy of
// the client's graph. A session belongs to the client that created it and ends with it: its steps
// end, and what they registered is freed. Every method returns at once. Thread-safe.
class MasterService {
 public:
  // `make_master` makes the master of a session: the workers of all tasks, with this one as home.
  using MakeMaster = std::function<std::unique_ptr<Master>(const CompileOptions&)>;
  explicit MasterService(MakeMaster make_master);
  ~MasterService();  // REQUIRES: all clients are lost, and no call comes any more

  // On the link; answered on it.
  void Run(const std::shared_ptr<Peer>& client, uint64_t call, PeerMessage message);

  // Control. Replies of Create: the number of the session.
  void Create(const std::shared_ptr<Peer>& client, std::string fields, std::vector<Tensor> tensors,
              ControlDone done);
  void Extend(const std::shared_ptr<Peer>& client, std::string fields, std::vector<Tensor> tensors,
              ControlDone done);
  void Abort(const std::shared_ptr<Peer>& client, std::string_view fields, ControlDone done);
  void CleanUp(const std::shared_ptr<Peer>& client, std::string_view fields, ControlDone done);
  void Close(const std::shared_ptr<Peer>& client, std::string_view fields, ControlDone done);
  // Replies with what Master::Explain gives.
  void Explain(const std::shared_ptr<Peer>& client, std::string_view fields, ControlDone done);

  void PeerLost(const Peer& peer);

  int64_t sessions() const;

 private:
  struct Session;
  static std::shared_ptr<Session> MakeSession();
  std::shared_ptr<Session> Find(const Peer* client, uint64_t number) const;
  void CreateNow(const std::shared_ptr<Peer>& client, std::string_view fields,
                 const std::vector<Tensor>& tensors, const ControlDone& done);
  void RunNow(const std::shared_ptr<Session>& session, uint64_t call, MasterRunRequest request);

  const MakeMaster make_master_;
  mutable std::mutex mutex_;
  uint64_t next_ = 1;
  std::map<uint64_t, std::shared_ptr<Session>> sessions_;
  std::vector<std::shared_ptr<Session>> ended_;  // for whose end there was no thread
  LaneThreads threads_;                          // last: its jobs use the rest
};

}  // namespace tutti
