#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/tutti.h"

namespace tutti::tools {

// A training step of one of the benchmark's models with made-up data: forward, backward, update.
//
//   mlp-small      784-100-10, Relu, softmax loss; batch 32
//   mlp-large      784-1024-1024-10, Relu, softmax loss; batch 128
//   cnn            28x28x1; conv 3x3 32, Relu, max-pool 2x2, conv 3x3 64, Relu, max-pool 2x2, dense
//                  128, Relu, dense 10, softmax loss; convolutions keep the size; batch 64
//   resnet         16x16x3; conv 3x3 32, Relu, then two blocks of two such convolutions with a
//                  connection around them, max-pool 2x2, dense 10; batch 32
//   lstm           a cell of 128 units over 64 inputs, unrolled 20 times, no bias; one product for
//                  the inputs of all steps, one a step for its last output; batch 32
//   transformer    one encoder block, post-norm: 4 heads of self-attention, width 256, feed-forward
//                  1024 with Relu, sequence 128, no dropout; batch 8
//   transformer-4  four such blocks of width 128, feed-forward 512, sequence 64; batch 8
//
// Where no loss is named it is the mean of the squared result. The update is SGD's; a name with
// "-momentum" or "-adam" at its end is that model with another optimizer: "cnn-adam".
struct StepModel {
  std::unique_ptr<Graph> graph;
  std::vector<Feed> feeds;
  Output loss;
  const Node* train = nullptr;
};

// The models that `tutti bench step` measures.
inline constexpr std::string_view kModelNames[] = {
    "mlp-small", "mlp-large",    "mlp-large-momentum", "mlp-large-adam",
    "cnn",       "cnn-momentum", "cnn-adam",           "resnet",
    "lstm",      "transformer",  "transformer-4"};

// The batch of the table above.
int64_t DefaultBatch(std::string_view model);

// REQUIRES: `model` is one of kModelNames and batch > 0.
StepModel MakeStepModel(std::string_view model, int64_t batch);

}  // namespace tutti::tools
