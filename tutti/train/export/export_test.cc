// Predict, and the same model exported, loaded without its code, and run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>

#include "tutti/base/error.h"
#include "tutti/checkpoint/shard_file.h"
#include "tutti/graph/io.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/nn.h"
#include "tutti/testing/temporary_directory.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/export/export_format.h"
#include "tutti/train/export/exported_model.h"
#include "tutti/train/heads/heads.h"
#include "tutti/train/optimizers/optimizers.h"
#include "tutti/train/strategies/ps/async.h"
#include "tutti/train/strategies/ps/servers_under_test.h"
#include "tutti/train/strategies/workers_under_test.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Columns Images(int64_t count) {
  Tensor image(kUInt8, {count, 8, 8, 1}), label(kInt32, {count});
  std::mt19937 random(3);
  for (uint8_t& v : image.values<uint8_t>()) v = uint8_t(random());
  for (int32_t& v : label.values<int32_t>()) v = int32_t(random() % 3);
  return {{"image", image}, {"label", label}};
}
Columns WithoutLabels(int64_t count) { return {{"image", Images(count).at("image")}}; }

// Convolution, batch normalisation, dropout: what differs between the modes.
ModelSpec Model(const Features& batch, Mode mode) {
  const bool training = mode == Mode::kTrain;
  Output h = Mul(Cast(batch["image"], kFloat32), 1.0f / 255);
  h = nn::Conv2d(h, 4, {3, 3});
  h = nn::BatchNorm(h, {.training = training, .momentum = 0.5});
  h = nn::MaxPool(h, {2, 2});
  h = nn::Dropout(nn::Flatten(h), 0.5, {.training = training});
  return MultiClassHead(3).Spec(nn::Dense(h, 3), batch["label"], Adam({.learning_rate = 0.01}),
                                mode);
}

std::string ErrorOf(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class ExportTest : public ::testing::Test {
 protected:
  ExportTest() { RegisterCpuKernels(); }

  static RunConfig Config() {
    RunConfig config = ConfigOf(nullptr, 8);
    config.quiet = true;
    return config;
  }
  static std::unique_ptr<Estimator> Trained(const ModelFunction& model = Model) {
    auto estimator = std::make_unique<Estimator>(model, Config());
    estimator->Train(
        {.input = [] { return Dataset::FromTensors(Images(40)).Repeat(); }, .max_steps = 5});
    return estimator;
  }
  static PredictSpec All(const Columns& columns, int64_t batch = 500) {
    return {.input = [columns] { return Dataset::FromTensors(columns); }, .batch_size = batch};
  }

  // As version 1 had it.
  static std::string WithoutChecksums(const std::string& text) {
    ModelSignature signature = ParseSignature(text, "model.json");
    signature.checksums.reset();
    return FormatSignature(signature);
  }
  std::string Read(const std::string& file) const {
    std::ifstream in(dir + "/" + file, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  void Write(const std::string& file, const std::string& bytes) const {
    std::ofstream(dir + "/" + file, std::ios::binary) << bytes;
  }

  const testing::TemporaryDirectory temporary;
  const std::string& root = temporary.path();
  const std::string dir = root + "/model";
};

TEST_F(ExportTest, PredictsEverySampleInOrder) {
  const auto estimator = Trained();
  const Columns whole = estimator->Predict(All(Images(20)));
  EXPECT_EQ(whole.at("class").shape(), Shape({20}));
  EXPECT_EQ(whole.at("probabilities").shape(), Shape({20, 3}));
  // Labels are not needed, and batches make no difference but rounding.
  const Columns parts = estimator->Predict(All(WithoutLabels(20), 7));
  EXPECT_TRUE(parts.at("class").BitwiseEquals(whole.at("class")));
  for (int64_t i = 0; i < 60; ++i) {
    EXPECT_NEAR(parts.at("logits").data<float>()[i], whole.at("logits").data<float>()[i], 1e-5);
  }
}

TEST_F(ExportTest, TheExportedModelGivesTheSameBits) {
  const auto estimator = Trained();
  estimator->Export(dir, All(WithoutLabels(1)));
  const Columns expected = estimator->Predict(All(Images(20)));
  const ExportedModel model(dir);
  EXPECT_EQ(model.step(), 5);
  EXPECT_EQ(model.inputs().size(), 1u);
  EXPECT_EQ(model.inputs().at("image").shape, Shape({-1, 8, 8, 1}));
  const Columns found = model.Predict(Images(20));
  ASSERT_EQ(found.size(), 3u);
  for (const auto& [name, value] : expected) {
    EXPECT_TRUE(value.BitwiseEquals(found.at(name))) << name;
  }
  EXPECT_EQ(model.Predict(Images(20), 6).at("class").shape(), Shape({20}));
}

// Nothing of the training is in the graph: no optimizer slots, no dropout, no label.
TEST_F(ExportTest, TheGraphIsPruned) {
  Trained()->Export(dir, All(Images(1)));
  Graph graph;
  std::ifstream in(dir + "/graph.pb", std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  ReadGraphBytes(bytes.str(), graph);
  const std::string text = GraphToText(graph);
  for (const char* gone :
       {"Adam", "label", "Dropout", "Random", "Assign", "Grad", "/m ", "global"}) {
    EXPECT_THAT(text, ::testing::Not(HasSubstr(gone)));
  }
  auto file =
      checkpoint::ShardFile::Open(checkpoint::FileSystem::System(), dir + "/weights.safetensors");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->header().tensors.size(), 8u);
}

TEST_F(ExportTest, ReplacesAnExportedModelAndNothingElse) {
  const auto estimator = Trained();
  estimator->Export(dir, All(Images(1)));
  estimator->Train(
      {.input = [] { return Dataset::FromTensors(Images(40)).Repeat(); }, .max_steps = 9});
  estimator->Export(dir + "/", All(Images(1)));
  EXPECT_EQ(ExportedModel(dir).step(), 9);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root), {}), 1);
  std::filesystem::create_directories(root + "/other");
  std::ofstream(root + "/other/thesis.txt") << "precious";
  EXPECT_THAT(ErrorOf([&] { estimator->Export(root + "/other", All(Images(1))); }),
              HasSubstr("/other has files that are no exported model (thesis.txt); give a "
                        "directory that is empty or not there"));
  EXPECT_TRUE(std::filesystem::exists(root + "/other/thesis.txt"));
}

