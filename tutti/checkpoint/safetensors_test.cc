#include "tutti/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tutti/base/crc32c.h"
#include "tutti/checkpoint/shard_file.h"
#include "tutti/testing/checkpoint/sample_checkpoint.h"
#include "tutti/testing/checkpoint/test_file_system.h"

namespace tutti::checkpoint {
namespace {

using ::testing::ElementsAre;
using testing::FileCall;
using ::testing::HasSubstr;

std::string File(std::string_view json, std::string_view data) {
  const uint64_t length = json.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + std::string(json) + std::string(data);
}

std::string ErrorOf(std::string_view json, int64_t data_bytes) {
  const auto header = ParseHeader(json, data_bytes);
  return header.ok() ? "no error" : std::string(MessageOf(header.status()));
}

TEST(SafetensorsTest, WhatIsWrittenIsRead) {
  const TemporaryDirectory folder;
  FileSystem& files = FileSystem::System();
  std::vector<NamedTensor> tensors = SomeTensors(1);
  Tensor large(kFloat32, {3000, 1500});  // several pieces
  for (size_t i = 0; float& v : large.values<float>()) v = float(i++);
  tensors.push_back({"large \"quoted\"", large});
  const auto stored = WriteShard(files, folder / "a.safetensors", tensors, ShardMetadata(5));
  ASSERT_TRUE(stored.ok()) << stored.status();
  const auto file = ShardFile::Open(files, folder / "a.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->header_text().size() % 4096, 0u);
  EXPECT_EQ(file->header().metadata, ShardMetadata(5));
  EXPECT_EQ(file->bytes(), stored->bytes);
  ASSERT_EQ(file->header().tensors.size(), tensors.size());
  std::vector<Tensor> targets;
  std::vector<ShardFile::Request> requests;
  for (const TensorEntry& entry : file->header().tensors) {
    Tensor& target = targets.emplace_back(entry.dtype, entry.shape);
    requests.push_back({&entry, {static_cast<std::byte*>(target.raw()), target.bytes()}});
  }
  ASSERT_TRUE(file->Read(requests).ok());
  const auto checksums = file->Checksums();
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(file->header().tensors[i].name, tensors[i].name);
    EXPECT_TRUE(targets[i].BitwiseEquals(tensors[i].value)) << tensors[i].name;
    const auto bytes =
        std::span(static_cast<const std::byte*>(tensors[i].value.raw()), tensors[i].value.bytes());
    EXPECT_EQ(stored->tensors[i].crc, Crc32c(bytes));
    EXPECT_EQ(requests[i].crc, Crc32c(bytes));
    EXPECT_EQ((*checksums)[i], Crc32c(bytes));
  }
}

TEST(SafetensorsTest, ReadsWhatOthersWrite) {
  const auto header = ParseHeader(
      R"({"b":{"dtype":"BF16","shape":[2],"data_offsets":[4,8]},
          "__metadata__":{"format":"pt"},
          "a":{"shape":[],"data_offsets":[0,4],"dtype":"F32"}}   )",
      8);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->tensors[0], (TensorEntry{"a", kFloat32, {}, 0, 4}));
  EXPECT_EQ(header->tensors[1], (TensorEntry{"b", kBFloat16, {2}, 4, 8}));
  EXPECT_EQ(header->metadata.at("format"), "pt");
}

