// An op of the program's own: Cube(x) = x^3, with its type and shape, kernel and gradient.
#include <tutti/autodiff/gradient_registry.h>
#include <tutti/device/kernel_registry.h>
#include <tutti/graph/build.h>
#include <tutti/graph/op_def.h>
#include <tutti/tutti.h>

using namespace tutti;

void RegisterCube() {
  OpRegistry::Global().Add({.name = "Cube",
                            .inputs = {"x"},
                            .infer =
                                [](InferContext& c) {
                                  c.SetOutput(0, c.dtype(0), c.shape(0));
                                  return c.RequireDType(0, kFloat32);
                                },
                            .gradient = Gradient::kDefined});
  const auto compute = [](KernelContext& context) {
    const auto x = context.input(0).values<float>();
    const auto y = context.output(0).values<float>();
    for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * x[i] * x[i];
    return absl::OkStatus();
  };
  AddFunctionKernel(KernelRegistry::Global(), "Cube", "cpu", compute, {kFloat32}, {{0, 0}});
  GradientRegistry::Global().Add("Cube", [](GradientContext& context) {
    context.Set(0, context.gradient() * 3.0f * Square(context.input(0)));
  });
}

Output Cube(Input x, std::string_view name = "") { return OpBuilder("Cube", name).In(x).Build(); }

int main() {
  RegisterCube();
  Graph graph;
  Output x = Placeholder(graph, kFloat32, {-1}, "x");
  Output y = Cube(x);
  Output slope = Gradients(y, {x})[0];
  Session session(graph);
  for (const Tensor& value : session.Run({{x, Tensor::Vector<float>({1, 2, -3})}}, {y, slope})) {
    Print(value);
  }
}