TEST_F(ExportTest, SaysWhatAnInputLacks) {
  Trained()->Export(dir, All(Images(1)));
  const ExportedModel model(dir);
  EXPECT_THAT(ErrorOf([&] { model.Predict({}); }),
              HasSubstr("the model needs an input \"image\", uint8 [?, 8, 8, 1]"));
  EXPECT_THAT(ErrorOf([&] {
                model.Predict({{"image", Tensor::Zeros(kFloat32, {2, 8, 8, 1})}});
              }),
              HasSubstr("the input \"image\" is float32 [2, 8, 8, 1]; the model expects uint8 "
                        "[?, 8, 8, 1]"));
  EXPECT_EQ(model.Predict(WithoutLabels(0), 5).at("class").shape(), Shape({0}));
}

TEST_F(ExportTest, RefusesWhatIsDamaged) {
  const auto estimator = Trained();
  const auto spoiled = [&](const std::string& file,
                           const std::function<void(std::string&)>& spoil) {
    estimator->Export(dir, All(Images(1)));
    std::ifstream in(dir + "/" + file, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    std::string bytes = text.str();
    if (file == "model.json") bytes = WithoutChecksums(bytes);
    spoil(bytes);
    in.close();
    std::ofstream(dir + "/" + file, std::ios::binary) << bytes;
    return ErrorOf([&] { ExportedModel model(dir); });
  };
  const auto replace = [](const std::string& from, const std::string& to) {
    return [=](std::string& text) {
      ASSERT_NE(text.find(from), std::string::npos);
      text.replace(text.find(from), from.size(), to);
    };
  };
  EXPECT_THAT(ErrorOf([&] { ExportedModel model(root + "/nothing"); }), HasSubstr("model.json"));
  EXPECT_THAT(spoiled("model.json", [](std::string& t) { t.resize(10); }),
              HasSubstr("model.json: it is no JSON object"));
  EXPECT_THAT(
      spoiled("model.json", replace("\"version\": 1", "\"version\": 3")),
      HasSubstr("format version 3, which a newer Tutti has written; this one reads up to 2"));
  EXPECT_THAT(spoiled("model.json", replace("\"uint8\"", "\"float32\"")),
              HasSubstr("\"image\" is float32 [?, 8, 8, 1], but the graph has uint8"));
  EXPECT_THAT(spoiled("model.json", replace("\"node\": \"", "\"node\": \"no")),
              HasSubstr("which graph.pb does not have"));
  EXPECT_THAT(spoiled("graph.pb", [](std::string& t) { t.resize(t.size() / 2); }),
              HasSubstr("graph.pb is damaged: its CRC32C is "));
  EXPECT_THAT(spoiled("weights.safetensors", [](std::string& t) { t.resize(t.size() - 4); }),
              HasSubstr("weights.safetensors"));
  EXPECT_THAT(spoiled("weights.safetensors", replace("dense/bias", "dense/bios")),
              HasSubstr("weights.safetensors: its header is damaged: its CRC32C is "));
}

// One that was written before there were checksums.
TEST_F(ExportTest, ReadsVersion1) {
  const auto estimator = Trained();
  estimator->Export(dir, All(Images(1)));
  const std::string text = Read("model.json");
  Write("model.json", WithoutChecksums(text));
  EXPECT_EQ(ExportedModel(dir).step(), 5);
  std::string weights = Read("weights.safetensors");
  weights.replace(weights.find("dense/bias"), 10, "dense/bios");
  Write("weights.safetensors", weights);
  EXPECT_THAT(ErrorOf([&] { ExportedModel model(dir); }),
              HasSubstr("has no tensor \"dense/bias\", which the graph needs"));
}

TEST_F(ExportTest, EveryFlippedBitIsFoundAndNamed) {
  Trained()->Export(dir, All(Images(1)));
  std::mt19937 random(11);
  for (const char* file : {"model.json", "graph.pb", "weights.safetensors"}) {
    const std::string whole = Read(file);
    for (int i = 0; i < 200; ++i) {
      std::string flipped = whole;
      const size_t at = random() % whole.size(), bit = random() % 8;
      flipped[at] = char(flipped[at] ^ (1 << bit));
      Write(file, flipped);
      EXPECT_THAT(ErrorOf([&] { ExportedModel model(dir); }), HasSubstr(file))
          << "bit " << bit << " of byte " << at << " of " << file;
    }
    Write(file, whole);
  }
  std::string weights = Read("weights.safetensors");
  weights.back() = char(weights.back() ^ 1);
  Write("weights.safetensors", weights);
  EXPECT_THAT(ErrorOf([&] { ExportedModel model(dir); }),
              ::testing::MatchesRegex(".*weights.safetensors: tensor \".*\" is damaged: its CRC32C "
                                      "is [0-9a-f]*, expected [0-9a-f]*; export the model again"));
}

TEST_F(ExportTest, ABadTargetIsFoundBeforeTheTraining) {
  std::ofstream(root + "/file") << "precious";
  std::filesystem::create_directories(root + "/other");
  std::ofstream(root + "/other/thesis.txt") << "precious";
  for (const auto& [target, why] :
       {std::pair("/file", "/file is a file"),
        {"/file/model", "Not a directory"},
        {"/other", "/other has files that are no exported model (thesis.txt)"}}) {
    RunConfig config = Config();
    config.export_dir = root + target;
    Estimator estimator(Model, config);
    bool stepped = false;
    const auto hook = AfterSteps(1, [&](const StepEnd&, TrainingControl&) { stepped = true; });
    const auto data = [] { return Dataset::FromTensors(Images(40)); };
    EXPECT_THAT(ErrorOf([&] {
                  TrainAndEvaluate(estimator, {.input = data, .hooks = {hook}}, {.input = data});
                }),
                HasSubstr(why));
    EXPECT_FALSE(stepped) << target;
  }
}

// A model from outside may compute and nothing else.
TEST_F(ExportTest, RefusesAGraphWithEffects) {
  Trained()->Export(dir, All(Images(1)));
  Graph graph;
  Placeholder(graph, kFloat32, {-1}, "x");
  const Output v = Variable(graph, Zeros({1}), "v");
  AssignAdd(v, Tensor::Vector<float>({1}), "sneaky");
  const ModelSignature signature{.inputs = {{"x", {"x", kFloat32, {-1}}}},
                                 .outputs = {{"x", {"x", kFloat32, {-1}}}}};
  std::ofstream(dir + "/graph.pb", std::ios::binary) << GraphToBytes(graph);
  std::ofstream(dir + "/model.json") << FormatSignature(signature);
  EXPECT_THAT(ErrorOf([&] { ExportedModel model(dir); }),
              HasSubstr("does more than compute; an exported model may not"));
}

TEST_F(ExportTest, SaysWhatAModelLacks) {
  const auto estimator = Trained();
  EXPECT_THAT(ErrorOf([&] { estimator->Predict({}); }), HasSubstr("PredictSpec::input is empty"));
  EXPECT_THAT(
      ErrorOf([&] {
        estimator->Predict({.input = [] { return Dataset::FromTensors(Images(4)).Repeat(); }});
      }),
      HasSubstr("the dataset repeats for ever"));
  const auto mute = Trained([](const Features& batch, Mode mode) {
    ModelSpec spec = Model(batch, mode);
    spec.predictions.clear();
    return spec;
  });
  EXPECT_THAT(ErrorOf([&] { mute->Predict(All(Images(4))); }),
              HasSubstr("gave no predictions for Mode::kPredict"));
}

// A table whose rows are on two servers: the model that is exported has its parts, and the check
// of its look-ups.
TEST_F(ExportTest, ATableInPartsGivesTheSameBits) {
  const auto samples = [](int64_t count) {
    Tensor id(kInt64, {count}), label(kInt32, {count});
    for (int64_t i = 0; i < count; ++i) {
      id.data<int64_t>()[i] = (i * 7) % 30;
      label.data<int32_t>()[i] = int32_t(i % 3);
    }
    return Columns{{"id", id}, {"label", label}};
  };
  const auto model = [](const Features& batch, Mode mode) {
    const Output rows = nn::Embedding(batch["id"], 30, 4, {}, "words");
    return MultiClassHead(3).Spec(nn::Dense(CheckNumerics(rows, "rows"), 3), batch["label"],
                                  Adam({.learning_rate = 0.01}), mode);
  };
  ServersUnderTest cluster(2, 1);
  AsyncOptions options;
  options.common.split_bytes = 100;
  Columns expected;
  const auto errors = cluster.OnWorkers(
      [&](ParameterServers found) { return MakeAsyncStrategy(std::move(found), options); },
      [&](int /*rank*/, std::shared_ptr<const Strategy> strategy) {
        RunConfig config = Config();
        config.strategy = strategy->name();
        config.strategy_object = strategy;
        Estimator estimator(model, config);
        estimator.Train(
            {.input = [&] { return Dataset::FromTensors(samples(40)).Repeat(); }, .max_steps = 20});
        EXPECT_TRUE(estimator.Variables().contains("words/table/part_1"));
        estimator.Export(dir, All(samples(1)));
        expected = estimator.Predict(All(samples(25)));
      });
  ASSERT_THAT(errors, ElementsAre(""));
  const ExportedModel exported(dir);
  const Columns found = exported.Predict(samples(25));
  for (const auto& [name, value] : expected) {
    EXPECT_TRUE(value.BitwiseEquals(found.at(name))) << name;
  }
  Columns outside = samples(2);
  outside.at("id").data<int64_t>()[1] = 30;
  EXPECT_THAT(ErrorOf([&] { exported.Predict(outside); }),
              HasSubstr("row outside variable \"words/table\""));
}

TEST_F(ExportTest, OfSeveralWorkersTheFirstWrites) {
  Columns expected;
  const auto errors = OnRanks(2, [&](int r, std::shared_ptr<collective::Communicator> c) {
    RunConfig config = ConfigOf(c, 8);
    config.quiet = true;
    Estimator estimator(Model, config);
    estimator.Train(
        {.input = [] { return Dataset::FromTensors(Images(40)).Repeat(); }, .max_steps = 5});
    estimator.Export(dir, All(Images(1)));
    const Columns found = estimator.Predict(All(Images(20)));
    if (r == 0) expected = found;
  });
  EXPECT_THAT(errors, ElementsAre("", ""));
  EXPECT_TRUE(
      ExportedModel(dir).Predict(Images(20)).at("logits").BitwiseEquals(expected.at("logits")));
}

}  // namespace
}  // namespace tutti
