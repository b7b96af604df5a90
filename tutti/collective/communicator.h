#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/collective/schedule/schedule.h"
#include "tutti/net/transport.h"
#include "tutti/tensor/dtype.h"

namespace tutti {
class Cancellation;
}

namespace tutti::collective {

enum class Reduction : uint8_t { kSum = 1, kMean = 2, kMin = 3, kMax = 4, kProduct = 5 };

// The type in which float32 data is sent. Sums are computed in float32; received values were
// rounded to the wire type, and all ranks end with the same bits. Ranks that access each other's
// memory send nothing and round nothing: the algorithm direct, and hierarchical within a host.
enum class Wire : uint8_t { kAsIs = 1, kBFloat16 = 2, kFloat16 = 3 };

// Options of one operation. The calls of different ranks are matched by group, key and step; the
// rest of the call, apart from the priority, must agree too, or every rank gets INVALID_ARGUMENT
// with both values.
struct CallOptions {
  std::string_view key = {};  // "grads/bucket_3"
  int64_t step = -1;          // -1: counts up by itself, per group and key
  // Empty: the tuner chooses. "central:2" has two servers among the ranks, "central:2:own" makes
  // the last two ranks servers that bring no data.
  std::string_view algorithm = {};
  Reduction reduction = Reduction::kSum;
  Wire wire = Wire::kAsIs;
  int root = 0;
  int priority = 0;  // of two operations that could go on, the higher goes first
};

// A running operation. Copies refer to the same operation. Thread-safe. A handle may outlive its
// communicator, whose destructor ends open operations, but no Wait may be running at that moment.
// An empty handle is done and not OK.
class Handle {
 public:
  struct Impl;
  Handle() = default;
  explicit Handle(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  bool done() const;
  // Makes progress until the operation is done, and returns how it ended. The data may be touched
  // again only after that. OK means that this rank holds the whole result.
  absl::Status Wait() const;
  // Calls `callback` once when the operation is done: at once if it already is, else on the thread
  // that finishes it, with no lock held. At most one callback per operation.
  void OnDone(std::function<void(const absl::Status&)> callback) const;
  // How it was done, for traces.
  std::string_view algorithm() const;

 private:
  std::shared_ptr<Impl> impl_;
};

// The algorithm that the tuner would choose for an operation, and the predicted time.
struct Forecast {
  std::string_view algorithm;  // static text
  double seconds = 0;
};

// Some of the ranks, in an order of their own. Buffers are given as memory of any kind; memory from
// Communicator::Allocate saves a copy. Zero counts are fine. Every function starts the operation
// and returns; mistakes that can be seen at once end the handle at once. Thread-safe. Lives no
// longer than the Communicator that it comes from.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;  // of this process in the group
  virtual int size() const = 0;
  virtual std::string_view name() const = 0;

  // In place: `data` holds `count` elements before and the result after.
  virtual Handle AllReduce(void* data, int64_t count, DType dtype,
                           const CallOptions& call = {}) = 0;
  virtual Handle Broadcast(void* data, int64_t count, DType dtype,
                           const CallOptions& call = {}) = 0;
  // Only the root's data is meaningful afterwards.
  virtual Handle Reduce(void* data, int64_t count, DType dtype, const CallOptions& call = {}) = 0;

  // `data` holds size() chunks of `count` elements. ReduceScatter leaves the sum of chunk rank() in
  // its place, and the rest undefined. AllGather starts with chunk rank() in place, and fills the
  // others. Gather fills the root's only. Scatter takes the root's, and leaves chunk rank() in
  // place.
  virtual Handle ReduceScatter(void* data, int64_t count, DType dtype,
                               const CallOptions& call = {}) = 0;
  virtual Handle AllGather(void* data, int64_t count, DType dtype,
                           const CallOptions& call = {}) = 0;
  virtual Handle Gather(void* data, int64_t count, DType dtype, const CallOptions& call = {}) = 0;
  virtual Handle Scatter(void* data, int64_t count, DType dtype, const CallOptions& call = {}) = 0;
  // AllGather with counts[r] elements of rank r, one chunk after the other.
  virtual Handle AllGatherV(void* data, std::span<const int64_t> counts, DType dtype,
                            const CallOptions& call = {}) = 0;
  // `input` and `output` hold size() chunks of `count` elements; it is an error if they overlap.
  virtual Handle AllToAll(const void* input, void* output, int64_t count, DType dtype,
                          const CallOptions& call = {}) = 0;
  virtual Handle Barrier(const CallOptions& call = {}) = 0;

