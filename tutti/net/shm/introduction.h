#pragma once

#include <sched.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// The first packets that two processes of one host exchange.
namespace tutti::net::shm {

using Secret = std::array<uint8_t, 16>;

// The parts of an endpoint's name: "shm1 HOST SOCKET SECRET".
struct EndpointName {
  std::string host;    // one kernel and one network namespace
  std::string socket;  // abstract name of the Unix socket
  Secret secret{};
};
EndpointName MakeEndpointName();
std::string ToString(const EndpointName& name);
std::optional<EndpointName> ParseEndpointName(std::string_view text);

// The first packet each way, with the sender's mailbox attached. The one who connects begins.
struct Introduction {
  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  int32_t from = -1;
  int32_t to = -1;
  int32_t size = 0;
  int32_t pid = 0;  // of the sender; the socket knows only who began to listen
  Secret secret{};  // of the endpoint of `to`
  uint64_t mailbox_bytes = 0;
  cpu_set_t cores{};  // on which the sender may run

  static constexpr uint64_t kMagic = 0x6d68736974747574;  // "tuttishm"
  static constexpr uint32_t kVersion = 2;
};

// What is wrong with an introduction that should come from rank `from` (-1: from any lower one) to
// `to`; empty if nothing is.
std::string Mistake(const Introduction& got, int from, int to, int size, const Secret& secret);

}  // namespace tutti::net::shm