TEST(SafetensorsTest, RefusesHeadersThatLie) {
  const auto one = [](std::string_view shape, std::string_view offsets) {
    return fmt::format(R"({{"w":{{"dtype":"F32","shape":[{}],"data_offsets":[{}]}}}})", shape,
                       offsets);
  };
  EXPECT_EQ(ErrorOf(one("2", "0,8"), 8), "no error");
  EXPECT_THAT(ErrorOf(one("4611686018427387904,4", "0,8"), 8), HasSubstr("\"shape\" of tensor"));
  EXPECT_THAT(ErrorOf(one("4611686018427387904", "0,8"), 8), HasSubstr("\"w\", float32"));
  EXPECT_THAT(ErrorOf(one("2", "0,9223372036854775807"), 8), HasSubstr("which has 8 bytes"));
  EXPECT_THAT(ErrorOf(one("2", "0,18446744073709551615"), 8), HasSubstr("past 2^63"));
  EXPECT_THAT(ErrorOf(one("2", "8,0"), 8), HasSubstr("at bytes 8 to 0"));
  EXPECT_THAT(ErrorOf(one("2", "-8,0"), 8), HasSubstr("has the number -8"));
  EXPECT_THAT(ErrorOf(one("2", "0,8,8"), 8), HasSubstr("should be two numbers"));
  EXPECT_THAT(ErrorOf(one("3", "0,8"), 8), HasSubstr("8 bytes; expected 12"));
  EXPECT_THAT(ErrorOf(one("2", "4,12"), 12), HasSubstr("begin at byte 4 of the data; expected 0"));
  EXPECT_THAT(ErrorOf(one("2", "0,8"), 9), HasSubstr("end at byte 8"));
  EXPECT_THAT(ErrorOf(one("1,1,1,1,1,1,1,1,2", "0,8"), 8), HasSubstr("more than 8 numbers"));
  EXPECT_THAT(ErrorOf(one("2.0", "0,8"), 8), HasSubstr("is the number 2.0"));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                          "b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                      12),
              HasSubstr("tensor \"b\" begin at byte 4 of the data; expected 8: tensors must "
                        "neither overlap nor leave a gap"));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"F8","shape":[2],"data_offsets":[0,8]}})", 8),
              HasSubstr("which Tutti does not have"));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"F32","shape":[2]}})", 8), HasSubstr("lacks one of"));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}})", 8),
              HasSubstr("\"shape\" of tensor \"a\" stands there twice"));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
                          "a":{"dtype":"F32","shape":[],"data_offsets":[4,8]}})",
                      8),
              HasSubstr("\"a\" stands there twice"));
  EXPECT_THAT(ErrorOf(R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", 8),
              HasSubstr("is a list"));
  EXPECT_THAT(ErrorOf("[]", 0), HasSubstr("the header is a list"));
  EXPECT_THAT(ErrorOf("{} {}", 0), HasSubstr("not JSON at byte"));
  EXPECT_THAT(ErrorOf(std::string(1'000'000, '['), 0), HasSubstr("the header is a list"));
  std::string many = "{";
  for (int i = 0; i < 1'000'000; ++i) {
    many += fmt::format("{}\"{}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                        i == 0 ? "" : ",", i);
  }
  EXPECT_THAT(ErrorOf(many + "}", 0), HasSubstr("more than 100000 tensors"));
  EXPECT_EQ(ErrorOf(R"({"__metadata__":{"a":"1","b":"1"}})", 0), "no error");
  EXPECT_THAT(ErrorOf(R"({"__metadata__":{"a":"1","b":"1","a":"1"}})", 0),
              HasSubstr("\"a\" of __metadata__ stands there twice"));
  many = R"({"__metadata__":{)";
  for (int i = 0; i < 1'000'000; ++i) many += fmt::format("{}\"{}\":\"\"", i == 0 ? "" : ",", i);
  EXPECT_THAT(ErrorOf(many + "}}", 0), HasSubstr("more than 100000 entries in __metadata__"));
}

// An update of a value that is still held would copy it.
TEST(SafetensorsTest, GivesUpEachTensorWhenItIsWritten) {
  const TemporaryDirectory folder;
  testing::TestFileSystem files;
  std::vector<Tensor> values;
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < 3; ++i) {
    values.emplace_back(kFloat32, Shape{3000, 1500});  // several pieces
    tensors.push_back({fmt::format("w{}", i), values.back()});
  }
  std::vector<int> held;  // before each call of write
  files.fail = [&](std::string_view call, const std::string&) {
    if (call != "write" && call != "sync") return 0;
    int count = 0;
    for (const Tensor& value : values) count += value.buffer()->references() > 1 ? 1 : 0;
    if (held.empty() || held.back() != count) held.push_back(count);
    return 0;
  };
  ASSERT_TRUE(
      WriteShard(files, folder / "a.safetensors", std::move(tensors), {}, {.threads = 1}).ok());
  EXPECT_THAT(held, ElementsAre(3, 2, 1, 0));
}

