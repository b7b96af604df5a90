// What a master and other tasks may send to a worker's service on a link, whatever bytes it is:
// runs, values, and control calls that end steps. Every run is answered once, the steps of a master
// that is gone leave nothing behind, and what is read as a message is written as one that is read
// alike.
//
// Input: messages, each a kind (its lowest bits), a length and so many bytes of fields. A run whose
// handle is 0 is given that of the plan which this master has registered.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tutti/base/awaited.h"
#include "tutti/base/check.h"
#include "tutti/base/status.h"
#include "tutti/cluster/cluster_rendezvous.h"
#include "tutti/cluster/worker_service.h"
#include "tutti/compile/program_text.h"
#include "tutti/kernels/register.h"
#include "tutti/net/wire.h"

namespace {

using namespace tutti;

constexpr uint64_t kSession = 7;
// Runs as a step that waits for a value of the master's task, and one that only computes.
constexpr std::string_view kProgram =
    "x = Placeholder() {dtype=float32, shape=[2]}\n"
    "r = Recv() {dtype=float32, key=\"/job:m/task:0/cpu:0;/job:w/task:0/cpu:0;k\", shape=[2]}\n"
    "y = Add(x, r)\n"
    "feed x\nfetch y\n";

// Counts answers; everything else is dropped.
class CountingLink final : public net::Link {
 public:
  const net::TaskIdentity& peer() const override { return peer_; }
  net::LinkKind kind() const override { return net::LinkKind::kSocket; }
  std::string Describe() const override { return peer_.task + " (a fuzzer)"; }
  void Send(std::string header, std::vector<net::Payload>) override {
    if (!header.empty() && header[0] == char(DataKind::kAnswer)) ++answers;
  }
  void SendCounted(std::string, std::vector<net::Payload>) override {}
  void Taken(uint64_t bytes) override { taken += bytes; }
  void Close(absl::Status) override { closed = true; }
  Counters counters() const override { return {}; }

  std::atomic<int> answers = 0;
  std::atomic<uint64_t> taken = 0;
  std::atomic<bool> closed = false;

 private:
  const net::TaskIdentity peer_{"/job:m/task:0", 1};
};

// One worker for all inputs, each of which is a master of its own.
struct Bench {
  Bench() {
    RegisterCpuKernels();
    peers = std::make_shared<TaskPeers>(
        TaskPeers::Options{.self = {"/job:w/task:0", 1}, .fingerprint = {}, .pool = nullptr});
    worker = std::make_shared<LocalWorker>(
        LocalWorkerOptions{.job = "w", .cores = 1, .make_rendezvous = [this](const StepId& id) {
                             return std::make_shared<ClusterRendezvous>(id, peers);
                           }});
    Partition part{.device = "/job:w/task:0/cpu:0", .program = *ParseProgram(kProgram)};
    RegisterRequest request{.session = kSession, .parts = {}, .options = {}};
    request.parts.push_back(std::move(part));
    WireMessage message;
    TUTTI_CHECK(EncodeRegister(request, message).ok());
    plan = message.fields;
    service = std::make_unique<WorkerService>(worker);
  }
  std::shared_ptr<TaskPeers> peers;
  std::shared_ptr<LocalWorker> worker;
  std::string plan;
  std::unique_ptr<WorkerService> service;
};

uint64_t Register(Bench& bench, const std::shared_ptr<Peer>& master) {
  Awaited<absl::StatusOr<std::string>> reply;
  bench.service->Register(master, bench.plan, {}, [&](auto given) { reply.Set(std::move(given)); });
  const absl::StatusOr<std::string> handle = reply.Wait();
  TUTTI_CHECK(handle.ok());
  return net::WireReader(*handle).U64();
}

void CheckCodecs(std::string_view fields) {
  if (const auto run = DecodeRun(fields, {}); run.ok()) {
    WireMessage once, twice;
    EncodeRun(*run, once);
    const auto again = DecodeRun(once.fields, once.tensors);
    TUTTI_CHECK(again.ok());
    EncodeRun(*again, twice);
    TUTTI_CHECK(once.fields == twice.fields);
  }
  if (const auto run = DecodeMasterRun(fields, {}); run.ok()) {
    WireMessage once, twice;
    EncodeMasterRun(*run, once);
    const auto again = DecodeMasterRun(once.fields, once.tensors);
    TUTTI_CHECK(again.ok());
    EncodeMasterRun(*again, twice);
    TUTTI_CHECK(once.fields == twice.fields);
  }
  if (const auto response = DecodeResponse(fields, {}); response.ok()) {
    WireMessage once;
    EncodeResponse(*response, once);
    TUTTI_CHECK(DecodeResponse(once.fields, once.tensors).ok());
  }
  (void)DecodeStatus(fields);
  (void)DecodeDevices(fields);
}

enum Kind : uint8_t { kRun, kValue, kAbort, kCleanUp, kDeregister, kReset, kCodecs, kKinds };

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Bench* const bench = new Bench;
  CountingLink link;
  const auto master =
      std::make_shared<Peer>(link, link.peer(), net::TaskIdentity{"/job:w/task:0", 1});
  const uint64_t handle = Register(*bench, master);
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  int runs = 0;
  uint64_t call = 0;
  const auto drop = [](const auto&) {};
  while (rest.size() >= 2 && call < 32) {
    const auto kind = Kind(uint8_t(rest[0]) % kKinds);
    std::string fields(rest.substr(2, uint8_t(rest[1])));
    rest.remove_prefix(2 + fields.size());
    ++call;
    switch (kind) {
      case kRun: {
        constexpr size_t kHandleAt = 16;
        uint64_t named = 1;
        if (fields.size() >= kHandleAt + 8) std::memcpy(&named, &fields[kHandleAt], 8);
        if (named == 0) std::memcpy(&fields[kHandleAt], &handle, 8);
        ++runs;
        bench->service->Run(master, call, {fields, {}, fields.size()});
        break;
      }
      case kValue:
        bench->service->Value(master, {fields, {}, fields.size()});
        break;
      case kAbort:
        bench->service->Abort(master, fields, drop);
        break;
      case kCleanUp:
        bench->service->CleanUp(master, fields, drop);
        break;
      case kDeregister:
        bench->service->Deregister(master, fields, drop);
        break;
      case kReset:
        bench->service->Reset(fields, drop);
        break;
      case kCodecs:
      case kKinds:
        CheckCodecs(fields);
        break;
    }
  }
  bench->service->PeerLost(*master, Unavailable("the fuzzer's input is over"));
  bench->service->AwaitAnswers(std::chrono::seconds(5));
  TUTTI_CHECK(link.answers == runs);
  TUTTI_CHECK(bench->worker->rendezvous().size() == 0);
  return 0;
}
