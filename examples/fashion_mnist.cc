// Trains a small network on Fashion-MNIST and tells its accuracy on the test images.
//
//   build/bin/fashion_mnist
//
// trains the CNN conv32-pool-conv64-pool-dense128-10 for 5 epochs with Adam, in this process on all
// cores, and ends with a test accuracy of at least 91%. --model mlp trains 784-100-10 instead,
// which takes a few seconds and ends near 87%. --help lists the flags.
#include <tutti/tutti.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

using namespace tutti;

namespace {

struct Flags {
  int64_t max_steps = 4690;
  int64_t batch_size = 64;
  double learning_rate = 1e-3;
  int64_t seed = 1;
  std::string model = "cnn";
  std::string trace;
};

constexpr const char* kHelp =
    R"(Trains a small network on Fashion-MNIST and tells its accuracy on the test images.

usage: fashion_mnist [flags]
  --model cnn|mlp      conv32-pool-conv64-pool-dense128-10, or 784-100-10 (cnn)
  --max-steps N        updates to make (4690: five epochs of 64)
  --batch-size N       images an update (64)
  --learning-rate X    of Adam at the start; falls to 0 as a cosine (0.001)
  --seed N             fixes initial weights and the order of images (1)
  --trace FILE         write a Chrome trace of one step (chrome://tracing, ui.perfetto.dev)
  --help               this text

The data is Debian's package dataset-fashion-mnist, or lies where TUTTI_DATA says.
)";

// Reads `text` as a number of at least `least`; false when it is not one.
template <typename T>
bool ParseNumber(std::string_view text, T least, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && *value >= least;
}

// Sets one flag; what is wrong with it, or "".
std::string SetFlag(std::string_view name, std::string_view value, Flags* flags) {
  if (name == "--max-steps") {
    return ParseNumber<int64_t>(value, 1, &flags->max_steps) ? "" : "a number of at least 1";
  }
  if (name == "--batch-size") {
    return ParseNumber<int64_t>(value, 1, &flags->batch_size) ? "" : "a number of at least 1";
  }
  if (name == "--learning-rate") {
    return ParseNumber<double>(value, 0, &flags->learning_rate) &&
                   std::isfinite(flags->learning_rate)
               ? ""
               : "a number from 0 on";
  }
  if (name == "--seed") {
    return ParseNumber<int64_t>(value, 0, &flags->seed) ? "" : "a number from 0 on";
  }
  if (name == "--model") {
    flags->model = value;
    return value == "cnn" || value == "mlp" ? "" : "cnn or mlp";
  }
  flags->trace = value;
  return value.empty() ? "a file" : "";
}

// Returns an exit code, or -1 to go on.
int ParseFlags(int argc, char** argv, Flags* flags) {
  const std::string_view known[] = {"--max-steps", "--batch-size", "--learning-rate",
                                    "--seed",      "--model",      "--trace"};
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      std::fputs(kHelp, stdout);
      return 0;
    }
    const size_t equals = argument.find('=');
    const std::string name(argument.substr(0, equals));
    bool is_known = false;
    for (const std::string_view flag : known) is_known = is_known || flag == name;
    if (!is_known) {
      std::fprintf(stderr, "fashion_mnist: there is no flag %s; --help lists them\n", argv[i]);
      return 2;
    }
    if (equals == argument.npos && i + 1 == argc) {
      std::fprintf(stderr, "fashion_mnist: %s needs a value\n", name.c_str());
      return 2;
    }
    const std::string value(equals == argument.npos ? argv[++i] : argument.substr(equals + 1));
    if (const std::string expected = SetFlag(name, value, flags); !expected.empty()) {
      std::fprintf(stderr, "fashion_mnist: %s is \"%s\"; expected %s\n", name.c_str(),
                   value.c_str(), expected.c_str());
      return 2;
    }
  }
  return -1;
}

// images: uint8 [batch, 28, 28, 1].
Output Logits(Output images, const std::string& model) {
  Output h = Cast(images, kFloat32) * (1.0f / 255);
  if (model == "mlp") {
    return nn::Dense(nn::Dense(nn::Flatten(h), 100, {.activation = nn::kRelu}), 10);
  }
  h = nn::Conv2d(h, 32, {3, 3}, {.activation = nn::kRelu});
  h = nn::MaxPool(h, {2, 2});
  h = nn::Conv2d(h, 64, {3, 3}, {.activation = nn::kRelu});
  h = nn::MaxPool(h, {2, 2});
  h = nn::Dense(nn::Flatten(h), 128, {.activation = nn::kRelu});
  return nn::Dense(h, 10);
}

// The share of images that are recognised, batch by batch.
double Test(Session& session, Output images, Output labels, Output accuracy,
            const LabeledImages& data) {
  constexpr int64_t kBatch = 500;
  const int64_t count = data.labels.elements();
  double correct = 0;
  for (int64_t begin = 0; begin < count; begin += kBatch) {
    const int64_t end = std::min(begin + kBatch, count);
    const Tensor share = session.Run(
        {{images, data.images.Rows(begin, end)}, {labels, data.labels.Rows(begin, end)}}, accuracy);
    correct += double(share.scalar<float>()) * double(end - begin);
  }
  return correct / double(count);
}

void Train(const Flags& flags) {
  const FashionMnist data = LoadFashionMnist();
  Graph graph;
  SetSeed(graph, flags.seed);
  const Output images = Placeholder(graph, kUInt8, {-1, 28, 28, 1}, "images");
  const Output labels = Placeholder(graph, kInt32, {-1}, "labels");
  const Output logits = Logits(images, flags.model);
  const Output loss = nn::SparseSoftmaxLoss(logits, labels);
  const Output accuracy = nn::Accuracy(logits, labels);
  const Adam optimizer(
      {.learning_rate = CosineDecay({.initial = flags.learning_rate, .steps = flags.max_steps})});
  const Node* train = optimizer.Minimize(loss);

  Session session(graph);
  session.Initialize();
  std::fprintf(stderr, "%s: %lld parameters, %lld training images, batch %lld\n",
               flags.model.c_str(),
               static_cast<long long>(nn::CountParameters(nn::TrainableVariables(graph))),
               static_cast<long long>(data.train.labels.elements()),
               static_cast<long long>(flags.batch_size));

  Batcher batcher({data.train.images, data.train.labels}, {.seed = uint64_t(flags.seed)});
  {
    Progress progress({.label = "step", .total = flags.max_steps});
    for (int64_t step = 1; step <= flags.max_steps; ++step) {
      const std::vector<Tensor> batch = batcher.Next(flags.batch_size);
      RunTrace trace;
      const bool traced = !flags.trace.empty() && step == std::min<int64_t>(10, flags.max_steps);
      const std::vector<Tensor> results =
          session.Run({{images, batch[0]}, {labels, batch[1]}}, {loss}, {train},
                      {.trace = traced, .trace_result = traced ? &trace : nullptr});
      if (traced) trace.WriteChromeTrace(flags.trace);
      progress.Update(step, {{"loss", results[0].scalar<float>()}});
    }
  }
  std::printf("test accuracy %.2f%%\n", 100 * Test(session, images, labels, accuracy, data.test));
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  if (const int code = ParseFlags(argc, argv, &flags); code >= 0) return code;
  try {
    Train(flags);
  } catch (const Error& error) {
    std::fprintf(stderr, "fashion_mnist: %s\n", error.what());
    return 1;
  }
  return 0;
}
