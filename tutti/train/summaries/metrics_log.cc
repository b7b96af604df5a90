#include "tutti/train/summaries/metrics_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tutti/base/text_file.h"
#include "tutti/base/trace.h"

namespace tutti {
namespace {

constexpr std::string_view kStep = "{\"step\":";

// Whole lines up to `step`; a line without a step is kept.
std::string LinesUpTo(int64_t step, const std::string& text) {
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string_view line = std::string_view(text).substr(begin, end + 1 - begin);
    int64_t of_line = 0;
    if (line.starts_with(kStep)) {
      std::from_chars(line.data() + kStep.size(), line.data() + line.size(), of_line);
    }
    if (of_line <= step) kept += line;
    begin = end + 1;
  }
  return kept;
}

}  // namespace

MetricsLog::~MetricsLog() {
  if (file_ >= 0) ::close(file_);
}

absl::Status MetricsLog::Open(const std::string& directory, int64_t step) {
  path_ = directory + "/metrics.jsonl";
  std::ifstream in(path_, std::ios::binary);
  if (in) {
    std::ostringstream all;
    all << in.rdbuf();
    const std::string text = all.str(), kept = LinesUpTo(step, text);
    if (kept != text) {
      // Beside and renamed, so that no line is lost on the way.
      const std::string beside = path_ + ".new";
      TUTTI_RETURN_IF_ERROR(WriteTextFile(beside, kept));
      std::error_code error;
      std::filesystem::rename(beside, path_, error);
      if (error) return Unavailable("cannot replace {}: {}", path_, error.message());
    }
  }
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) return Unavailable("cannot open {}: {}", path_, std::strerror(errno));
  return absl::OkStatus();
}

absl::Status MetricsLog::Append(int64_t step, std::string_view kind, double time,
                                const Metrics& values) {
  std::string line =
      fmt::format("{}{},\"kind\":{},\"time\":{:.3f}", kStep, step, JsonString(kind), time);
  for (const auto& [name, value] : values) {
    line += fmt::format(",{}:{}", JsonString(name),
                        std::isfinite(value) ? fmt::format("{}", value) : "null");
  }
  line += "}\n";
  // One call, so that a reader never sees half a line.
  if (::write(file_, line.data(), line.size()) != ssize_t(line.size())) {
    return Unavailable("cannot write to {}: {}", path_, std::strerror(errno));
  }
  return absl::OkStatus();
}

}  // namespace tutti
