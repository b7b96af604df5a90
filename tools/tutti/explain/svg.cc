// A picture of a schedule.
//
// Every round is a panel: a grid with a row for each rank and a cell for each piece. A cell has a
// vertical stripe for each rank, filled in that rank's colour if the rank's data is in the cell, so
// one sees sums grow; a cell with all of them has a frame. To the right of the grid, arrows lead
// from the row that sends to the row that receives, in the colour of the sender, and the cells they
// end at have a mark: + where something was added, = where it was stored.

#include "tools/tutti/explain/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace tutti::tools {
namespace {

using collective::Schedule;

constexpr int kCellHeight = 26;
constexpr int kGap = 4;
constexpr int kMargin = 24;
constexpr int kTitle = 46;        // above the grid of a panel: its name and the pieces'
constexpr int kPageWidth = 1280;  // panels go to the next line behind it
constexpr int kHeading = 76;

// Colours that stay apart for neighbours: the hue goes around by the golden angle.
std::string ColorOf(int rank) {
  return fmt::format("hsl({:.0f},62%,58%)", std::fmod(210 + rank * 137.508, 360.0));
}

// Plain rules, twice: not every program that shows SVG knows variables.
constexpr std::string_view kCss = R"(<style>
  text { font-family: system-ui, sans-serif; font-size: 13px; fill: #1f2328 }
  .paper { fill: #ffffff }
  .faint { fill: #6e7781; font-size: 11px }
  .head { font-size: 18px; font-weight: 600 }
  .title { font-weight: 600 }
  .empty { fill: #eaeef2 }
  .done { fill: none; stroke: #1a7f37; stroke-width: 2.5 }
  .mark, .value { paint-order: stroke; stroke: #ffffff; stroke-width: 3px }
  .mark { font-weight: 700; font-size: 14px }
  .value { font-size: 12px }
  .arrow { fill: none; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .paper { fill: #0d1117 }
    .faint { fill: #8b949e }
    .empty { fill: #21262d }
    .done { stroke: #3fb950 }
    .mark, .value { stroke: #0d1117 }
  }
</style>
)";

class Picture {
 public:
  Picture(const Story& story, const std::vector<int>& hosts)
      : story_(story), schedule_(story.schedule), hosts_(hosts) {
    size_t longest = 0;  // text in a cell
    size_t longest_name = 0;
    for (int piece = 0; piece < schedule_.pieces(); ++piece) {
      longest_name = std::max(longest_name, ShortNameOfPiece(schedule_, piece).size());
    }
    for (const Round& round : story_.rounds) {
      for (const std::vector<Holding>& memory : round.memory) {
        for (int piece = 0; piece < schedule_.pieces(); ++piece) {
          if (story_.has_values) {
            longest = std::max(longest, ToText(story_, piece, memory[piece]).size());
          }
        }
      }
    }
    cell_width_ = std::max({36, 7 * schedule_.ranks, 7 * static_cast<int>(longest_name) + 4,
                            8 * static_cast<int>(longest) + 28});
    cell_width_ = std::min(cell_width_, 260);
    label_width_ = hosts_.empty() ? 52 : 100;
    arrows_width_ = 24 + 12 * std::min(schedule_.ranks, 12);
    panel_width_ =
        label_width_ + schedule_.pieces() * (cell_width_ + kGap) + arrows_width_ + kMargin;
    panel_height_ = kTitle + schedule_.ranks * (kCellHeight + kGap) + kMargin;
    columns_ = std::max(1, (kPageWidth - kMargin) / panel_width_);
    columns_ = std::min(columns_, static_cast<int>(story_.rounds.size()));
  }

  std::string Render() {
    const int rows = (static_cast<int>(story_.rounds.size()) + columns_ - 1) / columns_;
    const int width = kMargin + columns_ * panel_width_;
    const int height = kHeading + rows * panel_height_ + kMargin;
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" role=\"img\">\n<title>{2}</title>\n",
        width, height, Title());
    out_ += kCss;
    AddArrowHeads();
    out_ += fmt::format("<rect class=\"paper\" width=\"{}\" height=\"{}\"/>\n", width, height);
    Text(kMargin, 32, "head", Title());
    Text(kMargin, 52, "faint",
         "a stripe for each rank whose data is in the cell; + added, = stored, framed: complete");
    for (size_t i = 0; i < story_.rounds.size(); ++i) {
      const int column = static_cast<int>(i) % columns_;
      const int row = static_cast<int>(i) / columns_;
      out_ += fmt::format("<g transform=\"translate({},{})\">\n", kMargin + column * panel_width_,
                          kHeading + row * panel_height_);
      AddPanel(i);
      out_ += "</g>\n";
    }
    return std::move(out_) + "</svg>\n";
  }

 private:
  std::string Title() const {
    return fmt::format("{} {} among {} ranks", schedule_.algorithm, NameOf(schedule_.operation),
                       schedule_.ranks);
  }

  void Text(int x, int y, std::string_view css, std::string_view text,
            std::string_view anchor = "start") {
    out_ += fmt::format("<text x=\"{}\" y=\"{}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y,
                        css, anchor, text);
  }

  int X(int piece) const { return label_width_ + piece * (cell_width_ + kGap); }
  int Y(int rank) const { return kTitle + rank * (kCellHeight + kGap); }

  // One marker a colour: SVG 1.1 markers do not take over that of their line.
  void AddArrowHeads() {
    out_ += "<defs>\n";
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      out_ += fmt::format(
          "<marker id=\"head{}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"5\" "
          "markerHeight=\"5\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"{}\"/></marker>\n",
          rank, ColorOf(rank));
    }
    out_ += "</defs>\n";
  }

  void AddPanel(size_t index) {
    const Round& round = story_.rounds[index];
    Text(0, 14, "title", index == 0 ? "start" : fmt::format("round {}", index));
    Text(label_width_ - 8, kTitle - 8, "faint", "chunk", "end");
    for (int piece = 0; piece < schedule_.pieces(); ++piece) {
      Text(X(piece) + cell_width_ / 2, kTitle - 8, "faint", ShortNameOfPiece(schedule_, piece),
           "middle");
    }
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      Text(0, Y(rank) + 18, "",
           hosts_.empty() ? fmt::format("rank {}", rank)
                          : fmt::format("rank {} host {}", rank, hosts_[rank]));
      for (int piece = 0; piece < schedule_.pieces(); ++piece) AddCell(round, rank, piece);
    }
    std::set<std::pair<int, int>> drawn;
    for (const Move& move : round.moves) {
      if (move.from != move.to && drawn.emplace(move.from, move.to).second) {
        AddArrow(move.from, move.to);
      }
    }
  }

  void AddCell(const Round& round, int rank, int piece) {
    const Holding& holding = round.memory[rank][piece];
    const int x = X(piece);
    const int y = Y(rank);
    out_ += fmt::format(
        "<rect class=\"empty\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\"/>\n", x, y,
        cell_width_, kCellHeight);
    const double stripe = static_cast<double>(cell_width_) / schedule_.ranks;
    for (const Holding::Term& term : holding.terms) {
      out_ +=
          fmt::format("<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"/>\n",
                      x + term.rank * stripe, y, stripe, kCellHeight, ColorOf(term.rank));
    }
    if (IsComplete(schedule_, holding)) {
      out_ += fmt::format(
          "<rect class=\"done\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\"/>\n", x, y,
          cell_width_, kCellHeight);
    }
    if (story_.has_values) {
      Text(x + cell_width_ / 2, y + 18, "value", ToText(story_, piece, holding), "middle");
    }
    for (const Move& move : round.moves) {
      if (move.to != rank || move.target != piece) continue;
      Text(story_.has_values ? x + 4 : x + cell_width_ / 2, y + 18, "mark",
           move.kind == Move::Kind::kAdd ? "+" : "=", story_.has_values ? "start" : "middle");
      break;
    }
  }

  // A bow to the right of the grid, the wider the further apart the rows are.
  void AddArrow(int from, int to) {
    const int x = X(schedule_.pieces()) + 2;
    // Arrows that leave a row start above its middle, those that arrive end below it.
    const int begin = Y(from) + kCellHeight / 2 - 5;
    const int end = Y(to) + kCellHeight / 2 + 5;
    const int bow = std::min(arrows_width_, 22 + 12 * std::abs(from - to));
    out_ += fmt::format(
        "<path class=\"arrow\" stroke=\"{}\" marker-end=\"url(#head{})\" d=\"M{} {}C{} {} {} {} {} "
        "{}\"/>\n",
        ColorOf(from), from, x, begin, x + bow, begin, x + bow, end, x + 2, end);
  }

  const Story& story_;
  const Schedule& schedule_;
  const std::vector<int>& hosts_;
  int cell_width_ = 0;
  int label_width_ = 0;
  int arrows_width_ = 0;
  int panel_width_ = 0;
  int panel_height_ = 0;
  int columns_ = 1;
  std::string out_;
};

}  // namespace

std::string RenderSvg(const Story& story, const std::vector<int>& hosts) {
  return Picture(story, hosts).Render();
}

}  // namespace tutti::tools
