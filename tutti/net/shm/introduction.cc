#include "tutti/net/shm/introduction.h"

#include <fmt/core.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cctype>
#include <cstddef>
#include <fstream>
#include <random>

namespace tutti::net::shm {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

Secret RandomSecret() {
  Secret secret;
  if (getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size())) {
    std::random_device random;
    for (uint8_t& byte : secret) byte = static_cast<uint8_t>(random());
  }
  return secret;
}

std::string ToHex(const Secret& secret) {
  std::string hex;
  for (uint8_t byte : secret) hex += fmt::format("{:02x}", byte);
  return hex;
}

bool FromHex(std::string_view hex, Secret* secret) {
  if (hex.size() != 2 * secret->size()) return false;
  for (size_t i = 0; i < hex.size(); ++i) {
    const size_t digit = kHexDigits.find(hex[i]);
    if (digit == std::string_view::npos) return false;
    uint8_t& byte = (*secret)[i / 2];
    byte = static_cast<uint8_t>(byte << 4 | digit);
  }
  return true;
}

// The kernel's number of this boot, and the number of the network namespace: what must agree for
// abstract sockets to meet.
std::string HostName() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network {};
  stat("/proc/self/ns/net", &network);
  return fmt::format("{}/{}", boot.empty() ? "unknown" : boot, network.st_ino);
}

}  // namespace

EndpointName MakeEndpointName() {
  return {.host = HostName(), .socket = "tutti-" + ToHex(RandomSecret()), .secret = RandomSecret()};
}

std::string ToString(const EndpointName& name) {
  return fmt::format("shm1 {} {} {}", name.host, name.socket, ToHex(name.secret));
}

std::optional<EndpointName> ParseEndpointName(std::string_view text) {
  std::string_view parts[4];
  for (int i = 0; i < 4; ++i) {
    const size_t end = i < 3 ? text.find(' ') : text.size();
    if (end == std::string_view::npos || end == 0) return std::nullopt;
    parts[i] = text.substr(0, end);
    text.remove_prefix(i < 3 ? end + 1 : end);
  }
  EndpointName name{.host = std::string(parts[1]), .socket = std::string(parts[2])};
  if (parts[0] != "shm1" || parts[2].size() > 100 || !FromHex(parts[3], &name.secret)) {
    return std::nullopt;
  }
  return name;
}

std::string Mistake(const Introduction& got, int from, int to, int size, const Secret& secret) {
  if (got.magic != Introduction::kMagic) return "it does not speak Tutti's protocol";
  if (got.version != Introduction::kVersion) {
    return fmt::format("it speaks version {}, this rank {}", got.version, Introduction::kVersion);
  }
  uint8_t difference = 0;  // takes as long for every wrong secret
  for (size_t i = 0; i < secret.size(); ++i) difference |= got.secret[i] ^ secret[i];
  if (difference != 0) return "it does not know the secret of this job";
  if (got.to != to) return fmt::format("it looks for rank {}, this is rank {}", got.to, to);
  if (got.size != size) return fmt::format("its job has {} ranks, this one {}", got.size, size);
  if (from >= 0 ? got.from != from : got.from < 0 || got.from >= to) {
    return fmt::format("it says that it is rank {}", got.from);
  }
  return "";
}

}  // namespace tutti::net::shm
