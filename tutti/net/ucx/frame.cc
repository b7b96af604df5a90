#include "tutti/net/ucx/frame.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>

#include "tutti/base/status.h"
#include "tutti/net/wire.h"

namespace tutti::net::ucx {
namespace {

constexpr uint16_t kVersion = 1;
constexpr size_t kKeyDigits = 16;

// Of a header whose kind is known: may it have so many bytes of data?
bool FitsKind(const FrameHeader& header, size_t data_bytes) {
  switch (header.kind) {
    case FrameKind::kShort:
      return data_bytes <= Transport::kShortBytes;
    case FrameKind::kEager:
      return data_bytes <= kEagerBytes && data_bytes == header.total;
    case FrameKind::kRefused:
      return data_bytes <= kMaxRefusalBytes;
    case FrameKind::kPut:
      return data_bytes == header.total;
    case FrameKind::kData:
      return header.offset <= header.total && data_bytes <= header.total - header.offset;
    default:
      return data_bytes == 0;
  }
}

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

absl::StatusOr<FrameHeader> ReadHeader(const void* bytes, size_t size, size_t data_bytes) {
  FrameHeader header;
  if (size != sizeof(header)) {
    return InvalidArgument("sent a header of {} bytes, expected {}", size, sizeof(header));
  }
  std::memcpy(&header, bytes, sizeof(header));
  if (header.version != kVersion) {
    return InvalidArgument("speaks version {} of the protocol over UCX, this rank {}",
                           header.version, kVersion);
  }
  const auto kind = static_cast<unsigned>(header.kind);
  if (kind < static_cast<unsigned>(FrameKind::kHello) ||
      kind > static_cast<unsigned>(FrameKind::kBye)) {
    return InvalidArgument("sent a frame of kind {}, which does not exist", kind);
  }
  if (!FitsKind(header, data_bytes)) {
    return InvalidArgument("sent a frame of kind {} with {} bytes at {} of {}", kind, data_bytes,
                           header.offset, header.total);
  }
  return header;
}

std::string ToString(const UcxEndpoint& endpoint) {
  std::string text = fmt::format("{}/{:016x}/", endpoint.host, endpoint.key);
  for (const char c : endpoint.address) text += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return text;
}

absl::StatusOr<UcxEndpoint> ParseUcxEndpoint(std::string_view text) {
  const auto bad = [&] {
    return InvalidArgument("'{}' is no endpoint of UCX: expected HOST/KEY/ADDRESS",
                           Printable(text, 80));
  };
  const size_t host_end = text.find('/');
  if (host_end == std::string_view::npos || host_end == 0) return bad();
  const std::string_view rest = text.substr(host_end + 1);
  if (rest.size() < kKeyDigits + 3 || rest[kKeyDigits] != '/') return bad();
  UcxEndpoint endpoint;
  endpoint.host = text.substr(0, host_end);
  const auto [end, error] =
      std::from_chars(rest.data(), rest.data() + kKeyDigits, endpoint.key, 16);
  if (error != std::errc() || end != rest.data() + kKeyDigits) return bad();
  const std::string_view digits = rest.substr(kKeyDigits + 1);
  if (digits.size() % 2 != 0) return bad();
  for (size_t i = 0; i < digits.size(); i += 2) {
    const int high = DigitOf(digits[i]), low = DigitOf(digits[i + 1]);
    if (high < 0 || low < 0) return bad();
    endpoint.address.push_back(static_cast<char>(high * 16 + low));
  }
  return endpoint;
}

}  // namespace tutti::net::ucx
