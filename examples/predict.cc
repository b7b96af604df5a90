// Runs a model that a training has exported, without the code that built it.
//
//   build/bin/fashion_mnist --model mlp --max-steps 500 --export model
//   build/bin/predict model images.npy classes.npy      # uint8 [n, 28, 28, 1] -> int32 [n]
#include <tutti/tutti.h>

#include <cstdio>

using namespace tutti;

int main(int argc, char** argv) try {
  if (argc != 4) throw Error(Code::kInvalidArgument, "usage: predict MODEL IMAGES.npy CLASSES.npy");
  const ExportedModel model(argv[1]);
  const Columns results = model.Predict({{"image", ReadNpy(argv[2])}});
  WriteNpy(argv[3], results.at("class"));
} catch (const Error& error) {
  std::fprintf(stderr, "predict: %s\n", error.what());
  return 1;
}
