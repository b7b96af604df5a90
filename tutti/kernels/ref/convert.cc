#include "tutti/kernels/ref/convert.h"

#include "tutti/kernels/ref/scalar.h"

namespace tutti {

void ConvertElements(const Tensor& from, Tensor& to, int64_t begin, int64_t end) {
  VisitDType(from.dtype(), [&](auto from_tag) {
    using From = typename decltype(from_tag)::type;
    VisitDType(to.dtype(), [&](auto to_tag) {
      using To = typename decltype(to_tag)::type;
      const From* values = from.data<From>();
      To* results = to.data<To>();
      for (int64_t i = begin; i < end; ++i) results[i] = ref::ConvertTo<To>(values[i]);
    });
  });
}

}  // namespace tutti
