#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/tutti.h"

namespace tutti::tools {

// A training step of one of the benchmark's models with made-up data: forward, backward, SGD.
//
//   mlp-small    784-100-10, Relu, softmax loss; batch 32
//   mlp-large    784-1024-1024-10, Relu, softmax loss; batch 128
//   cnn          28x28x1; conv 3x3 32, Relu, max-pool 2x2, conv 3x3 64, Relu, max-pool 2x2, dense
//                128, Relu, dense 10, softmax loss; convolutions keep the size; batch 64
//   transformer  one encoder block, post-norm: 4 heads of self-attention, width 256, feed-forward
//                1024 with Relu, sequence 128, no dropout; loss: the mean of the squared result;
//                batch 8
struct StepModel {
  std::unique_ptr<Graph> graph;
  std::vector<Feed> feeds;
  Output loss;
  const Node* train = nullptr;
};

inline constexpr std::string_view kModelNames[] = {"mlp-small", "mlp-large", "cnn", "transformer"};

// The batch of the table above.
int64_t DefaultBatch(std::string_view model);

// REQUIRES: `model` is one of kModelNames and batch > 0.
StepModel MakeStepModel(std::string_view model, int64_t batch);

}  // namespace tutti::tools
