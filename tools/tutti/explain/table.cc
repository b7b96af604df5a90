#include "tools/tutti/explain/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::tools {
namespace {

using collective::Schedule;

constexpr int kPhraseWidth = 24;  // below which what a rank sends goes on lines of its own

enum class Color { kPlain, kBold, kDim, kAdded, kStored, kComplete, kJustComplete };

std::string Painted(std::string_view text, Color color, bool on) {
  if (!on || color == Color::kPlain || text.empty()) return std::string(text);
  constexpr std::string_view kCodes[] = {"0", "1", "2", "1;33", "1;36", "32", "1;32"};
  return fmt::format("\033[{}m{}\033[0m", kCodes[static_cast<int>(color)], text);
}

// Columns that UTF-8 text takes: every character here is one wide.
int WidthOf(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string Padded(std::string_view text, int width) {
  return std::string(text) + std::string(size_t(std::max(0, width - WidthOf(text))), ' ');
}

// Lines of at most `width` columns, broken behind ; and , only: a part that is longer stays whole.
std::vector<std::string> Wrapped(std::string_view text, int width) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    size_t end = text.find_first_of(";,");
    end = end == text.npos ? text.size() : end + 1;
    const std::string_view part = text.substr(0, end);
    if (lines.empty() || WidthOf(lines.back()) + 1 + WidthOf(part) > width) {
      lines.emplace_back(part);
    } else {
      lines.back() += fmt::format(" {}", part);
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

class Table {
 public:
  Table(const Story& story, const std::vector<int>& hosts, const TableStyle& style)
      : story_(story), schedule_(story.schedule), hosts_(hosts), style_(style) {
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      label_width_ = std::max(label_width_, WidthOf(Label(rank)) + 3);
    }
    MeasureCells(NameOfPiece);
    MakeBlocks();
    if (phrases_beside_) return;
    MeasureCells(ShortNameOfPiece);
    MakeBlocks();
  }

  std::string Render() {
    for (size_t i = 0; i < story_.rounds.size(); ++i) AddRound(i);
    return std::move(out_);
  }

 private:
  std::string Label(int rank) const {
    return hosts_.empty() ? fmt::format("rank {}", rank)
                          : fmt::format("rank {} host {}", rank, hosts_[rank]);
  }

  // With the pieces' names as `name_of` gives them.
  void MeasureCells(std::string (*name_of)(const Schedule&, int)) {
    name_of_ = name_of;
    cell_widths_.clear();
    for (int piece = 0; piece < schedule_.pieces(); ++piece) {
      int width = WidthOf(name_of(schedule_, piece));
      for (const Round& round : story_.rounds) {
        for (const std::vector<Holding>& memory : round.memory) {
          width = std::max(width, WidthOf(ToText(story_, piece, memory[piece])));
        }
      }
      cell_widths_.push_back(width + 2);  // the mark before and a space behind
    }
  }

  // The columns, cut so that a row fits into the width.
  void MakeBlocks() {
    int used = label_width_;
    blocks_.assign(1, {});
    for (int piece = 0; piece < schedule_.pieces(); ++piece) {
      if (!blocks_.back().empty() && used + cell_widths_[piece] > style_.width) {
        blocks_.emplace_back();
        used = label_width_;
      }
      used += cell_widths_[piece];
      blocks_.back().push_back(piece);
    }
    phrases_beside_ = blocks_.size() == 1 && style_.width - used >= kPhraseWidth;
    phrase_column_ = used + 1;
  }

  void AddRound(size_t index) {
    const Round& round = story_.rounds[index];
    const std::string title = index == 0 ? "start" : fmt::format("round {}", index);
    for (size_t block = 0; block < blocks_.size(); ++block) {
      const std::string head = block == 0 ? title : "";
      std::string line = Painted(Padded(head, label_width_), Color::kBold, style_.color);
      for (const int piece : blocks_[block]) {
        line += Painted(Padded(" " + name_of_(schedule_, piece), cell_widths_[piece]), Color::kDim,
                        style_.color);
      }
      AddLine(line);
      for (int rank = 0; rank < schedule_.ranks; ++rank) AddRow(round, rank, blocks_[block]);
    }
    if (!phrases_beside_) AddPhrasesBelow(round);
    AddLine("");
  }

  void AddRow(const Round& round, int rank, const std::vector<int>& pieces) {
    std::string line = Padded("  " + Label(rank), label_width_);
    for (const int piece : pieces) line += Cell(round, rank, piece);
    if (!phrases_beside_) return AddLine(line);
    const std::vector<std::string> phrases =
        Wrapped(Phrase(round, rank), style_.width - phrase_column_);
    AddLine(phrases.empty() ? line : line + " " + phrases[0]);
    for (size_t i = 1; i < phrases.size(); ++i) {
      AddLine(std::string(size_t(phrase_column_), ' ') + phrases[i]);
    }
  }

  std::string Cell(const Round& round, int rank, int piece) const {
    const Holding& holding = round.memory[rank][piece];
    char mark = ' ';
    for (const Move& move : round.moves) {
      if (move.to != rank || move.target != piece) continue;
      mark = move.kind == Move::Kind::kAdd ? '+' : '=';
    }
    const bool complete = IsComplete(schedule_, holding);
    const Color color = holding.terms.empty()     ? Color::kDim
                        : complete && mark != ' ' ? Color::kJustComplete
                        : complete                ? Color::kComplete
                        : mark == '+'             ? Color::kAdded
                        : mark == '='             ? Color::kStored
                                                  : Color::kPlain;
    return Painted(Padded(mark + ToText(story_, piece, holding), cell_widths_[piece]), color,
                   style_.color);
  }

  // "chunk 2 → rank 1; chunk 0 ← ranks 1, 2; chunk 1 + scratch 0": what the rank sends, what it
  // fetches, and what it does in its own memory.
  std::string Phrase(const Round& round, int rank) const {
    struct Part {
      std::string what;    // "chunk 2 →"
      std::string behind;  // " as scratch 0"
      std::vector<int> ranks;
    };
    std::vector<Part> parts;
    const auto add = [&](std::string what, std::string behind, int peer) {
      for (Part& part : parts) {
        if (part.what == what && part.behind == behind) return part.ranks.push_back(peer);
      }
      parts.push_back({std::move(what), std::move(behind), {peer}});
    };
    std::vector<std::string> own;
    for (const Move& move : round.moves) {
      const std::string source = NameOfPiece(schedule_, move.source);
      const std::string target = NameOfPiece(schedule_, move.target);
      const bool fetched = move.by_memory && move.kind == Move::Kind::kAdd;
      if (move.from == move.to && move.from == rank) {
        own.push_back(target + (fetched ? " + " : " = ") + source);
      } else if (fetched && move.to == rank) {
        add(source + " ←", "", move.from);
      } else if (!fetched && move.from == rank) {
        add(source + " →", source == target ? "" : " as " + target, move.to);
      }
    }
    std::vector<std::string> all;
    for (const Part& part : parts) {
      all.push_back(fmt::format("{} rank{} {}{}", part.what, part.ranks.size() == 1 ? "" : "s",
                                fmt::join(part.ranks, ", "), part.behind));
    }
    all.insert(all.end(), own.begin(), own.end());
    return fmt::format("{}", fmt::join(all, "; "));
  }

  void AddPhrasesBelow(const Round& round) {
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      const std::string phrase = Phrase(round, rank);
      if (phrase.empty()) continue;
      const std::string label = fmt::format("  rank {}: ", rank);
      const std::vector<std::string> lines = Wrapped(phrase, style_.width - WidthOf(label));
      for (size_t i = 0; i < lines.size(); ++i) {
        AddLine((i == 0 ? label : std::string(size_t(WidthOf(label)), ' ')) + lines[i]);
      }
    }
  }

  // Without spaces at the end.
  void AddLine(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    out_ += line + "\n";
  }

  const Story& story_;
  const Schedule& schedule_;
  const std::vector<int>& hosts_;
  const TableStyle style_;
  int label_width_ = 10;
  std::string (*name_of_)(const Schedule&, int) = nullptr;
  std::vector<int> cell_widths_;
  std::vector<std::vector<int>> blocks_;
  bool phrases_beside_ = true;
  int phrase_column_ = 0;
  std::string out_;
};

}  // namespace

std::string RenderTable(const Story& story, const std::vector<int>& hosts,
                        const TableStyle& style) {
  return Table(story, hosts, style).Render();
}

}  // namespace tutti::tools
