#include "tutti/base/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tutti/base/status.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

class TextFileTest : public ::testing::Test {
 protected:
  TextFileTest() : folder_((std::filesystem::temp_directory_path() / "tutti-XXXXXX").string()) {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  ~TextFileTest() override { std::filesystem::remove_all(folder_); }
  std::string File(const std::string& name) const { return folder_ + "/" + name; }
  std::string Contents(const std::string& name) const {
    std::ifstream file(File(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::string folder_;
};

TEST_F(TextFileTest, ReplacesWhatIsThere) {
  EXPECT_TRUE(WriteTextFile(File("a"), "something longer").ok());
  EXPECT_TRUE(WriteTextFile(File("a"), "short\n").ok());
  EXPECT_EQ(Contents("a"), "short\n");
}

TEST_F(TextFileTest, TellsOfAFullDisk) {
  const absl::Status status = WriteTextFile("/dev/full", "text");
  EXPECT_THAT(std::string(MessageOf(status)),
              HasSubstr("cannot write /dev/full: No space left on device"));
  // More than any buffer holds, so that it fails before the file is closed.
  const absl::Status large = WriteTextFile("/dev/full", std::string(1 << 20, 'x'));
  EXPECT_THAT(std::string(MessageOf(large)), HasSubstr("No space left on device"));
}

TEST_F(TextFileTest, TellsOfAFolderThatIsMissing) {
  EXPECT_THAT(std::string(MessageOf(WriteTextFile(File("no/a"), "text"))),
              HasSubstr("no/a: No such file or directory"));
  EXPECT_THAT(std::string(MessageOf(CheckWritable(File("no/a")))),
              HasSubstr("no/a: No such file or directory"));
}

TEST_F(TextFileTest, ACheckLeavesWhatIsThere) {
  EXPECT_TRUE(WriteTextFile(File("a"), "text").ok());
  EXPECT_TRUE(CheckWritable(File("a")).ok());
  EXPECT_EQ(Contents("a"), "text");
}

}  // namespace
}  // namespace tutti
