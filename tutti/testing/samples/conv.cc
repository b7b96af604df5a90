#include "tutti/graph/ops/window.h"
#include "tutti/testing/op_sample.h"

namespace tutti::testing {
namespace {

// Random sizes and attributes of a convolution that fits.
struct RandomConv {
  Shape x, filter, y;
  AttrList attrs;
};

RandomConv MakeConv(Random& random, bool depthwise) {
  // Channels: one, odd, whole vectors of 8, and now and then none.
  const std::vector<int64_t> channels = {1, 1, 2, 3, 5, 8, 8, 16, random.Integer(0, 9)};
  const int64_t in = random.Pick(channels);
  const int64_t last = depthwise ? random.Integer(1, 2) : random.Pick(channels);
  const std::vector<int64_t> strides = {random.Integer(1, 3), random.Integer(1, 2)};
  const std::vector<int64_t> dilations = {random.Integer(1, 2), random.Integer(1, 2)};
  const int64_t fh = random.Integer(1, 3), fw = random.Integer(1, 3);
  std::string padding = random.Pick<std::string>({"SAME", "SAME", "VALID", "EXPLICIT"});
  std::vector<int64_t> pads;
  if (padding == "EXPLICIT") {
    for (int i = 0; i < 4; ++i) pads.push_back(random.Integer(0, 2));
  }
  // At least what a window spans, so that VALID fits.
  const int64_t h = (fh - 1) * dilations[0] + random.Integer(1, 5);
  const int64_t w = (fw - 1) * dilations[1] + random.Integer(1, 5);
  RandomConv conv;
  conv.x = Shape{random.Integer(0, 2), h, w, in};
  conv.filter = Shape{fh, fw, in, last};
  const auto window = ResolveWindow(
      {.strides = strides, .dilations = dilations, .padding = padding, .pads = pads}, h, w, fh, fw);
  conv.y = Shape{conv.x.dim(0), window->height.output, window->width.output,
                 depthwise ? in * last : last};
  conv.attrs = {
      {"dilations", dilations}, {"padding", padding}, {"pads", pads}, {"strides", strides}};
  return conv;
}

Tensor ShapeVector(Random& random, const Shape& shape) {
  return IntegerVector({shape.dims().begin(), shape.dims().end()}, random.Coin() ? kInt32 : kInt64);
}

void AddConvolution(SampleRegistry& samples, const std::string& op, bool depthwise) {
  samples.Add({.op = op, .make = [=](Random& random, DType real) {
                 const RandomConv conv = MakeConv(random, depthwise);
                 return OpCase{
                     {RandomTensor(random, real, conv.x), RandomTensor(random, real, conv.filter)},
                     conv.attrs};
               }});
  samples.Add({.op = op + "BackpropInput", .make = [=](Random& random, DType real) {
                 const RandomConv conv = MakeConv(random, depthwise);
                 return OpCase{{RandomTensor(random, real, conv.filter),
                                RandomTensor(random, real, conv.y), ShapeVector(random, conv.x)},
                               conv.attrs};
               }});
  samples.Add({.op = op + "BackpropFilter", .make = [=](Random& random, DType real) {
                 const RandomConv conv = MakeConv(random, depthwise);
                 return OpCase{
                     {RandomTensor(random, real, conv.x), RandomTensor(random, real, conv.y),
                      ShapeVector(random, conv.filter)},
                     conv.attrs};
               }});
}

}  // namespace

void AddConvSamples(SampleRegistry& samples) {
  AddConvolution(samples, "Conv2D", false);
  AddConvolution(samples, "DepthwiseConv2D", true);
  samples.Add(
      {.op = "Conv2DTranspose", .make = [](Random& random, DType real) {
         RandomConv conv = MakeConv(random, false);
         // Pads that suit an image may be more than a smaller one is enlarged to.
         if (AttrEquals(conv.attrs[1].second, std::string("EXPLICIT")) || random.Coin()) {
           conv.attrs = {{"padding", std::string("SAME")}, {"strides", std::vector<int64_t>{2, 2}}};
         }
         return OpCase{
             {RandomTensor(random, real, conv.y), RandomTensor(random, real, conv.filter)},
             conv.attrs};
       }});
  samples.Add({.op = "BiasAdd", .make = [](Random& random, DType real) {
                 const Shape x = RandomShape(random, {.min_rank = 1});
                 return OpCase{
                     {RandomTensor(random, real, x), RandomTensor(random, real, Shape{x.dim(-1)})}};
               }});
  samples.Add({.op = "BiasAddGrad", .make = [](Random& random, DType real) {
                 return OpCase{{RandomTensor(random, real, RandomShape(random, {.min_rank = 1}))}};
               }});
}

}  // namespace tutti::testing