// Whatever call fails, the name leads to a whole file or to none, and nothing lies beside it.
TEST(SafetensorsTest, AFileThatStandsAloneIsWholeOrNotThere) {
  const TemporaryDirectory folder;
  const std::string path = folder / "a.safetensors";
  testing::TestFileSystem files;
  const auto write = [&] { return WriteShardDurably(files, path, SomeTensors(1), {}).status(); };
  const auto left = [&] {
    std::vector<std::string> names;
    FileSystem::System().List(folder.path(), &names);
    return names;
  };
  ASSERT_TRUE(write().ok());
  const std::vector<std::string> all = files.names;
  // The order of calls is what makes it safe.
  std::vector<FileCall::Kind> kinds;
  for (const FileCall& call : files.calls) kinds.push_back(call.kind);
  ASSERT_GE(kinds.size(), 5u);
  EXPECT_THAT(std::vector(kinds.end() - 3, kinds.end()),
              ElementsAre(FileCall::kSync, FileCall::kRename, FileCall::kSync));
  EXPECT_EQ(files.calls.back().path, folder.path());
  EXPECT_THAT(left(), ElementsAre("a.safetensors"));
  const std::string whole = ContentOf(path);
  EXPECT_THAT(std::string(MessageOf(write())),
              HasSubstr("cannot create " + path + ": File exists"));
  EXPECT_EQ(ContentOf(path), whole);
  for (size_t nth = 0; nth < all.size(); ++nth) {
    std::filesystem::remove(path);
    size_t count = 0;
    files.fail = [&](std::string_view, const std::string&) { return count++ == nth ? ENOSPC : 0; };
    const absl::Status status = write();
    files.fail = nullptr;
    if (!status.ok()) {
      EXPECT_THAT(std::string(MessageOf(status)), HasSubstr("No space left"));
    }
    if (left().empty()) continue;
    EXPECT_THAT(left(), ElementsAre("a.safetensors")) << nth << ", " << all[nth];
    EXPECT_EQ(ContentOf(path), whole) << nth << ", " << all[nth];
  }
  // One that comes meanwhile is not replaced.
  std::filesystem::remove(path);
  files.fail = [&](std::string_view call, const std::string&) {
    if (call == "rename") SetContent(path, "of another");
    return 0;
  };
  EXPECT_THAT(std::string(MessageOf(write())), HasSubstr("File exists"));
  EXPECT_EQ(ContentOf(path), "of another");
  EXPECT_THAT(left(), ElementsAre("a.safetensors"));
}

TEST(SafetensorsTest, RefusesLengthsThatLie) {
  const TemporaryDirectory folder;
  const std::string path = folder / "a.safetensors";
  const auto error_of = [&](const std::string& content) {
    SetContent(path, content);
    const auto file = ShardFile::Open(FileSystem::System(), path);
    return file.ok() ? "no error" : std::string(MessageOf(file.status()));
  };
  EXPECT_EQ(error_of(File("{}", "")), "no error");
  EXPECT_THAT(error_of(""), HasSubstr("the file has 0 bytes"));
  EXPECT_THAT(error_of("1234567"), HasSubstr("the file has 7 bytes"));
  EXPECT_THAT(error_of(std::string(8, '\xff')), HasSubstr("expected at most 100000000"));
  EXPECT_THAT(error_of(std::string("\x00\x00\x00\x05\x00\x00\x00\x00", 8)),
              HasSubstr("is 83886080, but the file has only 8 bytes"));
}

}  // namespace
}  // namespace tutti::checkpoint
