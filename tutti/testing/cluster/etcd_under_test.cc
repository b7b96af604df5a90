#include "tutti/testing/cluster/etcd_under_test.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "tutti/base/status.h"

namespace tutti::testing {
namespace {

// A port that the system gives to nobody else while the socket lives. It does not listen, so a
// process that sets SO_REUSEADDR, as etcd does, can.
net::Socket HoldPort(int* port) {
  net::Socket held(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(held.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(held.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  *port = ValueOrThrow(net::LocalAddress(held.fd())).port();
  return held;
}

pid_t Spawn(const std::vector<std::string>& command, const std::string& log) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(out, STDERR_FILENO);
  ::execvp(words[0], words.data());
  ::_exit(127);
}

int ExitCodeOf(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool Succeeds(const std::vector<std::string>& command, const std::string& log) {
  return ExitCodeOf(Spawn(command, log)) == 0;
}

// A certificate authority, and what it signed: for the members, and for a client.
void MakeCertificates(const std::string& folder) {
  const std::string script = fmt::format(
      "cd {} && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test-ca -keyout "
      "ca-key.pem -out ca.pem && for who in server client; do openssl req -newkey rsa:2048 -nodes "
      "-subj /CN=$who -keyout $who-key.pem -out $who.csr && printf "
      "'subjectAltName=IP:127.0.0.1,DNS:localhost\\nextendedKeyUsage=serverAuth,clientAuth\\n' > "
      "extensions && openssl x509 -req -in $who.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial "
      "-days 2 -extfile extensions -out $who.pem || exit 1; done",
      folder);
  EXPECT_TRUE(Succeeds({"sh", "-c", script}, folder + "/openssl.log"));
}

}  // namespace

std::string EtcdUnderTest::Missing() {
  for (const char* program : {"etcd", "etcdctl", "openssl"}) {
    if (!Succeeds({"sh", "-c", fmt::format("command -v {}", program)}, "/dev/null")) {
      return fmt::format("there is no {}; scripts/packages-test.txt names the packages", program);
    }
  }
  return "";
}

EtcdUnderTest::EtcdUnderTest(const Options& options) : options_(options) {
  members_.resize(size_t(options.members));
  for (Member& member : members_) {
    member.client_port = HoldPort(&member.client);
    member.peer_port = HoldPort(&member.peer);
  }
  if (options.tls) MakeCertificates(folder_.path());
  for (int i = 0; i < options.members; ++i) Start(i);
}

EtcdUnderTest::~EtcdUnderTest() {
  for (size_t i = 0; i < members_.size(); ++i) Kill(int(i));
}

std::vector<std::string> EtcdUnderTest::endpoints() const {
  std::vector<std::string> endpoints;
  for (const Member& member : members_) {
    endpoints.push_back(fmt::format("127.0.0.1:{}", member.client));
  }
  return endpoints;
}

std::string EtcdUnderTest::url(const std::string& job) const {
  return fmt::format("etcd://{}/{}", fmt::join(endpoints(), ","), job);
}

void EtcdUnderTest::Start(int member) {
  std::vector<std::string> cluster;
  for (size_t i = 0; i < members_.size(); ++i) {
    cluster.push_back(fmt::format("m{}=http://127.0.0.1:{}", i, members_[i].peer));
  }
  const Member& own = members_[size_t(member)];
  const std::string client = fmt::format("{}://127.0.0.1:{}", Scheme(), own.client);
  const std::string peer = fmt::format("http://127.0.0.1:{}", own.peer);
  std::vector<std::string> command = {"etcd",
                                      "--name",
                                      fmt::format("m{}", member),
                                      "--data-dir",
                                      folder_ / fmt::format("data{}", member),
                                      "--listen-client-urls",
                                      client,
                                      "--advertise-client-urls",
                                      client,
                                      "--listen-peer-urls",
                                      peer,
                                      "--initial-advertise-peer-urls",
                                      peer,
                                      "--initial-cluster",
                                      fmt::format("{}", fmt::join(cluster, ",")),
                                      "--heartbeat-interval",
                                      "50",
                                      "--election-timeout",
                                      "500"};
  if (options_.tls) {
    for (const auto& [flag, file] : {std::pair("--cert-file", "server.pem"),
                                     {"--key-file", "server-key.pem"},
                                     {"--trusted-ca-file", "ca.pem"}}) {
      command.emplace_back(flag);
      command.push_back(File(file));
    }
    command.emplace_back("--client-cert-auth");
  }
  members_[size_t(member)].pid = Spawn(command, File(fmt::format("etcd{}.log", member)));
}

void EtcdUnderTest::Signal(int member, int number) { ::kill(members_[size_t(member)].pid, number); }

void EtcdUnderTest::Kill(int member) {
  pid_t& pid = members_[size_t(member)].pid;
  if (pid == 0) return;
  ::kill(pid, SIGKILL);
  ExitCodeOf(pid);
  pid = 0;
}

void EtcdUnderTest::Control(const std::vector<std::string>& arguments) const {
  std::vector<std::string> command = {"etcdctl",
                                      fmt::format("--endpoints={}://{}", Scheme(), endpoints()[0])};
  if (options_.tls) {
    command.push_back("--cacert=" + File("ca.pem"));
    command.push_back("--cert=" + File("client.pem"));
    command.push_back("--key=" + File("client-key.pem"));
  }
  command.insert(command.end(), arguments.begin(), arguments.end());
  const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!Succeeds(command, File("etcdctl.log"))) {
    if (std::chrono::steady_clock::now() > late) {
      ADD_FAILURE() << fmt::format("{} does not succeed", fmt::join(command, " "));
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace tutti::testing
