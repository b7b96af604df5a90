#include "tutti/compile/program_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tutti/graph/text_format.h"

namespace tutti {
namespace {

struct Request {
  std::string_view word;  // feed, fetch or target
  std::string_view name;
  int64_t line;
};

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

// True for "fetch y", false for a node of that name, "fetch = Neg(x)".
bool IsRequest(std::string_view line) {
  const std::string_view word = line.substr(0, line.find_first_of(" \t"));
  return (word == "feed" || word == "fetch" || word == "target") &&
         line.substr(0, line.find('#')).find('=') == std::string_view::npos;
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

}  // namespace

absl::StatusOr<Program> ParseProgram(std::string_view text) {
  // The requests are cut out and leave empty lines, so that line numbers stay right.
  std::string graph_text;
  std::vector<Request> requests;
  int64_t number = 1;
  for (size_t begin = 0; begin <= text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (IsRequest(Trim(line))) {
      AddRequests(line, number, requests);
    } else {
      graph_text += line;
    }
    graph_text += '\n';
    begin = end + 1;
  }
  Program program;
  TUTTI_RETURN_IF_ERROR(ParseText(graph_text, program.graph.get()));
  for (const Request& request : requests) TUTTI_RETURN_IF_ERROR(Apply(request, program));
  return program;
}

std::string ToText(const Program& program) {
  std::string text = ToText(*program.graph);
  for (const Output& feed : program.feeds) text += fmt::format("feed {}\n", feed.name());
  for (const Output& fetch : program.fetches) text += fmt::format("fetch {}\n", fetch.name());
  for (const Node* target : program.targets) text += fmt::format("target {}\n", target->name());
  return text;
}

}  // namespace tutti
