// On the wire, a control message is
//
//   length u32, then so many bytes:
//   type u8, code u8 (an absl::StatusCode), rank i32, number u64,
//   count u32 and so many counters u64, count u32 and so many texts (length u32 and bytes)
#include "tutti/net/coordination/control_message.h"

#include "tutti/base/check.h"
#include "tutti/base/status.h"
#include "tutti/net/wire.h"

namespace tutti::net {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr size_t kMaxStatusBytes = 4096;
constexpr auto kLastCode = static_cast<uint8_t>(absl::StatusCode::kUnauthenticated);

}  // namespace

absl::Status ControlMessage::status() const {
  return MakeStatus(code, "{}", texts.empty() ? std::string_view() : std::string_view(texts[0]));
}

ControlMessage ControlMessage::Of(Type type, int rank, const absl::Status& status) {
  ControlMessage message;
  message.type = type;
  message.rank = rank;
  message.code = status.code();
  message.texts = {std::string(MessageOf(status).substr(0, kMaxStatusBytes))};
  return message;
}

std::string Encode(const ControlMessage& message) {
  std::string body;
  WireWriter writer(&body);
  writer.U32(0);  // the length, known in the end
  writer.U8(static_cast<uint8_t>(message.type));
  writer.U8(static_cast<uint8_t>(message.code));
  writer.I32(message.rank);
  writer.U64(message.number);
  writer.U32(static_cast<uint32_t>(message.counters.size()));
  for (const uint64_t counter : message.counters) writer.U64(counter);
  writer.U32(static_cast<uint32_t>(message.texts.size()));
  for (const std::string& text : message.texts) writer.Text32(text);
  std::string length;
  WireWriter(&length).U32(static_cast<uint32_t>(body.size() - kLengthBytes));
  body.replace(0, kLengthBytes, length);
  return body;
}

absl::Status Decode(std::string_view body, ControlMessage* message) {
  WireReader reader(body);
  const uint8_t type = reader.U8();
  const uint8_t code = reader.U8();
  message->rank = reader.I32();
  message->number = reader.U64();
  if (type == 0 || type > static_cast<uint8_t>(ControlMessage::kLast)) {
    return InvalidArgument("type {}, expected 1 to {}", type,
                           static_cast<int>(ControlMessage::kLast));
  }
  if (code > kLastCode) {
    return InvalidArgument("status code {}, expected 0 to {}", code, kLastCode);
  }
  message->type = static_cast<ControlMessage::Type>(type);
  message->code = static_cast<absl::StatusCode>(code);

  const uint32_t counters = reader.U32();
  if (counters > reader.remaining() / sizeof(uint64_t)) {
    return InvalidArgument("{} counters in {} bytes", counters, reader.remaining());
  }
  message->counters.resize(counters);
  for (uint64_t& counter : message->counters) counter = reader.U64();

  const uint32_t texts = reader.U32();
  if (texts > reader.remaining() / sizeof(uint32_t)) {
    return InvalidArgument("{} texts in {} bytes", texts, reader.remaining());
  }
  message->texts.clear();
  message->texts.reserve(texts);
  for (uint32_t i = 0; i < texts && reader.ok(); ++i) message->texts.emplace_back(reader.Text32());
  if (!reader.Complete()) return InvalidArgument("{} bytes do not fit the fields", body.size());
  return absl::OkStatus();
}

void ControlReader::Append(std::span<const std::byte> bytes) { buffer_.append(AsText(bytes)); }

absl::Status ControlReader::Next(ControlMessage* message, bool* found) {
  *found = false;
  const std::string_view rest = std::string_view(buffer_).substr(start_);
  if (rest.size() >= kLengthBytes) {
    const size_t length = WireReader(rest).U32();
    if (length > max_bytes_) {
      return InvalidArgument("message of {} bytes, the limit is {}", length, max_bytes_);
    }
    if (rest.size() - kLengthBytes >= length) {
      TUTTI_RETURN_IF_ERROR(Decode(rest.substr(kLengthBytes, length), message));
      *found = true;
      start_ += kLengthBytes + length;
      return absl::OkStatus();
    }
  }
  // Nothing whole is left: what was taken goes, and a large block with it.
  buffer_.erase(0, start_);
  start_ = 0;
  if (buffer_.empty()) buffer_.shrink_to_fit();
  return absl::OkStatus();
}

}  // namespace tutti::net
