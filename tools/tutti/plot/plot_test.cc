#include "tools/tutti/plot/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tutti/base/status.h"

namespace tutti::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr const char* kLog =
    "{\"step\":1,\"kind\":\"train\",\"time\":1.5,\"loss\":2,\"train_accuracy\":0.1,"
    "\"samples_per_second\":100}\n"
    "{\"step\":2,\"kind\":\"train\",\"time\":2.5,\"loss\":null,\"train_accuracy\":0.5}\n"
    "{\"step\":3,\"kind\":\"train\",\"time\":3.5,\"loss\":1,\"train_accuracy\":0.75}\n"
    "{\"step\":3,\"kind\":\"eval\",\"time\":4,\"loss\":1.5,\"accuracy\":0.5}\n"
    "{\"step\":4,\"ki";

int WidthOf(std::string_view line) {
  int width = 0;
  for (const char c : line) width += (c & 0xc0) != 0x80;
  return width;
}

TEST(PlotTest, JoinsTrainingAndEvaluation) {
  const auto curves = ParseCurves(kLog);
  ASSERT_TRUE(curves.ok());
  ASSERT_EQ(curves->size(), 3u);
  EXPECT_EQ((*curves)[0].metric, "loss");
  EXPECT_THAT((*curves)[0].series[0].points, ElementsAre(Pair(1, 2), Pair(3, 1)));
  EXPECT_THAT((*curves)[0].series[1].points, ElementsAre(Pair(3, 1.5)));
  EXPECT_EQ((*curves)[1].metric, "accuracy");
  EXPECT_EQ((*curves)[1].series.size(), 2u);
  EXPECT_EQ((*curves)[2].metric, "samples_per_second");
}

TEST(PlotTest, NamesTheLineThatIsWrong) {
  for (const char* bad :
       {"{\"step\":1}\n", "oops\n", "[1]\n", "{\"step\":\"1\",\"kind\":\"x\"}\n"}) {
    const auto curves = ParseCurves("{\"step\":1,\"kind\":\"train\"}\n" + std::string(bad));
    EXPECT_THAT(std::string(MessageOf(curves.status())),
                HasSubstr("line 2 of metrics.jsonl is no JSON object with a step and a kind"))
        << bad;
  }
}

// A falling line: dots from the upper left to the lower right.
TEST(PlotTest, DrawsALine) {
  Curve curve{.metric = "loss", .series = {{"train"}}};
  for (int i = 0; i <= 20; ++i) curve.series[0].points.emplace_back(i, 20 - i);
  const std::string plain = DrawChart(curve, {.width = 24, .height = 5, .unicode = false});
  EXPECT_EQ(plain,
            "loss: train (line) 0 at \n"
            "20 +***                 \n"
            "   |   *****            \n"
            "10 +        ****        \n"
            "   |            *****   \n"
            " 0 +                 ***\n"
            "    0            step 20\n");
  const std::string braille = DrawChart(curve, {.width = 24, .height = 5});
  EXPECT_THAT(braille, HasSubstr("20 \u2524\u2811\u2822"));
}

TEST(PlotTest, FitsTheWidth) {
  const auto curves = ParseCurves(kLog);
  for (const int width : {20, 40, 80, 200}) {
    for (const bool unicode : {false, true}) {
      std::string chart =
          DrawChart((*curves)[1], {.width = width, .height = 6, .unicode = unicode});
      int lines = 0;
      for (size_t begin = 0; begin < chart.size(); ++lines) {
        const size_t end = chart.find('\n', begin);
        EXPECT_LE(WidthOf(chart.substr(begin, end - begin)), width) << chart;
        begin = end + 1;
      }
      EXPECT_EQ(lines, 8);
    }
  }
}

TEST(PlotTest, DrawsWhatIsConstantOrASinglePoint) {
  const Curve one{.metric = "auc", .series = {{"eval", {{5, 0.5}}}}};
  EXPECT_THAT(DrawChart(one, {}), HasSubstr("eval (o) 0.5 at step 5"));
  const Curve zero{.metric = "auc", .series = {{"train", {{5, 0}, {6, 0}}}}};
  EXPECT_THAT(DrawChart(zero, {.unicode = false}), HasSubstr("***"));
  EXPECT_THAT(DrawSvg({one, zero}), HasSubstr("<polyline"));
}

TEST(PlotTest, AxesHaveRoundNumbers) {
  const Axis axis = AxisFor(0.13, 0.97, 4);
  EXPECT_DOUBLE_EQ(axis.low, 0);
  EXPECT_DOUBLE_EQ(axis.high, 1);
  EXPECT_DOUBLE_EQ(axis.step, 0.25);
  EXPECT_EQ(ShortNumber(0.1 + 0.2), "0.3");
  EXPECT_EQ(ShortNumber(123456), "123456");
  EXPECT_EQ(ShortNumber(1e-7), "1e-07");
}

TEST(PlotTest, ReadsADirectoryAndWritesAPicture) {
  const std::string dir = ::testing::TempDir() + "/plot_test";
  std::filesystem::create_directories(dir);
  std::ofstream(dir + "/metrics.jsonl") << kLog;
  PlotOptions options{.directory = dir, .svg = dir + "/plot.svg"};
  const auto text = Plot(options, {.width = 60, .unicode = false});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("loss: train"));
  EXPECT_THAT(*text, ::testing::Not(HasSubstr("samples_per_second")));
  EXPECT_TRUE(std::filesystem::exists(options.svg));
  options.metrics = {"samples_per_second"};
  EXPECT_THAT(*Plot(options, {}), HasSubstr("samples_per_second: train"));
  // What an evaluator wrote is there, too.
  EXPECT_THAT(*text, ::testing::Not(HasSubstr("recall")));
  std::filesystem::create_directories(dir + "/eval");
  std::ofstream(dir + "/eval/metrics.jsonl") << "{\"step\":3,\"kind\":\"eval\",\"recall\":0.5}\n";
  options.metrics = {"recall"};
  EXPECT_THAT(*Plot(options, {}), HasSubstr("recall: eval"));
  options.metrics = {"beauty"};
  EXPECT_THAT(std::string(MessageOf(Plot(options, {}).status())),
              HasSubstr("there is no metric \"beauty\"; there are loss, accuracy, "));
  options.directory = dir + "/nothing";
  EXPECT_THAT(std::string(MessageOf(Plot(options, {}).status())),
              HasSubstr("a training writes it into its --model-dir"));
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace tutti::tools
