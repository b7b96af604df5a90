#include "tutti/net/wire.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "tutti/base/check.h"

namespace tutti::net {

void WireWriter::Text16(std::string_view text) {
  TUTTI_CHECK(text.size() <= std::numeric_limits<uint16_t>::max());
  U16(static_cast<uint16_t>(text.size()));
  Raw(text);
}

void WireWriter::Text32(std::string_view text) {
  TUTTI_CHECK(text.size() <= std::numeric_limits<uint32_t>::max());
  U32(static_cast<uint32_t>(text.size()));
  Raw(text);
}

std::string_view WireReader::Raw(size_t bytes) {
  if (!ok_ || bytes > rest_.size()) {
    ok_ = false;
    rest_ = {};
    return {};
  }
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

std::string Printable(std::string_view text, size_t limit) {
  std::string out;
  for (const char c : text.substr(0, std::min(limit, text.size()))) {
    if (c >= ' ' && c <= '~') {
      out.push_back(c);
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > limit) out += "...";
  return out;
}

}  // namespace tutti::net
