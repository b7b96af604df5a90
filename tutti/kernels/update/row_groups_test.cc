#include "tutti/kernels/update/row_groups.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tutti {
namespace {

// What `groups` must be, by an ordered map.
void ExpectGroups(RowGroups& groups, const std::vector<int64_t>& rows) {
  std::map<uint64_t, std::vector<int64_t>> expected;
  groups.Begin(int64_t(rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    groups.Add(rows[i]);
    expected[uint64_t(rows[i])].push_back(int64_t(i));
  }
  groups.Find();
  ASSERT_EQ(groups.size(), int64_t(expected.size()));
  int64_t g = 0;
  for (const auto& [row, positions] : expected) {
    EXPECT_EQ(uint64_t(groups.row(g)), row);
    std::vector<int64_t> found;
    for (const RowGroups::Entry& entry : groups.entries(g)) {
      EXPECT_EQ(uint64_t(entry.row), row);
      found.push_back(entry.position);
    }
    EXPECT_EQ(found, positions);
    ++g;
  }
}

TEST(RowGroupsTest, GroupsByRowInOrder) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  RowGroups groups;  // one, so that earlier rows would be seen
  for (const int64_t count : {0, 1, 2, 31, 32, 33, 500, 3000}) {
    for (const int64_t range :
         {int64_t{1}, int64_t{7}, int64_t{256}, int64_t{100'000}, INT64_MAX}) {
      std::vector<int64_t> rows;
      std::uniform_int_distribution<int64_t> row(0, range - 1);
      for (int64_t i = 0; i < count; ++i) rows.push_back(row(random));
      ExpectGroups(groups, rows);
    }
  }
}

TEST(RowGroupsTest, RowsThatAscendAndRowsThatAreNone) {
  RowGroups groups;
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < 100; ++i) rows.push_back(3 * i);
  ExpectGroups(groups, rows);
  rows.push_back(297);
  ExpectGroups(groups, rows);
  rows.push_back(-1);  // the update reports it, after it was grouped
  ExpectGroups(groups, rows);
  ExpectGroups(groups, {-1, 5, -1});
}

}  // namespace
}  // namespace tutti
