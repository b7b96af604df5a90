#include "tutti/train/reporting/worker_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
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

constexpr size_t kFields = 5;      // of a node
constexpr int64_t kWarmStep = 11;  // by then everything is warm
constexpr int64_t kMostTracedSteps = 1000;

// The role, then the nodes: name, op, start, end, bytes. Times count from the end of the last step,
// which all workers share.
std::string Pack(const std::vector<StepTrace>& steps, const std::string& role) {
  int64_t end = std::numeric_limits<int64_t>::min();
  for (const StepTrace& step : steps) {
    for (const NodeTrace& node : step.trace.nodes) {
      end = std::max(end, step.start_nanos + node.end_nanos);
    }
  }
  std::vector<Record> records = {{role}};
  for (const StepTrace& step : steps) {
    for (const NodeTrace& node : step.trace.nodes) {
      records.push_back({node.name, node.op,
                         fmt::format("{}", step.start_nanos + node.start_nanos - end),
                         fmt::format("{}", step.start_nanos + node.end_nanos - end),
                         fmt::format("{}", node.bytes)});
    }
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

TraceRequest ParseTraceRequest(const std::string& text) {
  if (text.empty()) return {};
  const size_t dots = text.find("..");
  const bool range =
      dots != std::string::npos && dots > 0 && text.find_first_not_of("0123456789") == dots;
  if (!range) return {kWarmStep, kWarmStep, text, true};
  TraceRequest request{.path = "trace.json"};
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), text.data() + dots, request.first);
  const auto last = std::from_chars(text.data() + dots + 2, end, request.last);
  const bool file = last.ptr != end && *last.ptr == ':' && last.ptr + 1 != end;
  if (file) request.path = std::string(last.ptr + 1, end);
  if (first.ec != std::errc() || last.ec != std::errc() || (last.ptr != end && !file) ||
      request.first < 1 || request.last < request.first ||
      request.last - request.first >= kMostTracedSteps) {
    ThrowInvalidArgument(
        fmt::format("--trace is \"{}\"; expected FILE, A..B or A..B:FILE with "
                    "1 <= A <= B, and at most {} steps",
                    text, kMostTracedSteps));
  }
  return request;
}

TraceRequest AgreeOnTrace(const RunConfig& config, Peers& peers, int64_t step, int64_t max_steps) {
  const std::string wanted = peers.Gather("wants trace", config.trace)[0];
  if (wanted.empty() && !config.trace.empty()) {
    Log(LogLevel::kWarning, "--trace {}: no trace is written; give the flag to worker 0, too",
        config.trace);
  }
  TraceRequest request = ParseTraceRequest(wanted);
  // A short training has no step that is warm.
  if (request.warm) request.first = request.last = std::min(step + kWarmStep, max_steps);
  return request;
}

void WriteWorkerTraces(const RunConfig& config, Peers& peers, const std::string& path,
                       const std::vector<StepTrace>& steps) {
  const std::vector<std::string> texts = peers.Gather("trace", Pack(steps, config.role));
  if (!config.leads()) return;
  std::vector<std::vector<Record>> workers;
  int64_t longest = 0;
  for (const std::string& text : texts) {
    workers.push_back(UnpackRecords(text));
    longest = std::max(longest, Length(workers.back()));
  }
  ChromeTraceWriter writer;
  for (size_t r = 0; r < workers.size(); ++r) AddWorker(int64_t(r), workers[r], longest, writer);
  if (const absl::Status status = writer.Write(path); !status.ok()) {
    Log(LogLevel::kWarning, "--trace: {}; the training goes on without it", MessageOf(status));
  }
}

}  // namespace tutti
