#include "tutti/train/reporting/worker_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/base/trace.h"
#include "tutti/graph/op_def.h"
#include "tutti/train/reporting/packed_text.h"

namespace tutti {
namespace {

constexpr size_t kFields = 5;  // of a node

// The role, then the nodes: name, op, start, end, bytes. Times count from the end of the step,
// which all workers share.
std::string Pack(const RunTrace& trace, const std::string& role) {
  int64_t end = 0;
  for (const NodeTrace& node : trace.nodes) end = std::max(end, node.end_nanos);
  std::vector<Record> records = {{role}};
  for (const NodeTrace& node : trace.nodes) {
    records.push_back({node.name, node.op, fmt::format("{}", node.start_nanos - end),
                       fmt::format("{}", node.end_nanos - end), fmt::format("{}", node.bytes)});
  }
  return PackRecords(records);
}

int64_t Number(std::string_view text) {
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

bool IsCollective(std::string_view op) {
  const OpDef* def = OpRegistry::Global().Find(op);
  return def != nullptr && def->collective;
}

// Collectives overlap with what computes, so they have a row of their own.
void AddWorker(int64_t worker, std::span<const Record> records, int64_t longest,
               ChromeTraceWriter& writer) {
  if (records.empty() || records[0].empty()) return;
  writer.NameProcess(worker, fmt::format("worker {} {}", worker, records[0][0]));
  writer.NameThread(worker, 0, "compute");
  writer.NameThread(worker, 1, "communication");
  for (const Record& node : records.subspan(1)) {
    if (node.size() != kFields) continue;
    writer.Add({.name = node[0],
                .category = node[1],
                .process = worker,
                .thread = IsCollective(node[1]) ? 1 : 0,
                .start_nanos = longest + Number(node[2]),
                .duration_nanos = Number(node[3]) - Number(node[2]),
                .args = {{"op", node[1]}, {"bytes", Number(node[4])}}});
  }
}

// How long before its end the step began.
int64_t Length(std::span<const Record> records) {
  int64_t longest = 0;
  for (const Record& node : records) {
    if (node.size() == kFields) longest = std::max(longest, -Number(node[2]));
  }
  return longest;
}

}  // namespace

bool WantsWorkerTraces(const RunConfig& config) {
  const bool own = !config.trace.empty();
  Peers& peers = config.strategy_object->peers();
  const bool wanted = peers.Gather("wants trace", own ? "1" : "0")[0] == "1";
  if (own && !wanted) {
    Log(LogLevel::kWarning, "--trace {}: no trace is written; give the flag to worker 0, too",
        config.trace);
  }
  return wanted;
}

void WriteWorkerTraces(const RunConfig& config, const RunTrace& trace) {
  const std::vector<std::string> texts =
      config.strategy_object->peers().Gather("trace", Pack(trace, config.role));
  if (!config.leads()) return;
  std::vector<std::vector<Record>> workers;
  int64_t longest = 0;
  for (const std::string& text : texts) {
    workers.push_back(UnpackRecords(text));
    longest = std::max(longest, Length(workers.back()));
  }
  ChromeTraceWriter writer;
  for (size_t r = 0; r < workers.size(); ++r) AddWorker(int64_t(r), workers[r], longest, writer);
  if (const absl::Status status = writer.Write(config.trace); !status.ok()) {
    Log(LogLevel::kWarning, "--trace: {}; the training goes on without it", MessageOf(status));
  }
}

}  // namespace tutti
