#include "tutti/data/idx.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/testing/scarce_memory.h"
#include "tutti/testing/sweep.h"

namespace tutti {
namespace {

using Bytes = std::vector<uint8_t>;

// [2, 3] of int16: 1, -2, 3, 256, 5, 6.
const Bytes kSmall = {0, 0, 0x0B, 2,    0, 0, 0, 2, 0, 0, 0, 3,
                      0, 1, 0xFF, 0xFE, 0, 3, 1, 0, 0, 5, 0, 6};

std::string ErrorOf(const Bytes& bytes) {
  try {
    ParseIdx(bytes, "small.idx");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class IdxFile : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) /
              (std::string("tutti_idx_") + info->name() + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const Bytes& bytes) {
    const std::string path = folder_ / "file";
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
    return path;
  }
  Bytes Gzip(const Bytes& bytes) {
    const std::string path = folder_ / "gz";
    gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, bytes.data(), unsigned(bytes.size()));
    gzclose(file);
    std::ifstream in(path, std::ios::binary);
    return Bytes(std::istreambuf_iterator<char>(in), {});
  }
  std::string ErrorOfFile(const Bytes& bytes) {
    try {
      ReadIdx(Write(bytes));
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  std::filesystem::path folder_;
};

TEST(Idx, ReadsBigEndianElements) {
  const Tensor t = ParseIdx(kSmall, "small.idx");
  EXPECT_TRUE(t.BitwiseEquals(Tensor::Of<int16_t>({2, 3}, {1, -2, 3, 256, 5, 6})));
}

TEST(Idx, ReadsScalarsAndZeroSizes) {
  EXPECT_TRUE(ParseIdx(Bytes{0, 0, 8, 0, 7}, "s").BitwiseEquals(Tensor::Scalar<uint8_t>(7)));
  EXPECT_EQ(ParseIdx(Bytes{0, 0, 8, 1, 0, 0, 0, 0}, "z").shape(), Shape{0});
  const Bytes pi = {0, 0, 0x0E, 1, 0, 0, 0, 1, 0x40, 0x09, 0x21, 0xFB, 0x54, 0x44, 0x2D, 0x18};
  EXPECT_DOUBLE_EQ(ParseIdx(pi, "pi").data<double>()[0], 3.141592653589793);
}

TEST(Idx, EveryTruncationIsAnErrorThatNamesTheOffset) {
  for (size_t size = 0; size < kSmall.size(); ++size) {
    const std::string error = ErrorOf(Bytes(kSmall.begin(), kSmall.begin() + size));
    EXPECT_NE(error.find("small.idx: "), std::string::npos) << error;
    if (size < 12) {
      EXPECT_NE(error.find("inside the header"), std::string::npos) << size << ": " << error;
    }
  }
  EXPECT_EQ(ErrorOf(Bytes(kSmall.begin(), kSmall.begin() + 20)),
            "small.idx: ends at offset 20; expected 12 bytes of int16 [2, 3] from offset 12 on, "
            "found 8");
}

TEST(Idx, RefusesWhatIsWrongInTheHeader) {
  Bytes bytes = kSmall;
  bytes[1] = 1;
  EXPECT_NE(ErrorOf(bytes).find("is no IDX file: expected two zero bytes at offset 0"),
            std::string::npos);
  bytes = kSmall;
  bytes[2] = 0x0A;
  EXPECT_NE(ErrorOf(bytes).find("unknown element type 0x0a at offset 2"), std::string::npos);
  bytes = kSmall;
  bytes[3] = 9;
  EXPECT_NE(ErrorOf(bytes).find("9 dimensions at offset 3; expected at most 8"), std::string::npos);
  bytes = kSmall;
  bytes.push_back(0);
  EXPECT_NE(ErrorOf(bytes).find("bytes follow the last element; expected the end at offset 24"),
            std::string::npos);
  // 2^32-1 elements each way: neither overflow nor memory for it.
  bytes = kSmall;
  for (int i = 4; i < 12; ++i) bytes[size_t(i)] = 0xFF;
  EXPECT_NE(ErrorOf(bytes).find("small.idx: "), std::string::npos);
  EXPECT_NE(ErrorOf(bytes), "no error");
}

TEST(Idx, RandomMutationsNeverDoWorseThanAnError) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const int rounds = testing::SweepCount(20'000, 2'000'000);
  for (int round = 0; round < rounds; ++round) {
    Bytes bytes = kSmall;
    for (int change = 0; change < 3; ++change) bytes[random() % bytes.size()] = uint8_t(random());
    if (random() % 2) bytes.resize(random() % (bytes.size() + 1));
    try {
      ParseIdx(bytes, "mutated");
    } catch (const Error&) {
    }
  }
}

TEST_F(IdxFile, ReadsPlainAndGzip) {
  const Tensor expected = ParseIdx(kSmall, "");
  EXPECT_TRUE(ReadIdx(Write(kSmall)).BitwiseEquals(expected));
  EXPECT_TRUE(ReadIdx(Write(Gzip(kSmall))).BitwiseEquals(expected));
}

TEST_F(IdxFile, EveryTruncationAndBitFlipOfAGzipFileIsAnError) {
  const Bytes whole = Gzip(kSmall);
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(ErrorOfFile(Bytes(whole.begin(), whole.begin() + size)), "no error") << size;
  }
  // Behind gzip's header everything is covered by the checksum or is the checksum.
  for (size_t at = 10; at < whole.size(); ++at) {
    Bytes bytes = whole;
    bytes[at] ^= 0x10;
    const std::string error = ErrorOfFile(bytes);
    EXPECT_NE(error, "no error") << at;
    EXPECT_NE(error.find("file: "), std::string::npos) << error;
  }
}

TEST_F(IdxFile, AnnouncingMoreThanTheFileCanHoldTakesNoMemory) {
  const Bytes huge = {0, 0, 0x0E, 2, 0x00, 0x10, 0, 0, 0x00, 0x10, 0, 0};
  for (const Bytes& bytes : {huge, Gzip(huge)}) {
    const std::string error = ErrorOfFile(bytes);
    EXPECT_NE(error.find("the header announces float64 [1048576, 1048576], more than the file can "
                         "hold"),
              std::string::npos)
        << error;
  }
}

TEST_F(IdxFile, OutOfMemoryIsNotCalledACorruptFile) {
  if (!testing::CanLimitMemory()) GTEST_SKIP() << "a sanitizer needs the addresses";
  const std::string path = Write(Gzip(kSmall));
  EXPECT_EXIT(
      {
        testing::LeaveLittleMemory();
        try {
          ReadIdx(path);
        } catch (const Error& error) {
          std::fprintf(stderr, "%s: %s", CodeName(error.code()), error.what());
        }
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0),
      "RESOURCE_EXHAUSTED: .*file: there is not enough memory to read it");
}

// The buffers of zlib fit, but the tensor does not.
TEST_F(IdxFile, AFileThatIsLargerThanMemoryIsNamed) {
  if (!testing::CanLimitMemory()) GTEST_SKIP() << "a sanitizer needs the addresses";
  Bytes large = {0, 0, 0x08, 1, 0x04, 0, 0, 0};
  large.resize(large.size() + (size_t{64} << 20));
  const std::string path = Write(Gzip(large));
  large = {};
  EXPECT_EXIT(
      {
        testing::LimitMemory(32 << 20);
        try {
          ReadIdx(path);
        } catch (const Error& error) {
          std::fprintf(stderr, "%s: %s", CodeName(error.code()), error.what());
        }
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0),
      "RESOURCE_EXHAUSTED: .*file: not enough memory for a tensor of uint8 .67108864.");
}

TEST_F(IdxFile, AMissingFileIsNotFound) {
  try {
    ReadIdx(folder_ / "absent");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kNotFound);
    EXPECT_NE(std::string(error.what()).find("absent: cannot be opened: No such file"),
              std::string::npos);
  }
  EXPECT_THROW(ReadIdx(folder_), Error);
}

}  // namespace
}  // namespace tutti
