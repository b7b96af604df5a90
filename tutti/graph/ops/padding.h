#pragma once

#include <string_view>

namespace tutti {

// The padding of an image for convolution and pooling. SAME pads with as many zeros as give
// ceil(input / stride) outputs; if their number is odd, the extra zero comes after. VALID pads
// nothing. EXPLICIT pads by the given numbers.
enum class Padding { kSame, kValid, kExplicit };

// "SAME", "VALID", "EXPLICIT": what stands in attributes.
std::string_view NameOf(Padding padding);

}  // namespace tutti
