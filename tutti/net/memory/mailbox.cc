#include "tutti/net/memory/mailbox.h"

#include <algorithm>
#include <bit>
#include <new>
#include <random>

#include "tutti/base/status.h"

namespace tutti::net::memory {
namespace {

constexpr uint64_t kMagic = 0x786f626974747574;  // "tuttibox" in memory
constexpr uint32_t kVersion = 1;
constexpr size_t kLargestMailbox = 2 << 20;
constexpr uint64_t kFewestCells = 128;  // a ring: what a short message needs

struct alignas(kCellBytes) MailboxHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t ranks;
  uint64_t cells;
  uint64_t key;
  uint32_t joined_barriers;
};

uint64_t RandomKey() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

}  // namespace

uint64_t Mailbox::CellsFor(int ranks) {
  static_assert(Transport::kShortBytes <= kFewestCells / 8 * kCellBytes + kInlineBytes);
  const uint64_t cells = kLargestMailbox / kCellBytes / static_cast<uint64_t>(std::max(ranks, 1));
  return std::bit_floor(std::clamp<uint64_t>(cells, kFewestCells, 1024));
}

size_t Mailbox::BytesFor(int ranks, uint64_t cells) {
  return sizeof(MailboxHeader) + sizeof(Doorbell) +
         static_cast<size_t>(ranks) * (sizeof(RingHeader) + cells * kCellBytes);
}

Mailbox Mailbox::Format(Bytes memory, int ranks, uint64_t cells) {
  auto* header = new (memory.data()) MailboxHeader{.magic = kMagic,
                                                   .version = kVersion,
                                                   .ranks = static_cast<uint32_t>(ranks),
                                                   .cells = cells,
                                                   .key = RandomKey(),
                                                   .joined_barriers = JoinBarriers()};
  Mailbox mailbox;
  mailbox.doorbell_ = reinterpret_cast<Doorbell*>(header + 1);
  mailbox.rings_ = reinterpret_cast<std::byte*>(mailbox.doorbell_ + 1);
  mailbox.ranks_ = ranks;
  mailbox.cells_ = cells;
  mailbox.key_ = header->key;
  mailbox.joined_barriers_ = header->joined_barriers != 0;
  return mailbox;
}

absl::StatusOr<Mailbox> Mailbox::Open(Bytes memory, int ranks) {
  if (memory.size() < sizeof(MailboxHeader)) {
    return DataLoss("mailbox: {} bytes, too few for its header", memory.size());
  }
  const auto* shared = reinterpret_cast<const MailboxHeader*>(memory.data());
  const MailboxHeader header = *shared;
  if (header.magic != kMagic || header.version != kVersion) {
    return DataLoss("mailbox: begins with {:#x} version {}; expected {:#x} version {}",
                    header.magic, header.version, kMagic, kVersion);
  }
  if (header.ranks != static_cast<uint32_t>(ranks)) {
    return DataLoss("mailbox: made for {} ranks; expected {}", header.ranks, ranks);
  }
  if (!std::has_single_bit(header.cells) || header.cells < kFewestCells ||
      header.cells > (1 << 20) || memory.size() < BytesFor(ranks, header.cells)) {
    return DataLoss("mailbox: {} cells a ring do not fit into {} bytes", header.cells,
                    memory.size());
  }
  Mailbox mailbox;
  mailbox.doorbell_ = reinterpret_cast<Doorbell*>(memory.data() + sizeof(MailboxHeader));
  mailbox.rings_ = reinterpret_cast<std::byte*>(mailbox.doorbell_ + 1);
  mailbox.ranks_ = ranks;
  mailbox.cells_ = header.cells;
  mailbox.key_ = header.key;
  mailbox.joined_barriers_ = header.joined_barriers != 0;
  return mailbox;
}

RingView Mailbox::ring(int writer) const {
  auto* headers = reinterpret_cast<RingHeader*>(rings_);
  std::byte* cells = rings_ + static_cast<size_t>(ranks_) * sizeof(RingHeader);
  return {.header = headers + writer,
          .cells = cells + static_cast<size_t>(writer) * cells_ * kCellBytes,
          .count = cells_,
          .key = key_};
}

}  // namespace tutti::net::memory
