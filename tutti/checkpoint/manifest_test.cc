#include "tutti/checkpoint/manifest.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/checkpoint/safetensors.h"
#include "tutti/checkpoint/sealed_lines.h"

namespace tutti::checkpoint {
namespace {

using ::testing::HasSubstr;

Manifest Sample() {
  Manifest manifest;
  manifest.made_by = "test \"1\"";
  manifest.step = 123;
  manifest.position = 456;
  manifest.seed = -1;
  manifest.fingerprint = "0123";
  manifest.data = {{"samples", "60000"}};
  manifest.order = {{"strategy", "allreduce"}, {"workers", "2"}};
  manifest.shards = {{"a.safetensors", 5000, 0x1234}, {"b.safetensors", 6000, 0xdeadbeef}};
  manifest.tensors = {
      {.name = "w", .key = "w/part_0", .dtype = kFloat32, .shape = {2, 3}, .whole = {5, 3}},
      {.name = "w",
       .key = "w/part_1",
       .dtype = kFloat32,
       .shape = {3, 3},
       .whole = {5, 3},
       .first_row = 2,
       .shard = 1,
       .crc = 7},
      {.name = "w/m",
       .key = "w/m",
       .dtype = kFloat32,
       .shape = {5, 3},
       .whole = {5, 3},
       .slot_of = "w"},
      {.name = "global_step", .key = "global_step", .dtype = kInt64, .shape = {}, .whole = {}}};
  return manifest;
}

std::string ErrorOf(const std::string& text) {
  const auto manifest = ParseManifest(text);
  return manifest.ok() ? "no error" : std::string(MessageOf(manifest.status()));
}
std::string ErrorOf(const std::function<void(Manifest&)>& change) {
  Manifest manifest = Sample();
  change(manifest);
  return ErrorOf(FormatManifest(manifest));
}

TEST(ManifestTest, WhatIsWrittenIsRead) {
  const std::string text = FormatManifest(Sample());
  const auto manifest = ParseManifest(text);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(FormatManifest(*manifest), text);
  EXPECT_EQ(manifest->tensors[1].first_row, 2);
  EXPECT_EQ(manifest->tensors[1].whole, (Shape{5, 3}));
  EXPECT_EQ(manifest->tensors[2].slot_of, "w");
  EXPECT_EQ(manifest->order.at("workers"), "2");
}

TEST(ManifestTest, NamesTheLineThatIsDamaged) {
  std::string text = FormatManifest(Sample());
  text[text.find("456")] = '5';
  EXPECT_THAT(ErrorOf(text), HasSubstr("line 5 (\"position\") is damaged"));
  text = FormatManifest(Sample());
  text[text.find("part_1")] = 'q';
  EXPECT_THAT(ErrorOf(text), HasSubstr("(\"w\") is damaged"));
  text = FormatManifest(Sample());
  text.resize(text.size() / 2);
  EXPECT_THAT(ErrorOf(text), HasSubstr("missing or damaged"));
  EXPECT_THAT(ErrorOf(std::string()), HasSubstr("missing or damaged"));
}

TEST(ManifestTest, ANewerFormatIsRefusedByItsVersion) {
  EXPECT_THAT(ErrorOf([](Manifest& m) { m.format = 2; }),
              HasSubstr("it has format 2, and this version of Tutti reads formats up to 1"));
  // Even when its checksums are of another kind.
  EXPECT_THAT(ErrorOf("{\"format\": 9, \"seal\": \"of another kind\"}"), HasSubstr("has format 9"));
}

TEST(ManifestTest, RefusesWhatNoWriterWrites) {
  for (const char* file : {"../a.safetensors", "/etc/a.safetensors", "a/b.safetensors", "",
                           ".safetensors", ".a.safetensors", "a.txt", "..", "a\n.safetensors"}) {
    EXPECT_THAT(ErrorOf([&](Manifest& m) { m.shards[0].file = file; }),
                HasSubstr("expected a plain name that ends with .safetensors"))
        << file;
  }
  EXPECT_THAT(ErrorOf([](Manifest& m) { m.tensors[2].shard = 2; }), HasSubstr("in shard 2 of 2"));
  EXPECT_THAT(ErrorOf([](Manifest& m) { m.tensors[1].first_row = 1; }),
              HasSubstr("parts that do not fit together at row 2"));
  EXPECT_THAT(ErrorOf([](Manifest& m) { m.tensors[1].first_row = 3; }),
              HasSubstr("which are no rows of [5, 3]"));
  EXPECT_THAT(ErrorOf([](Manifest& m) { m.tensors.erase(m.tensors.begin() + 1); }),
              HasSubstr("tensor \"w\" has 2 of its 5 rows"));
  EXPECT_THAT(ErrorOf([](Manifest& m) { m.tensors[3].name = m.tensors[3].key = "w/m"; }),
              HasSubstr("stands there twice"));
  EXPECT_THAT(ErrorOf(SealLines("{\n\"format\": \"x\",\n")), HasSubstr("has a wrong \"format\""));
  EXPECT_THAT(ErrorOf(SealLines("{\n\"format\": 1,\n")), HasSubstr("has no \"made_by\""));
  EXPECT_THAT(ErrorOf(SealLines("{\n\"format\": " + std::string(100000, '[') + ",\n")),
              HasSubstr("nested deeper"));
}

// A reader that looks each name up among all before it would not come to an end here.
TEST(ManifestTest, RefusesAMillionNamesAndValues) {
  std::string names = "{\n\"format\": 1,\n\"data\": {", values = "{\n\"format\": 1,\n\"data\": [";
  for (int i = 0; i < 1'000'000; ++i) names += fmt::format("\"a name that is unknown {}\": 1, ", i);
  for (int i = 0; i < 5'000'000; ++i) values += "1,";
  EXPECT_EQ(ErrorOf(SealLines(names + "\"last\": 1},\n")),
            "an object in it has more than 1000 names");
  EXPECT_EQ(ErrorOf(SealLines(values + "1],\n")), "it has more than 4000000 values");
}

// As many tensors as there may be, each with all its fields.
TEST(ManifestTest, ReadsTheLargestThatIsWritten) {
  Manifest manifest = Sample();
  manifest.tensors.clear();
  for (size_t i = 0; i < kMaxTensors; ++i) {
    manifest.tensors.push_back({.name = fmt::format("w{}", i / 2),
                                .key = fmt::format("w{}/part", i),
                                .dtype = kFloat32,
                                .shape = {1, 1, 1, 1, 1, 1, 1, 1},
                                .whole = {2, 1, 1, 1, 1, 1, 1, 1},
                                .first_row = int64_t(i % 2),
                                .slot_of = "w"});
  }
  const auto read = ParseManifest(FormatManifest(manifest));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->tensors.size(), kMaxTensors);
}

}  // namespace
}  // namespace tutti::checkpoint
