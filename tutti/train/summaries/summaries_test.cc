// The files that a training leaves in its model directory. tests/summaries reads them back by
// TensorBoard itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "tutti/base/status.h"
#include "tutti/train/summaries/event_file.h"
#include "tutti/train/summaries/events.h"
#include "tutti/train/summaries/metrics_log.h"
#include "tutti/train/summaries/proto_writer.h"

namespace tutti {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Every event file that TensorFlow has ever written begins with these bytes: the frame of an event
// of 24 bytes.
TEST(EventFileTest, FramesRecordsAsTensorFlowDoes) {
  const std::string event = FileVersionEvent(1.5);
  ASSERT_EQ(event.size(), 24u);
  const std::string record = FrameRecord(event);
  EXPECT_EQ(record.substr(0, 12), std::string("\x18\0\0\0\0\0\0\0\xa3\x7fK\"", 12));
  EXPECT_EQ(record.size(), 12 + 24 + 4u);
}

TEST(EventFileTest, SaysWhyItCannotBeOpened) {
  EventFile file;
  EXPECT_THAT(std::string(MessageOf(file.Open("/proc/no/such"))),
              ::testing::HasSubstr("cannot make the directory /proc/no/such: "));
}

TEST(ProtoWriterTest, WritesTheWireFormat) {
  ProtoWriter inner;
  inner.Integer(1, 300);
  inner.Text(2, "ab");
  ProtoWriter writer;
  writer.Message(3, inner);
  writer.Float(4, 1.0f);
  writer.Integer(5, -1);
  EXPECT_EQ(writer.bytes(), std::string("\x1a\x07\x08\xac\x02\x12\x02"
                                        "ab"
                                        "\x25\0\0\x80\x3f"
                                        "\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                                        25));
}

TEST(HistogramTest, CountsEveryElementOnce) {
  const Tensor values = Tensor::Vector<float>(
      {-1e30f, -2, -1, 0, 0, 1e-15f, 0.5f, 0.5f, 3, 1e30f, std::nanf(""), INFINITY});
  const Histogram histogram = HistogramOf(values);
  EXPECT_EQ(histogram.count, 10);
  EXPECT_EQ(histogram.min, double(-1e30f));
  EXPECT_EQ(histogram.max, double(1e30f));
  ASSERT_EQ(histogram.limits.size(), histogram.counts.size());
  double total = 0, below_zero = 0;
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    if (i > 0) {
      EXPECT_GT(histogram.limits[i], histogram.limits[i - 1]);
    }
    total += histogram.counts[i];
    if (histogram.limits[i] <= 0) below_zero += histogram.counts[i];
  }
  EXPECT_EQ(total, 10);
  EXPECT_EQ(below_zero, 3);
  EXPECT_LT(histogram.limits.size(), 30u);
  EXPECT_EQ(HistogramOf(Tensor::Zeros(kFloat32, {0})).count, 0);
}

class MetricsLogTest : public ::testing::Test {
 protected:
  MetricsLogTest() { std::filesystem::create_directories(dir); }
  ~MetricsLogTest() override { std::filesystem::remove_all(dir); }
  const std::string dir = ::testing::TempDir() + "/metrics_log_test";
  const std::string path = dir + "/metrics.jsonl";
};

TEST_F(MetricsLogTest, WritesALineAndNullForWhatIsNoNumber) {
  MetricsLog log;
  ASSERT_TRUE(log.Open(dir, 0).ok());
  ASSERT_TRUE(log.Append(3, "eval", 1.25, {{"a\"b", 0.5}, {"auc", std::nan("")}}).ok());
  EXPECT_EQ(ReadAll(path),
            "{\"step\":3,\"kind\":\"eval\",\"time\":1.250,\"a\\\"b\":0.5,\"auc\":null}\n");
}

TEST_F(MetricsLogTest, GoesOnFromAStep) {
  {
    MetricsLog log;
    ASSERT_TRUE(log.Open(dir, 0).ok());
    for (const int64_t step : {10, 20, 30}) ASSERT_TRUE(log.Append(step, "train", 0, {}).ok());
  }
  std::ofstream(path, std::ios::app) << "{\"step\":5,\"kin";  // cut off by a crash
  MetricsLog log;
  ASSERT_TRUE(log.Open(dir, 20).ok());
  ASSERT_TRUE(log.Append(25, "train", 0, {}).ok());
  EXPECT_EQ(ReadAll(path),
            "{\"step\":10,\"kind\":\"train\",\"time\":0.000}\n"
            "{\"step\":20,\"kind\":\"train\",\"time\":0.000}\n"
            "{\"step\":25,\"kind\":\"train\",\"time\":0.000}\n");
}

}  // namespace
}  // namespace tutti
