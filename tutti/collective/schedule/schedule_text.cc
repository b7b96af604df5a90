// The text form of schedules. The reader takes lines apart into words; everything that a line says
// is checked before it is kept, so that a schedule that was read is one that CheckSchedule accepts.
#include <fmt/format.h>

#include <charconv>
#include <iterator>
#include <optional>

#include "tutti/base/status.h"
#include "tutti/collective/schedule/schedule.h"

namespace tutti::collective {
namespace {

constexpr size_t kMaxNameLength = 64;

void AppendList(std::string& text, const std::vector<int32_t>& list) {
  for (const int32_t value : list) fmt::format_to(std::back_inserter(text), " {}", value);
  text += '\n';
}

void AppendStep(std::string& text, const Step& step) {
  const auto append = [&](auto... values) {
    text += NameOf(step.kind);
    (fmt::format_to(std::back_inserter(text), " {}", values), ...);
  };
  switch (step.kind) {
    case StepKind::kSend:
    case StepKind::kReceive:
    case StepKind::kReceiveReduce:
      return append(step.peer, step.piece);
    case StepKind::kCopy:
    case StepKind::kReduce:
      return append(step.piece, step.source);
    case StepKind::kSignal:
    case StepKind::kAwait:
      return append(step.peer);
    case StepKind::kReduceFrom:
    case StepKind::kStoreTo:
    case StepKind::kReduceToAll:
      return append(step.set, step.piece);
  }
}

std::vector<std::string_view> WordsOf(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return words;
    const size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    line.remove_prefix(end);
  }
}

// A message shows what stood in the text, but no more than fits on a line.
std::string Shown(std::string_view word) {
  std::string shown;
  for (const char c : word.substr(0, 40)) shown += c >= ' ' && c <= '~' ? c : '?';
  return word.size() > 40 ? shown + "..." : shown;
}

absl::StatusOr<int32_t> ParseNumber(std::string_view word) {
  int32_t value = 0;
  const char* end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc{} || rest != end || value < 0) {
    return InvalidArgument("\"{}\" stands there, expected a number", Shown(word));
  }
  return value;
}

std::optional<StepKind> KindFromName(std::string_view name) {
  for (int i = int(StepKind::kSend); i <= int(StepKind::kReduceToAll); ++i) {
    if (NameOf(StepKind(i)) == name) return StepKind(i);
  }
  return std::nullopt;
}

class Reader {
 public:
  absl::StatusOr<Schedule> Read(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      ++line_;
      const std::vector<std::string_view> words = WordsOf(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
      if (words.empty()) continue;
      const absl::Status status = ReadLine(words);
      if (!status.ok()) return WithPrefix(status, fmt::format("schedule, line {}: ", line_));
    }
    if (!has_header_) {
      return InvalidArgument(
          "schedule: the text is empty, expected \"schedule ALGORITHM OPERATION ranks=...\"");
    }
    if (ranks_read_ != schedule_.ranks) {
      return InvalidArgument("schedule: the text ends after {} ranks, expected {}", ranks_read_,
                             schedule_.ranks);
    }
    return std::move(schedule_);
  }

 private:
  absl::Status ReadLine(const std::vector<std::string_view>& words) {
    if (!has_header_) return ReadHeader(words);
    if (words[0] == "rank") return ReadRank(words);
    if (ranks_read_ == 0) {
      if (words[0] == "scratch:") return ReadList(words, 1, &schedule_.scratch);
      if (words[0] == "contributors:") return ReadList(words, 1, &schedule_.contributors);
      if (words[0] == "set") return ReadSet(words);
      return InvalidArgument(
          "\"{}\" stands there, expected \"scratch:\", \"contributors:\", \"set\" or \"rank\"",
          Shown(words[0]));
    }
    return ReadStep(words);
  }

  absl::Status ReadHeader(const std::vector<std::string_view>& words) {
    if (words.size() != 7 || words[0] != "schedule") {
      return InvalidArgument(
          "\"{}\" with {} words stands there, expected \"schedule ALGORITHM OPERATION ranks=N "
          "chunks=N segments=N root=N\"",
          Shown(words[0]), words.size());
    }
    if (words[1].size() > kMaxNameLength) {
      return InvalidArgument("the algorithm's name has {} letters, expected at most {}",
                             words[1].size(), kMaxNameLength);
    }
    schedule_.algorithm = std::string(words[1]);
    TUTTI_ASSIGN_OR_RETURN(schedule_.operation, OperationFromName(Shown(words[2])));
    TUTTI_RETURN_IF_ERROR(ReadField(words[3], "ranks=", &schedule_.ranks));
    TUTTI_RETURN_IF_ERROR(ReadField(words[4], "chunks=", &schedule_.chunks));
    TUTTI_RETURN_IF_ERROR(ReadField(words[5], "segments=", &schedule_.segments));
    TUTTI_RETURN_IF_ERROR(ReadField(words[6], "root=", &schedule_.root));
    has_header_ = true;
    // The lists are checked as a whole, in the lines that give them.
    return CheckSoFar();
  }

  static absl::Status ReadField(std::string_view word, std::string_view name, int* value) {
    if (!word.starts_with(name)) {
      return InvalidArgument("\"{}\" stands there, expected {}NUMBER", Shown(word), name);
    }
    TUTTI_ASSIGN_OR_RETURN(*value, ParseNumber(word.substr(name.size())));
    return absl::OkStatus();
  }

