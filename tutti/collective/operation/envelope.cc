#include "tutti/collective/operation/envelope.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/collective/algorithms/algorithm.h"
#include "tutti/collective/reduce/reduction_names.h"

namespace tutti::collective {
namespace {

// Both ends run on the same byte order: the handshake of the links refuses others.
struct Packed {
  uint8_t operation;
  uint8_t dtype;
  uint8_t reduction;
  uint8_t wire_and_flags;  // low 4 bits the wire type, bit 4 signals, bit 5 ordinary
  uint16_t algorithm;
  uint16_t segments;
  uint16_t root;
  uint16_t group_size;
  uint32_t group_members;
  uint32_t counts;
  uint32_t region;
  int64_t count;
  uint64_t offset;
};
static_assert(sizeof(Packed) == kEnvelopeBytes);
static_assert(kEnvelopeBytes <= net::Transport::kShortBytes);

constexpr uint8_t kSignals = 16;
constexpr uint8_t kOrdinary = 32;

std::string Times(int64_t count, DType dtype) { return fmt::format("{} {}", count, NameOf(dtype)); }

}  // namespace

uint16_t AlgorithmId::Pack() const { return static_cast<uint16_t>(index | variant << 8); }

AlgorithmId AlgorithmId::Unpack(uint16_t packed) {
  return {static_cast<uint8_t>(packed & 0xff), static_cast<uint8_t>(packed >> 8)};
}

absl::StatusOr<AlgorithmId> AlgorithmId::FromName(std::string_view name) {
  AlgorithmId id;
  const std::string_view base = name.substr(0, name.find(':'));
  TUTTI_ASSIGN_OR_RETURN(const Algorithm* algorithm, FindAlgorithm(base));
  id.index = static_cast<uint8_t>(algorithm - Algorithms().data());
  if (base.size() == name.size()) return id;
  if (algorithm->read_variant == nullptr) {
    return InvalidArgument("algorithm \"{}\": {} takes no parameters", name, base);
  }
  const auto variant = algorithm->read_variant(name.substr(base.size() + 1));
  if (!variant.ok()) {
    return WithPrefix(variant.status(), fmt::format("algorithm \"{}\": ", name));
  }
  id.variant = static_cast<uint8_t>(*variant);
  return id;
}

std::string AlgorithmId::Name() const {
  if (index >= Algorithms().size()) return fmt::format("algorithm {}", index);
  const Algorithm& algorithm = Algorithms()[index];
  std::string name(algorithm.name);
  if (variant != 0 && algorithm.name_variant != nullptr) {
    name += ":" + algorithm.name_variant(variant);
  }
  return name;
}

void PackEnvelope(const Envelope& envelope, std::byte* out) {
  const Descriptor& d = envelope.descriptor;
  Packed packed;
  packed.operation = static_cast<uint8_t>(d.operation);
  packed.dtype = static_cast<uint8_t>(d.dtype);
  packed.reduction = static_cast<uint8_t>(d.reduction);
  packed.wire_and_flags =
      static_cast<uint8_t>(static_cast<uint8_t>(d.wire) | (envelope.signals ? kSignals : 0) |
                           (envelope.ordinary ? kOrdinary : 0));
  packed.algorithm = d.algorithm;
  packed.segments = d.segments;
  packed.root = d.root;
  packed.group_size = d.group_size;
  packed.group_members = d.group_members;
  packed.counts = d.counts;
  packed.region = envelope.memory.region;
  packed.count = d.count;
  packed.offset = envelope.memory.offset;
  std::memcpy(out, &packed, sizeof(packed));
}

absl::StatusOr<Envelope> UnpackEnvelope(std::span<const std::byte> bytes) {
  if (bytes.size() != kEnvelopeBytes) {
    return InvalidArgument("an envelope has {} bytes, expected {}", bytes.size(), kEnvelopeBytes);
  }
  Packed packed;
  std::memcpy(&packed, bytes.data(), sizeof(packed));
  const auto refuse = [](const char* field, int64_t value) {
    return InvalidArgument("an envelope's {} is {}, which is not a known value", field, value);
  };
  if (packed.operation < 1 || packed.operation > static_cast<uint8_t>(Operation::kBarrier)) {
    return refuse("operation", packed.operation);
  }
  if (packed.dtype > static_cast<uint8_t>(DType::kBool)) return refuse("dtype", packed.dtype);
  if (packed.reduction < 1 || packed.reduction > static_cast<uint8_t>(Reduction::kProduct)) {
    return refuse("reduction", packed.reduction);
  }
  const uint8_t wire = packed.wire_and_flags & 0x0f;
  if (wire < 1 || wire > static_cast<uint8_t>(Wire::kFloat16) || packed.wire_and_flags > 0x3f) {
    return refuse("wire type", packed.wire_and_flags);
  }
  if (packed.count < 0) return refuse("count", packed.count);
  Envelope envelope;
  envelope.descriptor = {.operation = static_cast<Operation>(packed.operation),
                         .dtype = static_cast<DType>(packed.dtype),
                         .reduction = static_cast<Reduction>(packed.reduction),
                         .wire = static_cast<Wire>(wire),
                         .algorithm = packed.algorithm,
                         .segments = packed.segments,
                         .root = packed.root,
                         .group_size = packed.group_size,
                         .group_members = packed.group_members,
                         .counts = packed.counts,
                         .count = packed.count};
  envelope.signals = (packed.wire_and_flags & kSignals) != 0;
  envelope.ordinary = (packed.wire_and_flags & kOrdinary) != 0;
  envelope.memory = {packed.region, packed.offset};
  return envelope;
}

std::string Difference(int rank_a, const Descriptor& a, int rank_b, const Descriptor& b) {
  if (rank_a > rank_b) return Difference(rank_b, b, rank_a, a);
  const auto say = [&](std::string_view verb, std::string_view of_a, std::string_view of_b) {
    return fmt::format("rank {} {} {}, rank {} {} {}", rank_a, verb, of_a, rank_b, verb, of_b);
  };
  if (a.operation != b.operation) return say("calls", NameOf(a.operation), NameOf(b.operation));
  if (a.group_size != b.group_size) {
    return say("has a group of", fmt::format("{} ranks", a.group_size),
               fmt::format("{} ranks", b.group_size));
  }
  if (a.group_members != b.group_members) {
    return fmt::format("the groups of rank {} and rank {} have different members or another order",
                       rank_a, rank_b);
  }
  if (a.dtype != b.dtype || a.count != b.count) {
    return say("gives", Times(a.count, a.dtype), Times(b.count, b.dtype));
  }
  if (a.counts != b.counts) {
    return fmt::format("rank {} and rank {} give {} {} in all, but not the same counts per rank",
                       rank_a, rank_b, a.count, NameOf(a.dtype));
  }
  if (a.root != b.root) {
    return say("gives root", std::to_string(a.root), std::to_string(b.root));
  }
  if (a.reduction != b.reduction) {
    return say("wants the", NameOf(a.reduction), NameOf(b.reduction));
  }
  if (a.wire != b.wire) return say("sends", NameOf(a.wire), NameOf(b.wire));
  if (a.algorithm != b.algorithm) {
    return say("uses algorithm", AlgorithmId::Unpack(a.algorithm).Name(),
               AlgorithmId::Unpack(b.algorithm).Name());
  }
  return say("cuts chunks into segments:", std::to_string(a.segments), std::to_string(b.segments));
}

uint64_t MixHash(uint64_t a, uint64_t b) {
  // The finaliser of splitmix64: every bit of the input reaches every bit of the result.
  uint64_t x = a * 0x9e3779b97f4a7c15u + b;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t StableHash(std::span<const std::byte> bytes, uint64_t seed) {
  uint64_t hash = MixHash(seed, bytes.size());
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    hash = MixHash(hash, word);
  }
  uint64_t rest = 0;
  if (i < bytes.size()) std::memcpy(&rest, bytes.data() + i, bytes.size() - i);
  return MixHash(hash, rest);
}

}  // namespace tutti::collective
