// Trains a character-level transformer on the King James Bible, as the Debian packages bible-kjv
// and bible-kjv-text print it, and ends with the bits a character that it needs on verses it has
// not seen.
//
//   build/bin/char_transformer --max-steps 300                                    # one process
//   build/bin/tutti run --workers 2 -- build/bin/char_transformer --strategy allreduce
//
// The first 95% of the text are for training. --help lists the flags.
#include <tutti/tutti.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <string>

using namespace tutti;

namespace {

constexpr int64_t kLength = 128;
constexpr int64_t kWidth = 128;
constexpr int64_t kHeads = 4;
constexpr int64_t kCharacters = 128;  // ASCII

// What the command `bible` prints.
std::string ReadBible() {
  std::FILE* pipe = ::popen("bible -f 'gen1:1-rev22:21' 2>/dev/null", "re");
  std::string text;
  std::array<char, 1 << 16> block;
  while (pipe != nullptr) {
    const size_t count = std::fread(block.data(), 1, block.size(), pipe);
    if (count == 0) break;
    text.append(block.data(), count);
  }
  if (pipe != nullptr) ::pclose(pipe);
  if (text.size() < 1'000'000) {
    throw Error(Code::kNotFound,
                "the command `bible` printed no text; install Debian's packages bible-kjv and "
                "bible-kjv-text");
  }
  return text;
}

// Stretches of kLength characters, and for each the same one character on.
Dataset Stretches(const std::string& text) {
  const auto count = int64_t(text.size() - 1) / kLength;
  Tensor input(kInt32, {count, kLength}), next(kInt32, {count, kLength});
  for (int64_t i = 0; i < count * kLength; ++i) {
    input.data<int32_t>()[i] = text[size_t(i)] & 127;
    next.data<int32_t>()[i] = text[size_t(i) + 1] & 127;
  }
  return Dataset::FromTensors({{"text", input}, {"next", next}});
}

Output Block(Output x, Graph& graph, int number) {
  NameScope scope(graph, "block_" + std::to_string(number));
  const Output attended =
      nn::MultiHeadAttention(nn::LayerNorm(x, {}, "norm_1"), {.heads = kHeads, .causal = true});
  x = Add(x, attended);
  Output h =
      nn::Dense(nn::LayerNorm(x, {}, "norm_2"), 4 * kWidth, {.activation = nn::kGelu}, "wide");
  return Add(x, nn::Dense(h, kWidth, {}, "narrow"));
}

Output Logits(Output text, int64_t blocks) {
  Graph& graph = text.graph();
  Output x = nn::Embedding(text, kCharacters, kWidth);
  x = Add(x, nn::GetVariable(graph, RandomNormal({kLength, kWidth}, 0, 0.02), "position"));
  for (int i = 0; i < blocks; ++i) x = Block(x, graph, i);
  return nn::Dense(nn::LayerNorm(x, {}, "norm"), kCharacters, {}, "logits");
}

}  // namespace

int main(int argc, char** argv) {
  int64_t blocks = 2;
  Flags flags("");
  flags.Add("blocks", &blocks, "transformer blocks", 1);
  const MainOptions options = {
      .summary = "Trains a character-level transformer on the King James Bible.",
      .defaults = {.max_steps = 1000, .batch_size = 16, .learning_rate = 2e-3, .warmup_steps = 50},
      .flags = &flags};
  return Main(argc, argv, options, [&](const RunConfig& config) {
    const std::string text = ReadBible();
    const size_t cut = text.size() / 20 * 19;
    const auto model = [&](const Features& batch, Mode mode) {
      const LearningRate rate = config.Adjusted(
          CosineDecay({.initial = config.learning_rate, .steps = config.max_steps}));
      ModelSpec spec = MultiClassHead(int(kCharacters))
                           .Spec(Logits(batch["text"], blocks), batch["next"],
                                 Adam({.learning_rate = rate}), mode);
      spec.clip_norm = 1;
      spec.metrics["bits_per_character"] = Mul(spec.loss, float(1 / std::log(2.0)));
      return spec;
    };
    Estimator estimator(model, config);
    TrainAndEvaluate(
        estimator,
        {.input =
             [&] {
               return Stretches(text.substr(0, cut)).Shuffle(uint64_t(config.seed)).Repeat();
             }},
        {.input = [&] { return Stretches(text.substr(cut)); }, .batch_size = 32});
  });
}
