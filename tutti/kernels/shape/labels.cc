#include "tutti/kernels/shape/labels.h"

namespace tutti {

absl::Status CheckLabels(const Tensor& labels, int64_t classes, std::string_view what) {
  const int64_t rows = labels.elements();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t label = LabelAt(labels, row);
    if (label < 0 || label >= classes) {
      return OutOfRange("{} {} of row {} is out of range; there are {} classes, expected 0 to {}",
                        what, label, row, classes, classes - 1);
    }
  }
  return absl::OkStatus();
}

}  // namespace tutti
