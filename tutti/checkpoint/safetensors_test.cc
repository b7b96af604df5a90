#include "tutti/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tutti/base/crc32c.h"
#include "tutti/checkpoint/shard_file.h"
#include "tutti/testing/checkpoint/sample_checkpoint.h"

namespace tutti::checkpoint {
namespace {

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
