#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tutti/net/socket.h"
#include "tutti/testing/temporary_directory.h"

namespace tutti::testing {

// A real etcd of one or several members on loopback, with its files in a folder of its own; ends
// with the object.
class EtcdUnderTest {
 public:
  struct Options {
    int members = 1;
    bool tls = false;  // servers and clients show certificates (certificate(...))
  };
  explicit EtcdUnderTest(const Options& options);
  ~EtcdUnderTest();

  // Why this machine cannot run one; empty: it can.
  static std::string Missing();

  std::vector<std::string> endpoints() const;  // "127.0.0.1:PORT"
  std::string url(const std::string& job) const;
  // A file of the folder: "ca.pem", "client.pem", "client-key.pem".
  std::string File(const std::string& name) const { return folder_ / name; }

  void Start(int member);  // as a restart, with its data
  void Kill(int member);
  void Signal(int member, int number);
  // Runs etcdctl with these arguments until it succeeds, for a while. Fails the test otherwise.
  void Control(const std::vector<std::string>& arguments) const;

 private:
  struct Member {
    net::Socket client_port, peer_port;  // bound, so that nobody else gets them
    int client = 0, peer = 0;
    pid_t pid = 0;
  };
  std::string Scheme() const { return options_.tls ? "https" : "http"; }

  const Options options_;
  TemporaryDirectory folder_;
  std::vector<Member> members_;
};

}  // namespace tutti::testing
