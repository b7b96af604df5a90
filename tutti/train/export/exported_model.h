#pragma once

#include <map>
#include <memory>
#include <string>

#include "tutti/data/dataset.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// What goes into or comes out of an exported model. The first dimension of the shape counts the
// samples and is not known.
struct ModelValue {
  std::string node;  // of the graph; "split:1" for a later result
  DType dtype = kFloat32;
  Shape shape;
};

// A model that Estimator::Export has written, without the code that built it:
//
//   ExportedModel model("exported");
//   Columns results = model.Predict({{"image", ReadNpy("images.npy")}});
//   Print(results.at("class"));
//
// docs/formats/exported_model.md describes the directory. A directory from anywhere is safe to
// load: the graph may only compute, and check what it computes (Assert). Predict may be called by
// several threads at once.
class ExportedModel {
 public:
  // Throws Error that names the file and what is wrong with it.
  explicit ExportedModel(const std::string& directory);
  ~ExportedModel();
  ExportedModel(ExportedModel&&) noexcept;

  const std::map<std::string, ModelValue>& inputs() const;
  const std::map<std::string, ModelValue>& outputs() const;
  int64_t step() const;  // updates that the training had made

  // The predictions by name, for any number of samples. Columns that the model does not know are
  // ignored. Throws Error for one that is missing or does not fit.
  Columns Predict(const Columns& inputs) const;
  // The same in pieces of at most `batch_size` samples, which takes less memory.
  Columns Predict(const Columns& inputs, int64_t batch_size) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tutti
