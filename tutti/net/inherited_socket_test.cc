// Every case runs in a process of its own: a process can take an inherited descriptor only once.
#include "tutti/net/inherited_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "tutti/base/status.h"

namespace tutti::net {
namespace {

Address Loopback(uint16_t port) { return ValueOrThrow(Resolve({"127.0.0.1", port})).front(); }
uint16_t PortOf(const Socket& socket) { return ValueOrThrow(LocalAddress(socket.fd())).port(); }

void Offer(int fd) { ::setenv(kInheritedSocket, std::to_string(fd).c_str(), 1); }

// Does `holds` in a child that was forked for it return true?
bool InAChild(const std::function<bool()>& holds) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(holds() ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(InheritedSocket, ListenTakesItOver) {
  const Socket held = ValueOrThrow(Listen(Loopback(0)));
  EXPECT_TRUE(InAChild([&] {
    ::fcntl(held.fd(), F_SETFD, 0);
    Offer(held.fd());
    const auto taken = Listen(Loopback(PortOf(held)));
    return taken.ok() && taken->fd() == held.fd() && ::fcntl(taken->fd(), F_GETFD) == FD_CLOEXEC;
  }));
}

TEST(InheritedSocket, IsTakenOnce) {
  const Socket held = ValueOrThrow(Listen(Loopback(0)));
  EXPECT_TRUE(InAChild([&] {
    Offer(held.fd());
    const auto first = Listen(Loopback(PortOf(held)));
    const auto second = Listen(Loopback(PortOf(held)));
    return first.ok() && absl::IsUnavailable(second.status());
  }));
}

TEST(InheritedSocket, ServesEveryAddressOfItsPort) {
  const Socket held = ValueOrThrow(Listen(ValueOrThrow(Resolve({"0.0.0.0", 0})).front()));
  EXPECT_TRUE(InAChild([&] {
    Offer(held.fd());
    const auto taken = Listen(Loopback(PortOf(held)));
    return taken.ok() && taken->fd() == held.fd();
  }));
}

TEST(InheritedSocket, IsLeftAloneByListenersElsewhere) {
  const Socket held = ValueOrThrow(Listen(Loopback(0)));
  EXPECT_TRUE(InAChild([&] {
    Offer(held.fd());
    const auto other = Listen(Loopback(0));
    return other.ok() && other->fd() != held.fd() && PortOf(*other) != PortOf(held);
  }));
}

TEST(InheritedSocket, WhatDoesNotListenIsIgnored) {
  const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  for (const std::string& number : {std::to_string(file), std::string("999999"), std::string("4x"),
                                    std::string("-1"), std::string()}) {
    EXPECT_TRUE(InAChild([&] {
      ::setenv(kInheritedSocket, number.c_str(), 1);
      const auto made = Listen(Loopback(0));
      return made.ok() && made->fd() != file;
    })) << number;
  }
  ::close(file);
}

}  // namespace
}  // namespace tutti::net