  absl::Status ReadList(const std::vector<std::string_view>& words, size_t first,
                        std::vector<int32_t>* list) {
    if (!list->empty()) return InvalidArgument("\"{}\" stands there twice", Shown(words[0]));
    if (words.size() == first) return InvalidArgument("the list is empty, expected numbers");
    for (size_t i = first; i < words.size(); ++i) {
      TUTTI_ASSIGN_OR_RETURN(const int32_t value, ParseNumber(words[i]));
      list->push_back(value);
    }
    return CheckSoFar();
  }

  absl::Status ReadSet(const std::vector<std::string_view>& words) {
    const std::string expected = fmt::format("{}:", schedule_.sets.size());
    if (words.size() < 2 || words[1] != expected) {
      return InvalidArgument("\"{}\" stands there, expected \"set {}\" and ranks",
                             words.size() < 2 ? "set" : Shown(words[1]), expected);
    }
    std::vector<int32_t> set;
    for (size_t i = 2; i < words.size(); ++i) {
      TUTTI_ASSIGN_OR_RETURN(const int32_t value, ParseNumber(words[i]));
      if (!set.empty() && value <= set.back()) {
        return InvalidArgument("rank {} stands behind rank {}, expected ascending order", value,
                               set.back());
      }
      if (value >= schedule_.ranks) {
        return InvalidArgument("a rank is {}, expected 0 to {}", value, schedule_.ranks - 1);
      }
      set.push_back(value);
    }
    if (set.empty()) return InvalidArgument("the set is empty, expected ranks");
    schedule_.sets.push_back(std::move(set));
    return absl::OkStatus();
  }

  absl::Status ReadRank(const std::vector<std::string_view>& words) {
    if (words.size() != 2 || words[1] != std::to_string(ranks_read_) ||
        ranks_read_ == schedule_.ranks) {
      return InvalidArgument("\"rank {}\" stands there, expected {}",
                             words.size() < 2 ? "" : Shown(words[1]),
                             ranks_read_ == schedule_.ranks ? "a step or the end"
                                                            : fmt::format("rank {}", ranks_read_));
    }
    ++ranks_read_;
    schedule_.steps.resize(size_t(ranks_read_));
    return absl::OkStatus();
  }

  absl::Status ReadStep(const std::vector<std::string_view>& words) {
    const std::optional<StepKind> kind = KindFromName(words[0]);
    if (!kind) return InvalidArgument("\"{}\" stands there, expected a step", Shown(words[0]));
    Step step{.kind = *kind};
    int32_t* first = nullptr;
    int32_t* second = &step.piece;
    switch (*kind) {
      case StepKind::kSignal:
      case StepKind::kAwait:
        first = &step.peer;
        second = nullptr;
        break;
      case StepKind::kSend:
      case StepKind::kReceive:
      case StepKind::kReceiveReduce:
        first = &step.peer;
        break;
      case StepKind::kCopy:
      case StepKind::kReduce:
        first = &step.piece;
        second = &step.source;
        break;
      case StepKind::kReduceFrom:
      case StepKind::kStoreTo:
      case StepKind::kReduceToAll:
        first = &step.set;
        break;
    }
    const size_t operands = second == nullptr ? 1 : 2;
    if (words.size() != operands + 1) {
      return InvalidArgument("\"{}\" with {} numbers stands there, expected {}", words[0],
                             words.size() - 1, operands);
    }
    TUTTI_ASSIGN_OR_RETURN(*first, ParseNumber(words[1]));
    if (second != nullptr) {
      TUTTI_ASSIGN_OR_RETURN(*second, ParseNumber(words[2]));
    }
    const int rank = ranks_read_ - 1;
    TUTTI_RETURN_IF_ERROR(
        WithPrefix(CheckStep(schedule_, rank, step), fmt::format("{}: ", ToText(step))));
    schedule_.steps[size_t(rank)].push_back(step);
    return absl::OkStatus();
  }

  // Checks all but the steps, of which there are none yet.
  absl::Status CheckSoFar() {
    schedule_.steps.assign(size_t(std::min(schedule_.ranks, kMaxRanks)), {});
    const absl::Status status = CheckSchedule(schedule_);
    schedule_.steps.clear();
    return status;
  }

  Schedule schedule_;
  int line_ = 0;
  int ranks_read_ = 0;
  bool has_header_ = false;
};

}  // namespace

std::string ToText(const Step& step) {
  std::string text;
  AppendStep(text, step);
  return text;
}

std::string ToText(const Schedule& schedule) {
  std::string text = fmt::format("schedule {} {} ranks={} chunks={} segments={} root={}\n",
                                 schedule.algorithm, NameOf(schedule.operation), schedule.ranks,
                                 schedule.chunks, schedule.segments, schedule.root);
  if (!schedule.scratch.empty()) {
    text += "scratch:";
    AppendList(text, schedule.scratch);
  }
  if (!schedule.contributors.empty()) {
    text += "contributors:";
    AppendList(text, schedule.contributors);
  }
  for (size_t i = 0; i < schedule.sets.size(); ++i) {
    fmt::format_to(std::back_inserter(text), "set {}:", i);
    AppendList(text, schedule.sets[i]);
  }
  for (size_t rank = 0; rank < schedule.steps.size(); ++rank) {
    fmt::format_to(std::back_inserter(text), "rank {}\n", rank);
    for (const Step& step : schedule.steps[rank]) {
      text += "  ";
      AppendStep(text, step);
      text += '\n';
    }
  }
  return text;
}

absl::StatusOr<Schedule> ParseSchedule(std::string_view text) { return Reader().Read(text); }

}  // namespace tutti::collective
