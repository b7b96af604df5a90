#pragma once

#include <cstdint>
#include <string>

// The benchmarks of `tutti bench`. Each prints its figures through Report and throws Error.
namespace tutti::tools {

struct BenchOptions {
  bool json = false;
  int threads = 0;          // 0: all cores
  double seconds = 2;       // how long to measure, about
  std::string model = {};   // step, peak: empty for all
  int64_t batch = 0;        // 0: the model's own
  bool losses = false;      // step: also the losses of the first steps
  bool list = false;        // peak: every value that is alive at the peak
  std::string part = {};    // cluster: the one to run; empty for all
  std::string config = {};  // cluster: a file whose ps tasks run already; empty: they are started
  std::string token = {};   // of them
};

// Empty nodes a second through a Session on one core: 1,000 in a chain, 1,000 side by side; the
// median time of a run of one node; and what a step costs more when its value goes to a second
// device of the process and back.
void BenchNull(const BenchOptions& options);

// How many seconds a step takes more when it is cut over two devices of a process than on one: the
// median of rounds that take turns.
double CutCost(double seconds);

// The median time of a training step: forward, backward and update. With `losses` also those of the
// first steps from first values that the peers of benchmarks/compare have too (even_values.h).
void BenchStep(const BenchOptions& options);

// What a step of the CNN (or another model) at batch 256 takes: the bytes of its tensors (planned
// memory, variables and feeds), and by how much the process grew. With `list` also every value that
// lies in planned memory when most does, the largest first.
void BenchPeak(const BenchOptions& options);

// What the cost model predicts for models on one and two devices (placement_models.h), against the
// clock, and how long placing a graph of 100,000 nodes takes. `model` chooses one of them.
void BenchPlacement(const BenchOptions& options);
// All placements of the two-tower model's coarse groups on two devices, against the automatic one.
void BenchExhaustive(const BenchOptions& options);

// The machine's limits: floating-point rate of a large MatMul, and of the same product by oneDNN
// and by our packed kernel; bandwidth of a triad a = b + s * c.
void BenchGemm(const BenchOptions& options);
// Products of many shapes by oneDNN and by our packed kernel, beside what Gemm::Packs chooses:
// where its thresholds come from. No shape is one of the step benchmark's.
void BenchGemmSweep(const BenchOptions& options);
void BenchMemory(const BenchOptions& options);

// A link between two processes of this host, over TCP and with shared memory: the round trip of a
// small message, what a message costs among many, and the rate of 128 MB freshly written. `listen`:
// be the side that answers, at that address, until the process ends; `connect`: measure against it.
void BenchLink(const BenchOptions& options, const std::string& listen, const std::string& connect);

// From the start of a process to the end of its first step of mlp-small: `program` is started anew
// several times, with the flag that makes it call StartupChild.
void BenchStartup(const BenchOptions& options, const std::string& program);

// Runs one step and prints the clock of that moment; what BenchStartup starts.
void StartupChild();

// Steps of a cluster of processes on this host: over 2 ps tasks and a worker, how long 4 tasks take
// to start, and what 64 cost; and a step over two devices of one process. `program` is the command
// that the tasks run.
void BenchCluster(const BenchOptions& options, const std::string& program);

// `threads`, or the cores of this process when it is 0.
int ThreadsOf(const BenchOptions& options);

}  // namespace tutti::tools
