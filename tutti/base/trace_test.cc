#include "tutti/base/trace.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tutti {
namespace {

TEST(Trace, IsReadAsJson) {
  ChromeTraceWriter trace;
  trace.NameProcess(1, "worker");
  trace.NameThread(1, 2, "/cpu:0");
  trace.Add({.name = "dense/\"y\"\n",
             .category = "MatMul",
             .process = 1,
             .thread = 2,
             .start_nanos = 1'234'567,
             .duration_nanos = 89,
             .args = {{"bytes", int64_t{4096}},
                      {"rate", 0.5},
                      {"bad", std::nan("")},
                      {"fused", true},
                      {"shape", std::string("[2, 3]")}}});
  trace.Add({.name = "z", .start_nanos = -5});
  const std::string path = testing::TempDir() + "/trace_test.json";
  ASSERT_TRUE(trace.Write(path).ok());
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);
  const auto& events = json["traceEvents"];
  ASSERT_EQ(events.size(), 4);
  EXPECT_EQ(events[0]["name"], "process_name");
  EXPECT_EQ(events[1]["args"]["name"], "/cpu:0");
  EXPECT_EQ(events[2]["ph"], "X");
  EXPECT_EQ(events[2]["name"], "dense/\"y\"\n");
  EXPECT_EQ(events[2]["cat"], "MatMul");
  EXPECT_EQ(events[2]["pid"], 1);
  EXPECT_EQ(events[2]["tid"], 2);
  EXPECT_DOUBLE_EQ(events[2]["ts"].get<double>(), 1234.567);
  EXPECT_DOUBLE_EQ(events[2]["dur"].get<double>(), 0.089);
  EXPECT_EQ(events[2]["args"]["bytes"], 4096);
  EXPECT_EQ(events[2]["args"]["rate"], 0.5);
  EXPECT_EQ(events[2]["args"]["bad"], "nan");
  EXPECT_EQ(events[2]["args"]["fused"], true);
  EXPECT_DOUBLE_EQ(events[3]["ts"].get<double>(), -0.005);
  std::filesystem::remove(path);
}

TEST(Trace, EmptyIsJsonToo) {
  EXPECT_TRUE(nlohmann::json::parse(ChromeTraceWriter().ToJson())["traceEvents"].empty());
}

TEST(Trace, AnUnwritablePathIsAnErrorThatNamesIt) {
  const absl::Status status = ChromeTraceWriter().Write("/no/such/folder/trace.json");
  EXPECT_EQ(status.message(), "cannot write /no/such/folder/trace.json: No such file or directory");
}

RC_GTEST_PROP(Trace, AnyBytesGiveAJsonString, (const std::vector<uint8_t>& bytes)) {
  const std::string text(bytes.begin(), bytes.end());
  const auto json = nlohmann::json::parse(JsonString(text));
  // ASCII comes back as it was.
  if (std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte < 0x80; })) {
    RC_ASSERT(json.get<std::string>() == text);
  }
}

TEST(Trace, KeepsUtf8AndReplacesWhatIsNot) {
  EXPECT_EQ(JsonString("é€😀"), "\"é€😀\"");
  EXPECT_EQ(JsonString("a\xff\xc0\xaf z"), "\"a\\ufffd\\ufffd\\ufffd z\"");
  EXPECT_EQ(JsonString("\xed\xa0\x80"), "\"\\ufffd\\ufffd\\ufffd\"");
}

}  // namespace
}  // namespace tutti
