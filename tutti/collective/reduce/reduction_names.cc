#include "tutti/collective/reduce/reduction_names.h"

#include "tutti/base/status.h"

namespace tutti::collective {

std::string_view NameOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "sum";
    case Reduction::kMean:
      return "mean";
    case Reduction::kMin:
      return "min";
    case Reduction::kMax:
      return "max";
    case Reduction::kProduct:
      return "product";
  }
  return "unknown reduction";
}

std::string_view NameOf(Wire wire) {
  switch (wire) {
    case Wire::kAsIs:
      return "as-is";
    case Wire::kBFloat16:
      return "bfloat16";
    case Wire::kFloat16:
      return "float16";
  }
  return "unknown wire type";
}

absl::StatusOr<Reduction> ReductionFromName(std::string_view name) {
  for (int i = 1; i <= static_cast<int>(Reduction::kProduct); ++i) {
    if (NameOf(static_cast<Reduction>(i)) == name) return static_cast<Reduction>(i);
  }
  return NotFound("no reduction is called \"{}\"; there are sum, mean, min, max and product", name);
}

absl::StatusOr<Wire> WireFromName(std::string_view name) {
  for (int i = 1; i <= static_cast<int>(Wire::kFloat16); ++i) {
    if (NameOf(static_cast<Wire>(i)) == name) return static_cast<Wire>(i);
  }
  if (name == "bf16") return Wire::kBFloat16;
  if (name == "fp16") return Wire::kFloat16;
  return NotFound("no wire type is called \"{}\"; there are as-is, bfloat16 and float16", name);
}

}  // namespace tutti::collective
