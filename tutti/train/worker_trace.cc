#include "tutti/train/worker_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/base/trace.h"
#include "tutti/train/agreement.h"

namespace tutti {
namespace {

constexpr char kEndOfField = '\x1f';
constexpr char kEndOfNode = '\x1e';

// The trace as text, times counted from the end of the step, which all workers share.
std::string Pack(const RunTrace& trace, const std::string& role) {
  int64_t end = 0;
  for (const NodeTrace& node : trace.nodes) end = std::max(end, node.end_nanos);
  std::string text = role + kEndOfNode;
  for (const NodeTrace& node : trace.nodes) {
    text += fmt::format("{}{}{}{}{}{}{}{}{}{}", node.name, kEndOfField, node.op, kEndOfField,
                        node.start_nanos - end, kEndOfField, node.end_nanos - end, kEndOfField,
                        node.bytes, kEndOfNode);
  }
  return text;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

int64_t Number(std::string_view text) {
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

bool IsCollective(std::string_view op) {
  return op == "AllReduce" || op == "Broadcast" || op == "AllGather";
}

// Collectives overlap with what computes, so they have a row of their own.
void AddWorker(int64_t worker, std::string_view text, int64_t longest, ChromeTraceWriter& writer) {
  const std::vector<std::string_view> nodes = Split(text, kEndOfNode);
  writer.NameProcess(worker, fmt::format("worker {} {}", worker, nodes[0]));
  writer.NameThread(worker, 0, "compute");
  writer.NameThread(worker, 1, "communication");
  for (size_t i = 1; i < nodes.size(); ++i) {
    const std::vector<std::string_view> fields = Split(nodes[i], kEndOfField);
    if (fields.size() != 5) continue;
    const int64_t start = longest + Number(fields[2]);
    writer.Add({.name = std::string(fields[0]),
                .category = std::string(fields[1]),
                .process = worker,
                .thread = IsCollective(fields[1]) ? 1 : 0,
                .start_nanos = start,
                .duration_nanos = Number(fields[3]) - Number(fields[2]),
                .args = {{"op", std::string(fields[1])}, {"bytes", Number(fields[4])}}});
  }
}

// How long before its end the step began.
int64_t Length(std::string_view text) {
  int64_t longest = 0;
  const std::vector<std::string_view> nodes = Split(text, kEndOfNode);
  for (size_t i = 1; i < nodes.size(); ++i) {
    const std::vector<std::string_view> fields = Split(nodes[i], kEndOfField);
    if (fields.size() == 5) longest = std::max(longest, -Number(fields[2]));
  }
  return longest;
}

}  // namespace

bool WantsWorkerTraces(const RunConfig& config) {
  const bool own = !config.trace.empty();
  if (config.communicator == nullptr) return own;
  const bool wanted = GatherTexts(*config.communicator, "wants trace", own ? "1" : "0")[0] == "1";
  if (own && !wanted) {
    Log(LogLevel::kWarning, "--trace {}: no trace is written; give the flag to worker 0, too",
        config.trace);
  }
  return wanted;
}

void WriteWorkerTraces(const RunConfig& config, const RunTrace& trace) {
  std::vector<std::string> texts = {Pack(trace, config.role)};
  if (config.communicator != nullptr) {
    texts = GatherTexts(*config.communicator, "trace", texts[0]);
  }
  if (!config.leads()) return;
  int64_t longest = 0;
  for (const std::string& text : texts) longest = std::max(longest, Length(text));
  ChromeTraceWriter writer;
  for (size_t r = 0; r < texts.size(); ++r) AddWorker(int64_t(r), texts[r], longest, writer);
  if (const absl::Status status = writer.Write(config.trace); !status.ok()) {
    Log(LogLevel::kWarning, "--trace: {}; the training goes on without it", MessageOf(status));
  }
}

}  // namespace tutti
