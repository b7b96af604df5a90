#include "tutti/compile/program_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "tutti/graph/text/format.h"

namespace tutti {
namespace {

struct Request {
  std::string_view word;  // feed, fetch or target
  std::string_view name;
  int64_t line;
};

// An entry of the memory table, as words: "pin", "y", "b", "64".
struct MemoryLine {
  std::vector<std::string_view> words;
  int64_t line;
};

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

// True for "fetch y", false for a node of that name, "fetch = Neg(x)".
bool StartsWith(std::string_view line, std::initializer_list<std::string_view> words) {
  const std::string_view word = line.substr(0, line.find_first_of(" \t"));
  return std::find(words.begin(), words.end(), word) != words.end() &&
         line.substr(0, line.find('#')).find('=') == std::string_view::npos;
}

bool IsRequest(std::string_view line) { return StartsWith(line, {"feed", "fetch", "target"}); }
bool IsMemory(std::string_view line) {
  return StartsWith(line, {"layout", "arena", "pin", "joined"});
}

std::vector<std::string_view> WordsOf(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  for (;;) {
    line = Trim(line);
    if (line.empty()) return words;
    const size_t end = std::min(line.find_first_of(" \t"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

void AddRequests(std::string_view line, int64_t number, std::vector<Request>& requests) {
  line = Trim(line.substr(0, line.find('#')));
  const size_t space = std::min(line.find_first_of(" \t"), line.size());
  const std::string_view word = line.substr(0, space);
  std::string_view names = line.substr(space);
  for (;;) {
    const size_t comma = names.find(',');
    requests.push_back({word, Trim(names.substr(0, comma)), number});
    if (comma == std::string_view::npos) break;
    names.remove_prefix(comma + 1);
  }
}

absl::Status Apply(const Request& request, Program& program) {
  const Output output = program.graph->FindOutput(request.name);
  if (request.word == "target") {
    const Node* node = program.graph->Find(request.name);
    if (node == nullptr) {
      return InvalidArgument("line {}: there is no node \"{}\"", request.line, request.name);
    }
    program.targets.push_back(node);
    return absl::OkStatus();
  }
  if (!output) {
    return InvalidArgument("line {}: there is no output \"{}\"", request.line, request.name);
  }
  if (request.word == "feed" && output.node->op() != "Placeholder") {
    return InvalidArgument("line {}: a feed is a Placeholder, \"{}\" is a {}", request.line,
                           request.name, output.node->op());
  }
  (request.word == "feed" ? program.feeds : program.fetches).push_back(output);
  return absl::OkStatus();
}

// "pin y b 64".
absl::Status ApplyPin(const MemoryLine& line, Output value, MemoryTable& memory) {
  const std::string_view name = line.words[2], number = line.words[3];
  const auto arena = std::find_if(memory.arenas.begin(), memory.arenas.end(),
                                  [&](const PinnedArena& a) { return a.name == name; });
  if (arena == memory.arenas.end()) {
    return InvalidArgument("line {}: there is no arena \"{}\"", line.line, name);
  }
  size_t offset = 0;
  const char* const end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, offset);
  if (error != std::errc() || stop != end) {
    return InvalidArgument("line {}: the offset is \"{}\"; expected a number of bytes", line.line,
                           number);
  }
  memory.SetPin(value, {int(arena - memory.arenas.begin()), offset});
  return absl::OkStatus();
}

absl::Status Apply(const MemoryLine& line, Program& program) {
  const auto& words = line.words;
  const size_t most = words[0] == "pin" ? 4 : words[0] == "joined" ? 2 : 3;
  if (words.size() > most || words.size() < most - (words[0] == "arena" ? 1 : 0)) {
    return InvalidArgument("line {}: \"{}\" has {} words; expected {}", line.line, words[0],
                           words.size(), most);
  }
  if (words[0] == "arena") {
    program.memory.AddArena(std::string(words[1]), std::string(words.size() > 2 ? words[2] : ""));
    return absl::OkStatus();
  }
  if (words[0] == "joined") {
    const Node* node = program.graph->Find(words[1]);
    if (node == nullptr) {
      return InvalidArgument("line {}: there is no node \"{}\"", line.line, words[1]);
    }
    program.memory.joined_buckets.insert(node->id());
    return absl::OkStatus();
  }
  const Output value = program.graph->FindOutput(words[1]);
  if (!value) {
    return InvalidArgument("line {}: there is no output \"{}\"", line.line, words[1]);
  }
  if (words[0] == "pin") return ApplyPin(line, value, program.memory);
  program.memory.SetLayout(value, Layout(std::string(words[2])));
  return absl::OkStatus();
}

std::string MemoryText(const MemoryTable& memory, const Graph& graph) {
  const auto name = [&](const ValueId& value) {
    return graph.nodes()[size_t(value.node)]->output(value.output).name();
  };
  std::string text;
  for (const auto& [value, layout] : memory.layouts) {
    text += fmt::format("layout {} {}\n", name(value), layout.tag());
  }
  for (const PinnedArena& arena : memory.arenas) {
    text += fmt::format("arena {}{}{}\n", arena.name, arena.kind.empty() ? "" : " ", arena.kind);
  }
  for (const auto& [value, pin] : memory.pins) {
    text += fmt::format("pin {} {} {}\n", name(value), memory.arenas[size_t(pin.arena)].name,
                        pin.offset);
  }
  for (const int64_t bucket : memory.joined_buckets) {
    text += fmt::format("joined {}\n", graph.nodes()[size_t(bucket)]->name());
  }
  return text;
}

}  // namespace

absl::StatusOr<Program> ParseProgram(std::string_view text) {
  // The requests are cut out and leave empty lines, so that line numbers stay right.
  std::string graph_text;
  std::vector<Request> requests;
  std::vector<MemoryLine> memory;
  int64_t number = 1;
  for (size_t begin = 0; begin <= text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (IsRequest(Trim(line))) {
      AddRequests(line, number, requests);
    } else if (IsMemory(Trim(line))) {
      memory.push_back({WordsOf(line), number});
    } else {
      graph_text += line;
    }
    graph_text += '\n';
    begin = end + 1;
  }
  Program program;
  TUTTI_RETURN_IF_ERROR(ParseText(graph_text, program.graph.get()));
  for (const Request& request : requests) TUTTI_RETURN_IF_ERROR(Apply(request, program));
  for (const MemoryLine& line : memory) TUTTI_RETURN_IF_ERROR(Apply(line, program));
  return program;
}

std::string ToText(const Program& program) {
  std::string text = ToText(*program.graph);
  for (const Output& feed : program.feeds) text += fmt::format("feed {}\n", feed.name());
  for (const Output& fetch : program.fetches) text += fmt::format("fetch {}\n", fetch.name());
  for (const Node* target : program.targets) text += fmt::format("target {}\n", target->name());
  return text + MemoryText(program.memory, *program.graph);
}

}  // namespace tutti
