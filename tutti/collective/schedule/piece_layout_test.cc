#include "tutti/collective/schedule/piece_layout.h"

#include <gtest/gtest.h>

namespace tutti::collective {
namespace {

// Every element lies in one piece, in order.
void ExpectCovers(const PieceLayout& layout, int pieces, int64_t total) {
  int64_t next = 0;
  for (int piece = 0; piece < pieces; ++piece) {
    const Range range = layout.Of(piece);
    EXPECT_EQ(range.begin, next) << "piece " << piece;
    EXPECT_GE(range.count, 0);
    next = range.begin + range.count;
  }
  EXPECT_EQ(next, total);
}

TEST(PieceLayout, EvenPiecesCoverEverythingOnce) {
  for (int64_t total : {0, 1, 2, 7, 63, 64, 65, 1000, 4097, 100003}) {
    for (int chunks : {1, 2, 3, 5, 8}) {
      for (int segments : {1, 2, 7}) {
        for (int64_t bytes : {2, 4, 8}) {
          ExpectCovers(PieceLayout::Even(total, chunks, segments, bytes), chunks * segments, total);
        }
      }
    }
  }
}

TEST(PieceLayout, LargePiecesBeginAtCacheLines) {
  const PieceLayout layout = PieceLayout::Even(100003, 5, 3, 4);
  for (int piece = 0; piece < 15; ++piece) EXPECT_EQ(layout.Of(piece).begin % 16, 0);
}

TEST(PieceLayout, SmallDataIsSpreadOverAllChunks) {
  const PieceLayout layout = PieceLayout::Even(8, 4, 1, 4);
  for (int piece = 0; piece < 4; ++piece) EXPECT_EQ(layout.Of(piece), (Range{2 * piece, 2}));
}

TEST(PieceLayout, EqualChunksBeginWhereTheCallerHasThem) {
  const PieceLayout layout = PieceLayout::Equal(101, 3, 2, 4);
  ExpectCovers(layout, 6, 303);
  EXPECT_EQ(layout.Of(2).begin, 101);
  EXPECT_EQ(layout.Of(4).begin, 202);
}

TEST(PieceLayout, VaryingChunks) {
  PieceLayout layout;
  const std::vector<int64_t> counts = {5, 0, 1000, 1};
  layout.SetVarying(counts, 2, 4);
  ExpectCovers(layout, 8, 1006);
  EXPECT_EQ(layout.Of(2).count, 0);
  EXPECT_EQ(layout.Of(4).begin, 5);
  EXPECT_EQ(layout.Of(6).begin, 1005);
}

}  // namespace
}  // namespace tutti::collective
