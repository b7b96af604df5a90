#include "tutti/base/trace.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "tutti/base/status.h"
#include "tutti/base/text_file.h"

namespace tutti {
namespace {

// The length of the UTF-8 sequence at the start of `text`; 0 if it is malformed, overlong, a
// surrogate, or past U+10FFFF.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return uint8_t(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const uint8_t second = byte(1);
  if (first == 0xe0 && second < 0xa0) return 0;
  if (first == 0xed && second > 0x9f) return 0;
  if (first == 0xf0 && second < 0x90) return 0;
  if (first == 0xf4 && second > 0x8f) return 0;
  return length;
}

void AppendEscaped(char c, std::string& json) {
  switch (c) {
    case '"':
      json += "\\\"";
      break;
    case '\\':
      json += "\\\\";
      break;
    case '\n':
      json += "\\n";
      break;
    case '\t':
      json += "\\t";
      break;
    default:
      if (uint8_t(c) < 0x20 || c == 0x7f) {
        fmt::format_to(std::back_inserter(json), "\\u{:04x}", uint8_t(c));
      } else {
        json += c;
      }
  }
}

void AppendArgument(const TraceEvent::Argument& argument, std::string& json) {
  if (const auto* text = std::get_if<std::string>(&argument)) {
    json += JsonString(*text);
  } else if (const auto* flag = std::get_if<bool>(&argument)) {
    json += *flag ? "true" : "false";
  } else if (const auto* real = std::get_if<double>(&argument)) {
    // JSON has no infinity and no NaN.
    json += std::isfinite(*real) ? fmt::format("{}", *real) : JsonString(fmt::format("{}", *real));
  } else {
    json += std::to_string(std::get<int64_t>(argument));
  }
}

// Times are in microseconds there; three digits behind the point keep the nanoseconds.
std::string Micros(int64_t nanos) {
  const uint64_t size = nanos < 0 ? 0 - uint64_t(nanos) : uint64_t(nanos);
  return fmt::format("{}{}.{:03}", nanos < 0 ? "-" : "", size / 1000, size % 1000);
}

}  // namespace

std::string JsonString(std::string_view text) {
  std::string json = "\"";
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 1) {
      AppendEscaped(text[0], json);
    } else if (length == 0) {
      json += "\\ufffd";
    } else {
      json += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return json + '"';
}

void ChromeTraceWriter::NameProcess(int64_t process, std::string_view name) {
  labels_.push_back({"process_name", process, 0, std::string(name)});
}

void ChromeTraceWriter::NameThread(int64_t process, int64_t thread, std::string_view name) {
  labels_.push_back({"thread_name", process, thread, std::string(name)});
}

std::string ChromeTraceWriter::ToJson() const {
  std::string json = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  const auto out = std::back_inserter(json);
  std::string_view separator = "\n";
  for (const Label& label : labels_) {
    fmt::format_to(out, "{}{{\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"tid\":{},", separator,
                   label.kind, label.process, label.thread);
    fmt::format_to(out, "\"args\":{{\"name\":{}}}}}", JsonString(label.name));
    separator = ",\n";
  }
  for (const TraceEvent& event : events_) {
    fmt::format_to(out, "{}{{\"ph\":\"X\",\"name\":{},\"cat\":{},\"pid\":{},\"tid\":{},", separator,
                   JsonString(event.name), JsonString(event.category), event.process, event.thread);
    fmt::format_to(out, "\"ts\":{},\"dur\":{},\"args\":{{", Micros(event.start_nanos),
                   Micros(event.duration_nanos));
    for (size_t i = 0; i < event.args.size(); ++i) {
      if (i > 0) json += ',';
      json += JsonString(event.args[i].first);
      json += ':';
      AppendArgument(event.args[i].second, json);
    }
    json += "}}";
    separator = ",\n";
  }
  for (size_t i = 0; i < arrows_.size(); ++i) {
    const TraceArrow& arrow = arrows_[i];
    const auto end = [&](const char* kind, const TraceArrow::End& at) {
      fmt::format_to(out, "{}{{{},\"name\":{},\"cat\":\"arrow\",\"id\":{},", separator, kind,
                     JsonString(arrow.name), i);
      fmt::format_to(out, "\"pid\":{},\"tid\":{},\"ts\":{}}}", at.process, at.thread,
                     Micros(at.nanos));
      separator = ",\n";
    };
    end("\"ph\":\"s\"", arrow.from);
    end("\"ph\":\"f\",\"bp\":\"e\"", arrow.to);
  }
  return json + "\n]}\n";
}

absl::Status ChromeTraceWriter::Write(const std::string& path) const {
  return WriteTextFile(path, ToJson());
}

}  // namespace tutti
