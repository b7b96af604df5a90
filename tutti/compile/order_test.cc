#include "tutti/compile/order.h"

#include <gtest/gtest.h>

#include "tutti/base/status.h"
#include "tutti/compile/program_text.h"

namespace tutti {
namespace {

// Names of the nodes in their order, but for placeholders.
std::string OrderedNames(const std::string& text) {
  auto program = ParseProgram(text);
  if (!program.ok()) return std::string(MessageOf(program.status()));
  std::string names;
  for (const Node* node : OrderOf(*program->graph)) {
    if (node->op() != "Placeholder") names += (names.empty() ? "" : " ") + node->name();
  }
  return names;
}

const std::string kStart =
    "x = Placeholder() {dtype=float32, shape=[4, 4]}\n"
    "n = Placeholder() {dtype=float32, shape=[]}\n"
    "feed x\nfeed n\n";

TEST(OrderOf, IsThatOfTheGraphWhereNothingStartsEarly) {
  EXPECT_EQ(OrderedNames(kStart + "a = Exp(x)\nb = Neg(a)\nc = Neg(x)\nfetch b\nfetch c\n"),
            "a b c");
}

// The learning rate is built when all gradients are.
TEST(OrderOf, UpdatesDoNotWaitForConstants) {
  EXPECT_EQ(OrderedNames(kStart + "w = Variable() {dtype=float32, shape=[4, 4]}\n"
                                  "g = Exp(x)\n"
                                  "rest = Neg(x)\n"
                                  "rate = Constant() {value=float32 [] {0.5}}\n"
                                  "update = ApplyGradientDescent(w, rate, g)\n"
                                  "fetch rest\ntarget update\n"),
            "rate w g update rest");
}

// The layer's input gradient was built before the weight's.
TEST(OrderOf, WhatTravelsComesBeforeWhatDoesNot) {
  EXPECT_EQ(OrderedNames(kStart + "g = Exp(x)\n"
                                  "input_gradient = MatMul(g, x)\n"
                                  "weight_gradient = MatMul(x, g)\n"
                                  "next = Neg(input_gradient)\n"
                                  "sum = AllReduce(weight_gradient)\n"
                                  "fetch next\nfetch sum\n"),
            "g weight_gradient sum input_gradient next");
}

// A second tower needs the weights at once, not when the first one has used them.
TEST(OrderOf, SendsFollowWhatTheySend) {
  EXPECT_EQ(OrderedNames(kStart + "a = Exp(x)\n"
                                  "w = Variable() {dtype=float32, shape=[4, 4]}\n"
                                  "b = MatMul(a, w)\n"
                                  "c = Neg(b)\n"
                                  "send_a = Send(a) {key=\"p;q;a\"}\n"
                                  "send_w = Send(w) {key=\"p;q;w\"}\n"
                                  "fetch c\ntarget send_a\ntarget send_w\n"),
            "w send_w a send_a b c");
}

// Two layers, both of which travel; what the second bucket needs does not hold the first back.
TEST(OrderOf, BucketsComeOneAfterTheOther) {
  EXPECT_EQ(OrderedNames(kStart + "g = Exp(x)\n"
                                  "input_gradient = MatMul(g, x)\n"
                                  "weight_gradient = MatMul(x, g)\n"
                                  "first_weight_gradient = MatMul(x, input_gradient)\n"
                                  "sum = AllReduce(weight_gradient)\n"
                                  "first_sum = AllReduce(first_weight_gradient)\n"
                                  "fetch sum\nfetch first_sum\n"),
            "g weight_gradient sum input_gradient first_weight_gradient first_sum");
}

TEST(OrderOf, WhatABucketGetsLastDoesNotHoldItBack) {
  EXPECT_EQ(OrderedNames(kStart + "g = Exp(x)\n"
                                  "more = Neg(g)\n"
                                  "last = Neg(more)\n"
                                  "count = Neg(n)\n"
                                  "sum, = AllReduce(g, count)\n"
                                  "last_sum = AllReduce(last)\n"
                                  "fetch sum\nfetch sum:1\nfetch last_sum\n"),
            "g count sum more last last_sum");
}

// Statistics of the forward pass are ready before any gradient, wherever the graph sums them.
TEST(OrderOf, WhatNeedsLeastTravelsFirst) {
  EXPECT_EQ(OrderedNames(kStart + "a = Exp(x)\n"
                                  "b = Neg(a)\n"
                                  "g = Neg(b)\n"
                                  "sum = AllReduce(g)\n"
                                  "average = AllReduce(a)\n"
                                  "fetch sum\nfetch average\n"),
            "a average b g sum");
}

TEST(OrderOf, UpdatesFollowWhatTheyWaitFor) {
  EXPECT_EQ(OrderedNames(kStart + "v = Variable() {dtype=float32, shape=[4, 4]}\n"
                                  "read = Neg(v)\n"
                                  "g = Exp(x)\n"
                                  "later = Neg(g)\n"
                                  "update = AssignSub(v, g)\n"
                                  "fetch read\nfetch later\nfetch update\n"),
            "v read g update later");
}

}  // namespace
}  // namespace tutti
