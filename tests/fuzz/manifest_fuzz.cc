// Any text, with right checksums or without, gives a manifest or a Status; a manifest that was read
// is written as a text that gives it again.
#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/base/check.h"
#include "tutti/checkpoint/manifest.h"
#include "tutti/checkpoint/sealed_lines.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti::checkpoint;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const std::string& tried : {std::string(text), SealLines(text)}) {
    const auto manifest = ParseManifest(tried);
    if (!manifest.ok()) continue;
    const std::string written = FormatManifest(*manifest);
    const auto again = ParseManifest(written);
    TUTTI_CHECK(again.ok() && FormatManifest(*again) == written);
  }
  return 0;
}
