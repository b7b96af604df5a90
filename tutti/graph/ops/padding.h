#pragma once

#include <string_view>

namespace tutti {

// What lies around the image when convolution and pooling lay windows over it. SAME pads with as
// many zeros as give ceil(input / stride) outputs, the odd one after. VALID pads nothing. EXPLICIT
// takes the numbers that are given.
enum class Padding { kSame, kValid, kExplicit };

// "SAME", "VALID", "EXPLICIT": what stands in attributes.
std::string_view NameOf(Padding padding);

}  // namespace tutti