  // The algorithm and predicted time of an operation on this many bytes, from the costs of the
  // links; the same on every rank. Empty if no link was measured, or the group has too many ranks
  // to simulate.
  virtual std::optional<Forecast> Predict(Operation operation, int64_t bytes) const = 0;
  // Which algorithm the tuner chooses for an operation on this many bytes, and why, as text: a line
  // per algorithm with its predicted time.
  virtual std::string Explain(Operation operation, int64_t bytes) const = 0;
};

// How the ranks of a job find each other: give exactly one of address, file and endpoints.
struct Bootstrap {
  int rank = 0;
  int size = 1;
  std::string address;  // "host:port" where rank 0 listens
  std::string file;     // rank 0 writes its address there
  // "host:port" of every rank, where it listens: nobody needs another TCP port. With the others, a
  // rank but 0 takes data between hosts at any port.
  std::vector<std::string> endpoints;
  std::string job = "tutti";  // other jobs are refused
  std::string token;          // shared secret; empty: none
  int64_t generation = 0;     // of the group, from 0 on; others are refused
  // Lines "name=value" that must be the same on all ranks; a rank that differs is refused, with the
  // first difference in the error. At most 256 KB in total.
  std::vector<std::string> fingerprint = {};
  double timeout_seconds = 60;  // for all to appear
  // Ends the wait for the other ranks, with its status. May be null; must outlive the call of
  // Create.
  const Cancellation* cancellation = nullptr;
};

struct CommunicatorOptions {
  Bootstrap bootstrap;
  std::string transport = "auto";  // auto (shm and tcp), shm, tcp, ucx, shm+ucx: job_links.h
  double silence_seconds = 5;      // a rank without a heartbeat for this long is lost
  double late_seconds = 5;         // interval of warnings about a rank that is alive but late; > 0
  int tcp_streams = 2;             // per peer on another host
  bool tune = true;                // measure links at the start (up to 50 ms), or use defaults
  bool share_cores = false;        // divide a host's cores among its ranks, see share_cores.h
};

// What a communicator has done so far.
struct CommunicatorStats {
  int64_t operations = 0;
  int64_t bytes = 0;          // of this rank's data in them
  int64_t active_nanos = 0;   // time with at least one operation running
  int64_t exposed_nanos = 0;  // the part of it in which a polling caller had nothing else to do
  // By rank: the part of exposed_nanos spent waiting for that rank, the last to start an operation.
  // Time in which several operations wait counts once.
  std::vector<int64_t> waited_nanos;
};

// One rank's membership in a job: its links to the other ranks, and the engine that runs operations
// on them. If a rank dies or sends no heartbeats, every operation of every rank ends with an error
// that names it, and the communicator can no longer be used: make a new one with a higher
// generation. Thread-safe.
//
//   auto comm = ValueOrThrow(Communicator::Create({.bootstrap = {.rank = r, .size = n,
//                                                                .address = "host0:4711"}}));
//   auto memory = ValueOrThrow(comm->Allocate(bytes));
//   ThrowIfError(comm->world().AllReduce(memory->bytes().data(), count, kFloat32).Wait());
class Communicator {
 public:
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(const CommunicatorOptions& options);
  // All ranks of a job inside this process, joined by memory.
  static absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> CreateInProcess(int ranks);
  // Tells the others that this rank leaves on purpose.
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Group& world() = 0;
  // All members call it with the same name and the same ranks (of the world, in the group's order).
  // Destroy the group before the communicator.
  virtual absl::StatusOr<std::unique_ptr<Group>> MakeGroup(std::string_view name,
                                                           std::span<const int> ranks) = 0;
  // Memory that peers on this host read and write in place.
  virtual absl::StatusOr<std::unique_ptr<net::RegisteredMemory>> Allocate(size_t bytes) = 0;

  // Does pending work without blocking, and returns true if there was any. A lane calls it between
  // its nodes. Costs a few nanoseconds when no operation is running.
  virtual bool Poll() = 0;
  // Sleeps until Poll may find work, Wake is called or the time is over.
  virtual void WaitForWork(int64_t timeout_nanos) = 0;
  virtual void Wake() = 0;

  // Ends every operation of every rank with `reason`, because this rank cannot continue. With an OK
  // `reason` they end with INVALID_ARGUMENT.
  virtual void Abort(const absl::Status& reason) = 0;
  virtual CommunicatorStats stats() const = 0;
  // True: the polling caller has nothing else to do from now on; false: it has work again. Used for
  // CommunicatorStats::exposed_nanos.
  virtual void SetIdle(bool idle) = 0;

  // OK, or why no operation can succeed any more.
  virtual absl::Status status() const = 0;
};

}  // namespace tutti::collective
