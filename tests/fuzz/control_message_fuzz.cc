// Any bytes on a control connection give messages or an error; a message that was read is written
// as the bytes it came from, and how the stream was cut into pieces makes no difference.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/net/coordination/control_message.h"
#include "tutti/net/wire.h"

namespace {

constexpr size_t kMaxBytes = 4096;

using tutti::net::ControlMessage;

std::vector<ControlMessage> ReadAll(std::string_view bytes, size_t piece, bool* good) {
  tutti::net::ControlReader reader(kMaxBytes);
  std::vector<ControlMessage> messages;
  *good = true;
  while (!bytes.empty()) {
    const std::string_view next = bytes.substr(0, piece);
    bytes.remove_prefix(next.size());
    reader.Append(tutti::net::AsBytes(next));
    for (bool found = true; found;) {
      ControlMessage message;
      if (!reader.Next(&message, &found).ok()) {
        *good = false;
        return messages;
      }
      if (found) messages.push_back(message);
    }
  }
  return messages;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  bool good = false, good_in_pieces = false;
  const auto messages = ReadAll(bytes, bytes.size() + 1, &good);
  TUTTI_CHECK(ReadAll(bytes, size_t{data[0]} + 1, &good_in_pieces) == messages);
  TUTTI_CHECK(good == good_in_pieces);
  std::string again;
  for (const ControlMessage& message : messages) again += tutti::net::Encode(message);
  TUTTI_CHECK(bytes.substr(0, again.size()) == again);
  return 0;
}
