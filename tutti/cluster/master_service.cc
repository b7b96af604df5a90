#include "tutti/cluster/master_service.h"

#include <malloc.h>

#include <utility>

#include "tutti/base/awaited.h"
#include "tutti/graph/check_graph.h"
#include "tutti/graph/serialize.h"
#include "tutti/net/wire.h"

namespace tutti {
namespace {

// A graph of more nodes is refused; training graphs have some thousands.
constexpr int64_t kMostNodes = int64_t{1} << 22;
constexpr int64_t kManyNodes = int64_t{1} << 16;  // whose memory is worth being returned

// Appends nodes that a client sent to its graph.
absl::Status Grow(std::string_view bytes, const std::vector<Tensor>& tensors, Graph& graph) {
  TUTTI_RETURN_IF_ERROR(ParseSerializedNodes(bytes, tensors, graph.size(), &graph, kMostNodes));
  return CheckUserGraph(graph);
}

}  // namespace

struct MasterService::Session {
  uint64_t number = 0;
  std::shared_ptr<Peer> client;
  Graph graph;
  // Runs read the graph, Extend writes it.
  std::shared_mutex growing;
  absl::Status broken;             // not OK: an Extend failed half-way
  std::unique_ptr<Master> master;  // last: it ends before the graph
};

// A session whose end returns the memory of a large graph to the system: malloc keeps what was
// freed in small pieces, 600 MB after a graph of a million nodes.
std::shared_ptr<MasterService::Session> MasterService::MakeSession() {
  return {new Session, [](Session* session) {
            const bool large = session->graph.size() >= kManyNodes;
            delete session;
            if (large) malloc_trim(0);
          }};
}

MasterService::MasterService(MakeMaster make_master) : make_master_(std::move(make_master)) {}
MasterService::~MasterService() = default;

int64_t MasterService::sessions() const {
  std::lock_guard lock(mutex_);
  return int64_t(sessions_.size());
}

std::shared_ptr<MasterService::Session> MasterService::Find(const Peer* client,
                                                            uint64_t number) const {
  std::lock_guard lock(mutex_);
  const auto it = sessions_.find(number);
  return it != sessions_.end() && it->second->client.get() == client ? it->second : nullptr;
}

void MasterService::Create(const std::shared_ptr<Peer>& client, std::string fields,
                           std::vector<Tensor> tensors, ControlDone done) {
  threads_.Post([this, client, fields = std::move(fields), tensors = std::move(tensors),
                 done = std::move(done)] {
    try {
      CreateNow(client, fields, tensors, done);
    } catch (...) {
      done(StatusFromCurrentException());
    }
  });
}

void MasterService::CreateNow(const std::shared_ptr<Peer>& client, std::string_view fields,
                              const std::vector<Tensor>& tensors, const ControlDone& done) {
  net::WireReader in(fields);
  CompileOptions options;
  options.optimize = in.U8() != 0;
  options.soft_placement = in.U8() != 0;
  const uint8_t placement = in.U8();
  if (!in.ok()) {
    done(InvalidArgument("a request for a session that is cut off"));
    return;
  }
  if (placement > uint8_t(PlacementMethod::kSearch)) {
    done(InvalidArgument("a request for a session with placement {}; expected 0 to {}", placement,
                         int(PlacementMethod::kSearch)));
    return;
  }
  options.placement = PlacementMethod(placement);
  std::shared_ptr<Session> session = MakeSession();
  session->client = client;
  if (absl::Status status = Grow(fields.substr(3), tensors, session->graph); !status.ok()) {
    done(std::move(status));
    return;
  }
  session->master = make_master_(options);
  Awaited<absl::Status> created;
  session->master->Create(session->graph,
                          [&created](absl::Status status) { created.Set(std::move(status)); });
  if (absl::Status status = created.Wait(); !status.ok()) {
    done(std::move(status));
    return;
  }
  WireMessage reply;
  {
    std::lock_guard lock(mutex_);
    // PeerLost may have come already, and finds no session then.
    if (client->status().ok()) {
      session->number = next_++;
      net::WireWriter(&reply.fields).U64(session->number);
      sessions_.emplace(session->number, std::move(session));
    }
  }
  if (reply.fields.empty()) {
    done(client->status());
    return;
  }
  done(std::move(reply.fields));
}

void MasterService::Extend(const std::shared_ptr<Peer>& client, std::string fields,
                           std::vector<Tensor> tensors, ControlDone done) {
  threads_.Post([this, client, fields = std::move(fields), tensors = std::move(tensors),
                 done = std::move(done)] {
    net::WireReader in(fields);
    const uint64_t number = in.U64();
    const std::shared_ptr<Session> session = Find(client.get(), number);
    if (session == nullptr) {
      done(NotFound("there is no session {}", number));
      return;
    }
    std::unique_lock lock(session->growing);
    absl::Status status = session->broken;
    if (status.ok()) {
      try {
        status = Grow(std::string_view(fields).substr(8), tensors, session->graph);
      } catch (...) {
        status = StatusFromCurrentException();
      }
      if (!status.ok()) {
        session->broken =
            WithPrefix(status, "the session's graph could not be extended, which ended it: ");
      }
    }
    lock.unlock();
    done(status.ok() ? absl::StatusOr<std::string>(std::string()) : status);
  });
}

void MasterService::Run(const std::shared_ptr<Peer>& client, uint64_t call, PeerMessage message) {
  client->Taken(message.tensor_bytes());
  net::WireReader in(message.fields);
  const uint64_t number = in.U64();
  const std::shared_ptr<Session> session = Find(client.get(), number);
  if (!in.ok() || session == nullptr) {
    client->AnswerError(call, NotFound("there is no session {}", number));
    return;
  }
  absl::StatusOr<MasterRunRequest> request =
      DecodeMasterRun(message.fields.substr(8), message.tensors);
  if (!request.ok()) {
    client->AnswerError(call, request.status());
    return;
  }
  try {
    threads_.Post(
        [this, session, call, kept = std::make_shared<MasterRunRequest>(*std::move(request))] {
          RunNow(session, call, std::move(*kept));
        });
  } catch (...) {
    client->AnswerError(call, StatusFromCurrentException());
  }
}

void MasterService::RunNow(const std::shared_ptr<Session>& session, uint64_t call,
                           MasterRunRequest request) {
  std::shared_lock lock(session->growing);
  if (!session->broken.ok()) {
    session->client->AnswerError(call, session->broken);
    return;
  }
  // The client is held, not the session: its destructor waits for this answer.
  session->master->Run(
      std::move(request),
      [client = session->client, call](RunResponse&& response) { client->Answer(call, response); });
}

void MasterService::Explain(const std::shared_ptr<Peer>& client, std::string_view fields,
                            ControlDone done) {
  net::WireReader in(fields);
  const uint64_t number = in.U64();
  std::shared_ptr<Session> session = Find(client.get(), number);
  if (!in.Complete() || session == nullptr) {
    done(NotFound("there is no session {}", number));
    return;
  }
  threads_.Post([session = std::move(session), done = std::move(done)] {
    std::shared_lock lock(session->growing);
    session->master->Explain(done);
  });
}

void MasterService::Abort(const std::shared_ptr<Peer>& client, std::string_view fields,
                          ControlDone done) {
  constexpr size_t kFixed = 16;
  net::WireReader in(fields);
  const uint64_t number = in.U64();
  const int64_t step = in.I64();
  const std::shared_ptr<Session> session = Find(client.get(), number);
  absl::Status reason = in.ok() ? DecodeStatus(fields.substr(kFixed)) : absl::OkStatus();
  if (session == nullptr || reason.ok()) {
    done(NotFound("there is no session {}", number));
    return;
  }
  session->master->Abort(step, std::move(reason));
  done(std::string());
}

void MasterService::CleanUp(const std::shared_ptr<Peer>& client, std::string_view fields,
                            ControlDone done) {
  net::WireReader in(fields);
  const uint64_t number = in.U64();
  const int64_t step = in.I64();
  const std::shared_ptr<Session> session = Find(client.get(), number);
  if (!in.Complete() || session == nullptr) {
    done(NotFound("there is no session {}", number));
    return;
  }
  session->master->CleanUp(step);
  done(std::string());
}

void MasterService::Close(const std::shared_ptr<Peer>& client, std::string_view fields,
                          ControlDone done) {
  net::WireReader in(fields);
  const uint64_t number = in.U64();
  std::shared_ptr<Session> session = Find(client.get(), number);
  if (session == nullptr) {
    done(NotFound("there is no session {}", number));
    return;
  }
  {
    std::lock_guard lock(mutex_);
    sessions_.erase(number);
  }
  // The master waits for its steps, so it goes on a thread that may.
  threads_.Post([session = std::move(session), done = std::move(done)]() mutable {
    session->master->Close([](const absl::Status&) {});
    session.reset();
    done(std::string());
  });
}

void MasterService::PeerLost(const Peer& peer) {
  std::vector<std::shared_ptr<Session>> gone;
  {
    std::lock_guard lock(mutex_);
    for (auto it = sessions_.begin(); it != sessions_.end();) {
      if (it->second->client.get() == &peer) {
        gone.push_back(std::move(it->second));
        it = sessions_.erase(it);
      } else {
        ++it;
      }
    }
  }
  for (std::shared_ptr<Session>& session : gone) {
    // Shared with the job, so that it is still here if the job cannot be posted.
    const auto kept = std::make_shared<std::shared_ptr<Session>>(std::move(session));
    const auto close = [kept] { (*kept)->master->Close([](const absl::Status&) {}); };
    try {
      threads_.Post([kept, close] {
        close();
        kept->reset();  // waits for its steps
      });
    } catch (...) {
      // No thread was left. Its steps end, and its memory comes back with the service's.
      close();
      std::lock_guard lock(mutex_);
      ended_.push_back(std::move(*kept));
    }
  }
}

}  // namespace tutti
