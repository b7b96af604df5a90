#include "tools/tutti/explain/explain.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "tools/tutti/explain/story.h"
#include "tools/tutti/explain/svg.h"
#include "tools/tutti/explain/table.h"
#include "tutti/base/status.h"
#include "tutti/base/text_file.h"
#include "tutti/collective/algorithms/catalogue.h"
#include "tutti/collective/schedule/verify.h"

namespace tutti::tools {
namespace {

using collective::Algorithm;
using collective::Operation;
using collective::Schedule;

constexpr int kDefaultRanks = 4;
// A table or drawing of more ranks is read by nobody, and the schedule alone, of up to 4 x ranks x
// ranks steps, takes seconds and gigabytes to make.
constexpr int kMostRanksShown = 512;

absl::StatusOr<Schedule> MakeSchedule(const ExplainOptions& options, const Algorithm& algorithm,
                                      int ranks) {
  collective::Request request{
      .ranks = ranks,
      .root = options.root,
      .segments = options.segments,
      .variant = collective::CentralVariant(options.servers, options.own_hosts),
      .leftwards = options.direction == "left",
      .hosts = options.hosts};
  TUTTI_ASSIGN_OR_RETURN(request.operation, collective::OperationFromName(options.operation));
  if (options.direction != "left" && options.direction != "right") {
    return InvalidArgument("--direction is \"{}\"; expected left or right", options.direction);
  }
  if (options.direction == "left" && algorithm.name != "ring") {
    return InvalidArgument("--direction left: only a ring has a direction; this is {}",
                           algorithm.name);
  }
  if (options.servers < 1) {
    return InvalidArgument("--servers is {}; expected 1 or more", options.servers);
  }
  if (options.root < 0 || options.root >= ranks) {
    return InvalidArgument("--root is {}; expected 0 to {}", options.root, ranks - 1);
  }
  if (!options.hosts.empty() && options.hosts.size() != size_t(ranks)) {
    return InvalidArgument("--hosts names {} hosts, but there are {} ranks; expected one for each",
                           options.hosts.size(), ranks);
  }
  return algorithm.make(request);
}

std::string Count(int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string Heading(const Algorithm& algorithm, const Schedule& schedule) {
  std::string data = Count(schedule.chunks, "chunk");
  if (schedule.segments > 1) data += fmt::format(" of {}", Count(schedule.segments, "segment"));
  return fmt::format("{}: {}\n{} among {}, {}\n", algorithm.name, algorithm.summary,
                     NameOf(schedule.operation), Count(schedule.ranks, "rank"), data);
}

std::string Legend(const Story& story) {
  const Schedule& schedule = story.schedule;
  std::string cells =
      story.has_values                             ? "cells: the numbers a rank holds"
      : schedule.operation == Operation::kAllToAll ? "cells: 2:1 is chunk 1 of rank 2"
      : schedule.ranks > 10 ? "cells: whose data is in it, or how many of the ranks'"
                            : "cells: whose data is in it, a digit for each rank";
  return cells + "; + added, = stored, · nothing\n";
}

std::string Ending(const Story& story) {
  Traffic most;
  for (const Traffic& rank : TrafficOf(story)) {
    most.sent = std::max(most.sent, rank.sent);
    most.received = std::max(most.received, rank.received);
    most.messages = std::max(most.messages, rank.messages);
    most.by_memory = std::max(most.by_memory, rank.by_memory);
  }
  const auto rounds = int64_t(story.rounds.size()) - 1;
  std::string text = Count(rounds, "round");
  if (story.rounds_with_signals > rounds) {
    text += fmt::format(" of data, {} of signals", story.rounds_with_signals - rounds);
  }
  if (most.messages > 0) {
    text += fmt::format("; the busiest rank sends {:.4g} K in {} and receives {:.4g} K", most.sent,
                        Count(most.messages, "message"), most.received);
  }
  if (most.by_memory > 0) {
    text += fmt::format("; the busiest rank loads and stores {:.4g} K in peers' memory",
                        most.by_memory);
  }
  return text + " (K: the whole data)\n";
}

}  // namespace

Screen Screen::OfStdout() {
  Screen screen;
  if (::isatty(STDOUT_FILENO) == 0) return screen;
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  screen.color = (no_color == nullptr || *no_color == '\0') &&
                 !(terminal != nullptr && std::string_view(terminal) == "dumb");
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) screen.width = size.ws_col;
  return screen;
}

absl::StatusOr<std::string> Explain(const ExplainOptions& options, const Screen& screen) {
  TUTTI_ASSIGN_OR_RETURN(const Algorithm* algorithm, collective::FindAlgorithm(options.algorithm));
  std::vector<std::vector<double>> values;
  if (!options.values.empty()) {
    TUTTI_ASSIGN_OR_RETURN(values, ParseValues(options.values, options.ranks));
  }
  const int ranks = options.ranks != 0      ? options.ranks
                    : !values.empty()       ? static_cast<int>(values.size())
                    : options.hosts.empty() ? kDefaultRanks
                                            : static_cast<int>(options.hosts.size());
  if (ranks > kMostRanksShown && !options.text) {
    return ResourceExhausted(
        "{} ranks are too much to show; ask for at most {}, or for the schedule itself with --text",
        ranks, kMostRanksShown);
  }
  TUTTI_ASSIGN_OR_RETURN(Schedule schedule, MakeSchedule(options, *algorithm, ranks));
  std::string proof;
  if (options.verify) {
    TUTTI_RETURN_IF_ERROR(Verify(schedule));
    proof =
        "verified, for every order in which the steps may overlap: every rank ends with what it "
        "should\nhold; every contribution is in it exactly once; every step runs; no two steps "
        "race for a piece\n";
  }
  if (options.text) return ToText(schedule) + proof;
  TUTTI_ASSIGN_OR_RETURN(const Story story, TellStory(std::move(schedule), values));
  if (!options.svg.empty()) {
    TUTTI_RETURN_IF_ERROR(
        WithPrefix(WriteTextFile(options.svg, RenderSvg(story, options.hosts)), "--svg: "));
    return fmt::format("{}wrote {}\n", proof, options.svg);
  }
  if (story.schedule.operation == Operation::kBarrier) {
    return Heading(*algorithm, story.schedule) +
           "no data moves; the signals are shown with --text\n" + proof;
  }
  return Heading(*algorithm, story.schedule) + Legend(story) + "\n" +
         RenderTable(story, options.hosts, {screen.color, screen.width}) + Ending(story) + proof;
}

}  // namespace tutti::tools
