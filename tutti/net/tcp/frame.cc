#include "tutti/net/tcp/frame.h"

#include <bit>
#include <cstring>

#include "tutti/base/status.h"

namespace tutti::net::tcp {
namespace {

static_assert(std::endian::native == std::endian::little,
              "fields are copied as they lie in memory; the format is little-endian");

constexpr uint16_t kMagic = 0x7474;  // "tt"
constexpr size_t kHeaderCrcAt = kHeaderBytes - sizeof(uint32_t);

// What a kind may carry.
struct Rules {
  uint8_t flags = 0;  // that may be set
  size_t max_payload = 0;
  bool names = false;  // `index` and `operation` are used
  bool has_id = false;
  bool has_offset = false;
  bool has_total = false;
  bool whole = false;  // the payload is the whole message
};

// A switch without default, so that the compiler asks for a kind that is missing here.
bool RulesOf(FrameKind kind, Rules* rules) {
  switch (kind) {
    case FrameKind::kShort:
      *rules = {
          .max_payload = Transport::kShortBytes, .names = true, .has_total = true, .whole = true};
      return true;
    case FrameKind::kEager:
      *rules = {.max_payload = kEagerBytes, .names = true, .has_total = true, .whole = true};
      return true;
    case FrameKind::kAnnounce:
      *rules = {.names = true, .has_total = true};
      return true;
    case FrameKind::kReady:
      *rules = {.flags = kInOrder, .names = true, .has_id = true, .has_total = true};
      return true;
    case FrameKind::kDiffers:
      *rules = {.has_id = true, .has_total = true};
      return true;
    case FrameKind::kData:
      *rules = {.flags = kAnnounced,
                .max_payload = kMaxPayload,
                .has_id = true,
                .has_offset = true,
                .has_total = true};
      return true;
    case FrameKind::kPut:
      *rules = {.max_payload = kMaxPayload,
                .names = true,
                .has_id = true,
                .has_offset = true,
                .has_total = true};
      return true;
    case FrameKind::kPutDone:
      *rules = {.has_id = true};
      return true;
    case FrameKind::kGet:
      *rules = {.names = true, .has_id = true, .has_total = true};
      return true;
    case FrameKind::kRefused:
      *rules = {.flags = kToPut,
                .max_payload = kMaxRefusalBytes,
                .has_id = true,
                .has_total = true,
                .whole = true};
      return true;
    case FrameKind::kTaken:
      *rules = {.has_total = true};
      return true;
  }
  return false;
}

class FieldReader {
 public:
  explicit FieldReader(const std::byte* bytes) : next_(bytes) {}
  template <typename T>
  void operator()(T* field) {
    std::memcpy(field, next_, sizeof(T));
    next_ += sizeof(T);
  }

 private:
  const std::byte* next_;
};

class FieldWriter {
 public:
  explicit FieldWriter(std::byte* bytes) : next_(bytes) {}
  template <typename T>
  void operator()(const T* field) {
    std::memcpy(next_, field, sizeof(T));
    next_ += sizeof(T);
  }

 private:
  std::byte* next_;
};

// The fields in the order in which they travel.
template <typename Header, typename Field>
void VisitFields(Header* header, Field& field) {
  field(&header->kind);
  field(&header->flags);
  field(&header->index);
  field(&header->operation);
  field(&header->id);
  field(&header->offset);
  field(&header->total);
  field(&header->payload);
  field(&header->payload_crc);
}

absl::Status CheckFields(const FrameHeader& header) {
  Rules rules;
  if (!RulesOf(header.kind, &rules)) {
    return InvalidArgument("frame kind {}, expected 1 to {}", static_cast<int>(header.kind),
                           static_cast<int>(FrameKind::kTaken));
  }
  const std::string_view kind = NameOf(header.kind);
  if ((header.flags & ~rules.flags) != 0) {
    return InvalidArgument("{} frame with flags {:#x}, expected at most {:#x}", kind, header.flags,
                           rules.flags);
  }
  if (header.payload > rules.max_payload) {
    return InvalidArgument("{} frame with a payload of {} bytes, expected at most {}", kind,
                           header.payload, rules.max_payload);
  }
  if (header.offset > header.total || header.payload > header.total - header.offset) {
    return InvalidArgument("{} frame with bytes {} + {} of a message of {} bytes", kind,
                           header.offset, header.payload, header.total);
  }
  if (rules.whole && header.payload != header.total) {
    return InvalidArgument("{} frame with {} bytes of a message of {}, expected all of them", kind,
                           header.payload, header.total);
  }
  const bool unused =
      (!rules.names && (header.index != 0 || header.operation != 0)) ||
      (!rules.has_id && header.id != 0) || (!rules.has_offset && header.offset != 0) ||
      (!rules.has_total && header.total != 0) || (header.payload == 0 && header.payload_crc != 0);
  if (unused) return InvalidArgument("{} frame with a value in a field it does not use", kind);
  return absl::OkStatus();
}

}  // namespace

HeaderBytes EncodeHeader(const FrameHeader& header) {
  HeaderBytes bytes;
  FieldWriter write(bytes.data());
  write(&kMagic);
  VisitFields(&header, write);
  const uint32_t crc = Crc32c({bytes.data(), kHeaderCrcAt});
  write(&crc);
  return bytes;
}

absl::StatusOr<FrameHeader> ParseHeader(std::span<const std::byte, kHeaderBytes> bytes) {
  FieldReader read(bytes.data());
  uint16_t magic = 0;
  read(&magic);
  if (magic != kMagic) {
    return InvalidArgument("not a frame: begins with {:#06x}, expected {:#06x}", magic, kMagic);
  }
  FrameHeader header;
  VisitFields(&header, read);
  uint32_t crc = 0;
  read(&crc);
  const uint32_t expected = Crc32c(bytes.first<kHeaderCrcAt>());
  if (crc != expected) {
    return DataLoss("header of a frame is damaged: its CRC32C is {:08x}, the bytes give {:08x}",
                    crc, expected);
  }
  TUTTI_RETURN_IF_ERROR(CheckFields(header));
  return header;
}

std::string_view NameOf(FrameKind kind) {
  switch (kind) {
    case FrameKind::kShort:
      return "short";
    case FrameKind::kEager:
      return "eager";
    case FrameKind::kAnnounce:
      return "announce";
    case FrameKind::kReady:
      return "ready";
    case FrameKind::kDiffers:
      return "differs";
    case FrameKind::kData:
      return "data";
    case FrameKind::kPut:
      return "put";
    case FrameKind::kPutDone:
      return "put-done";
    case FrameKind::kGet:
      return "get";
    case FrameKind::kRefused:
      return "refused";
    case FrameKind::kTaken:
      return "taken";
  }
  return "unknown";
}

}  // namespace tutti::net::tcp
