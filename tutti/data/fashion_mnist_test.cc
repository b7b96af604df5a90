#include "tutti/data/fashion_mnist.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tutti/base/error.h"

namespace tutti {
namespace {

class FashionMnistFiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("tutti_fashion_") + info->name() + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    unsetenv("TUTTI_DATA");
    std::filesystem::remove_all(folder_);
  }

  // `count` images that are all 7, and the labels given.
  void WritePart(const std::string& part, uint8_t count, const std::string& labels) {
    std::string header("\0\0\x08\x03\0\0\0\0\0\0\0\x1c\0\0\0\x1c", 16);
    header[7] = char(count);
    std::ofstream(folder_ / (part + "-images-idx3-ubyte"), std::ios::binary)
        << header << std::string(size_t(count) * 784, '\x07');
    std::string label_header("\0\0\x08\x01\0\0\0\0", 8);
    label_header[7] = char(labels.size());
    std::ofstream(folder_ / (part + "-labels-idx1-ubyte"), std::ios::binary)
        << label_header << labels;
  }
  std::string LoadError() {
    try {
      LoadFashionMnist(folder_);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  std::filesystem::path folder_;
};

TEST_F(FashionMnistFiles, LoadsFromTheFolderThatTheVariableNames) {
  WritePart("train", 3, std::string("\x00\x09\x04", 3));
  WritePart("t10k", 1, "\x01");
  setenv("TUTTI_DATA", folder_.c_str(), 1);
  EXPECT_EQ(FindFashionMnist(), folder_.string());
  const FashionMnist data = LoadFashionMnist();
  EXPECT_EQ(data.train.images.shape(), Shape({3, 28, 28, 1}));
  EXPECT_EQ(data.train.images.data<uint8_t>()[783], 7);
  EXPECT_TRUE(data.train.labels.BitwiseEquals(Tensor::Vector<int32_t>({0, 9, 4})));
  EXPECT_EQ(data.test.labels.shape(), Shape{1});
}

TEST_F(FashionMnistFiles, AVariableThatNamesAnotherFolderIsNoHint) {
  setenv("TUTTI_DATA", folder_.c_str(), 1);
  try {
    FindFashionMnist();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kNotFound);
    EXPECT_NE(std::string(error.what()).find("TUTTI_DATA is " + folder_.string() + ", but neither"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(FashionMnistFiles, SaysWhatIsWrongWithTheFiles) {
  EXPECT_NE(LoadError().find("train-images-idx3-ubyte.gz: no such file"), std::string::npos);
  WritePart("train", 2, "\x01\x0a");
  WritePart("t10k", 1, "\x01");
  EXPECT_NE(LoadError().find("label 10 of image 1 is out of range; expected 0 to 9"),
            std::string::npos);
  WritePart("train", 2, "\x01");
  EXPECT_NE(LoadError().find("holds uint8 [1]; expected uint8 [2], one label for each image"),
            std::string::npos);
}

TEST(FashionMnist, TheErrorNamesThePackage) {
  if (std::filesystem::exists("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")) {
    GTEST_SKIP() << "the package is installed";
  }
  try {
    FindFashionMnist();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kNotFound);
    EXPECT_NE(std::string(error.what()).find("apt-get install dataset-fashion-mnist"),
              std::string::npos);
  }
}

TEST(FashionMnist, LoadsDebiansPackage) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")) {
    GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  }
  const FashionMnist data = LoadFashionMnist("/usr/share/datasets/fashion-mnist");
  EXPECT_EQ(data.train.images.shape(), Shape({60000, 28, 28, 1}));
  EXPECT_EQ(data.test.images.shape(), Shape({10000, 28, 28, 1}));
  std::array<int, 10> counts{};
  for (const int32_t label : data.train.labels.values<int32_t>()) ++counts[size_t(label)];
  for (const int count : counts) EXPECT_EQ(count, 6000);
}

}  // namespace
}  // namespace tutti
