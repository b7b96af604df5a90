// What a client may send to the master's service of a task, whatever bytes it is: graphs,
// extensions of them, runs, and calls that end runs and sessions. Every call and every run is
// answered once, and a client that is gone leaves no session and no step behind.
//
// Input: messages, each a kind (its lowest bits), a length of two bytes, the lower first, and so
// many bytes of fields. A session 0 stands for the one that every input begins with; other sessions
// get graphs, but are not run: a graph can ask for any amount of time and memory.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/base/awaited.h"
#include "tutti/base/check.h"
#include "tutti/base/status.h"
#include "tutti/cluster/master_service.h"
#include "tutti/graph/graph.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/serialize.h"
#include "tutti/kernels/register.h"
#include "tutti/net/link/links.h"
#include "tutti/net/wire.h"
#include "tutti/runtime/local_master.h"
#include "tutti/runtime/local_worker.h"

namespace {

using namespace tutti;

constexpr const char* kTask = "/job:w/task:0";

// Counts answers; everything else is dropped.
class CountingLink final : public net::Link {
 public:
  const net::TaskIdentity& peer() const override { return peer_; }
  net::LinkKind kind() const override { return net::LinkKind::kSocket; }
  std::string Describe() const override { return peer_.task + " (a fuzzer)"; }
  void Send(std::string header, std::vector<net::Payload>) override {
    if (header.empty() || header[0] != char(DataKind::kAnswer)) return;
    ++answers;
    answers.notify_one();
  }
  void SendCounted(std::string, std::vector<net::Payload>) override {}
  void Taken(uint64_t) override {}
  void Close(absl::Status) override {}
  Counters counters() const override { return {}; }

  std::atomic<int> answers = 0;

 private:
  const net::TaskIdentity peer_{std::string(net::kClientTask), 1};
};

// One worker for all inputs, and the request for the session that each begins with: a sum, and a
// step that waits until somebody ends it.
struct Bench {
  Bench() {
    RegisterCpuKernels();
    worker = std::make_shared<LocalWorker>(LocalWorkerOptions{.job = "w", .cores = 1});
    Graph graph;
    const Output x = Placeholder(graph, kFloat32, {2}, "x");
    Add(x, Constant(graph, Tensor::Of<float>({2}, {1, 2}), "c"), "y");
    Dequeue(FIFOQueue(graph, {{kFloat32, Shape{}}}, {}, "queue"), "never");
    WireMessage message;
    message.fields.assign(3, '\0');  // no passes, no soft placement, manual placement
    absl::StatusOr<std::string> nodes = SerializeNodes(graph, 0, message.tensors);
    TUTTI_CHECK(nodes.ok());
    create = message.fields + *nodes;
    tensors = std::move(message.tensors);
  }
  std::shared_ptr<LocalWorker> worker;
  std::string create;
  std::vector<Tensor> tensors;
};

enum Kind : uint8_t { kCreate, kExtend, kRun, kAbort, kCleanUp, kClose, kExplain, kKinds };

// Puts the number of the first session in place of 0. Only that one is run, and only others are
// extended: these calls get a number that no session has instead.
void NameSession(Kind kind, uint64_t first, std::string& fields) {
  constexpr uint64_t kNone = uint64_t{1} << 63;
  uint64_t named = 0;
  if (kind == kCreate || fields.size() < sizeof named) return;
  std::memcpy(&named, fields.data(), sizeof named);
  if (named == 0) named = first;
  if ((kind == kRun && named != first) || (kind == kExtend && named == first)) named |= kNone;
  std::memcpy(fields.data(), &named, sizeof named);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Bench* const bench = new Bench;
  constexpr size_t kHead = 3;
  constexpr int kMostCalls = 32;
  CountingLink link;
  const auto client = std::make_shared<Peer>(link, link.peer(), net::TaskIdentity{kTask, 1});
  int runs = 0, calls = 0;
  std::atomic<int> replies = 0;
  {
    MasterService service([](const CompileOptions& options) -> std::unique_ptr<Master> {
      return std::make_unique<LocalMaster>(WorkersByTask{{kTask, bench->worker}}, kTask, options,
                                           LocalMaster::kMostSteps, bench->worker->homes());
    });
    Awaited<absl::StatusOr<std::string>> created;
    service.Create(client, bench->create, bench->tensors,
                   [&](auto reply) { created.Set(std::move(reply)); });
    const absl::StatusOr<std::string> reply = created.Wait();
    TUTTI_CHECK(reply.ok());
    const uint64_t first = net::WireReader(*reply).U64();
    const ControlDone count = [&replies](const auto&) {
      ++replies;
      replies.notify_one();
    };
    std::string_view rest(reinterpret_cast<const char*>(data), size);
    while (rest.size() >= kHead && runs + calls < kMostCalls) {
      const auto kind = Kind(uint8_t(rest[0]) % kKinds);
      const size_t length = uint8_t(rest[1]) | size_t{uint8_t(rest[2])} << 8;
      std::string fields(rest.substr(kHead, length));
      rest.remove_prefix(kHead + fields.size());
      NameSession(kind, first, fields);
      if (kind == kRun) {
        service.Run(client, uint64_t(++runs), {fields, {}, fields.size()});
        continue;
      }
      ++calls;
      switch (kind) {
        case kCreate:
          service.Create(client, std::move(fields), {}, count);
          break;
        case kExtend:
          service.Extend(client, std::move(fields), {}, count);
          break;
        case kAbort:
          service.Abort(client, fields, count);
          break;
        case kCleanUp:
          service.CleanUp(client, fields, count);
          break;
        case kClose:
          service.Close(client, fields, count);
          break;
        case kRun:
        case kExplain:
        case kKinds:
          service.Explain(client, fields, count);
          break;
      }
    }
    // A call that comes after the end of its client would make a session that stays.
    for (int seen = replies; seen != calls; seen = replies) replies.wait(seen);
    service.PeerLost(*client);
    TUTTI_CHECK(service.sessions() == 0);
    for (int seen = link.answers; seen < runs; seen = link.answers) link.answers.wait(seen);
  }
  TUTTI_CHECK(replies == calls);
  TUTTI_CHECK(link.answers == runs);
  TUTTI_CHECK(bench->worker->rendezvous().size() == 0);
  return 0;
}
