#pragma once

#include <array>
#include <cstdint>

namespace tutti {

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011):
// ten rounds that mix a counter of 128 bits under a key of 64 into 128 random bits. There is no
// state: block n of a stream is had without the blocks before it, by any thread.
struct Philox {
  static constexpr uint32_t kMultiplier0 = 0xD2511F53u;
  static constexpr uint32_t kMultiplier1 = 0xCD9E8D57u;
  static constexpr uint32_t kWeyl0 = 0x9E3779B9u;
  static constexpr uint32_t kWeyl1 = 0xBB67AE85u;
  static constexpr int kRounds = 10;

  using Block = std::array<uint32_t, 4>;

  static Block Mix(Block counter, uint32_t key0, uint32_t key1) {
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t a = uint64_t{kMultiplier0} * counter[0];
      const uint64_t b = uint64_t{kMultiplier1} * counter[2];
      counter = {uint32_t(b >> 32) ^ counter[1] ^ key0, uint32_t(b),
                 uint32_t(a >> 32) ^ counter[3] ^ key1, uint32_t(a)};
      key0 += kWeyl0;
      key1 += kWeyl1;
    }
    return counter;
  }
};

// The random words of one node in one step: word w is word w % 4 of block w / 4.
class RandomStream {
 public:
  RandomStream(int64_t seed, int64_t node_seed, int64_t step)
      : key_(Spread(uint64_t(seed) + Spread(uint64_t(node_seed)))), step_(uint64_t(step)) {}

  uint64_t key() const { return key_; }
  uint64_t step() const { return step_; }

  Philox::Block Block(uint64_t index) const {
    return Philox::Mix(
        {uint32_t(index), uint32_t(index >> 32), uint32_t(step_), uint32_t(step_ >> 32)},
        uint32_t(key_), uint32_t(key_ >> 32));
  }
  uint32_t Word(uint64_t index) const { return Block(index / 4)[index % 4]; }
  uint64_t DoubleWord(uint64_t index) const {
    const Philox::Block block = Block(index / 2);
    const size_t at = index % 2 * 2;
    return uint64_t{block[at]} << 32 | block[at + 1];
  }

 private:
  // Neighbouring seeds give unrelated keys: a bijection in which every bit depends on all (the
  // finaliser of SplitMix64).
  static uint64_t Spread(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }

  uint64_t key_;
  uint64_t step_;
};

}  // namespace tutti
