#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/cluster/grpc/etcd_store.h"
#include "tutti/net/address.h"
#include "tutti/net/socket.h"
#include "tutti/net/wire.h"

namespace tutti {
namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file || text.empty()) {
    return InvalidArgument("cannot read {}: {}", path,
                           errno != 0 ? net::ErrnoText(errno) : "it is empty");
  }
  return text;
}

}  // namespace

absl::StatusOr<EtcdOptions> ParseEtcdUrl(std::string_view url) {
  const auto wrong = [&](std::string_view why) {
    return InvalidArgument("\"{}\": {}; expected etcd://host:2379,host:2379/name-of-the-job",
                           net::Printable(url), why);
  };
  if (!url.starts_with(kEtcdScheme)) return wrong("it does not begin with etcd://");
  std::string_view rest = url.substr(kEtcdScheme.size());
  EtcdOptions options;
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    options.job = rest.substr(slash + 1);
    rest = rest.substr(0, slash);
    if (options.job.empty() || options.job.find('/') != std::string::npos) {
      return wrong("the name of the job is empty or has a slash");
    }
  }
  if (rest.find('@') != std::string_view::npos) {
    return wrong("user and password belong into ETCDCTL_USER and ETCDCTL_PASSWORD");
  }
  while (true) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string endpoint(rest.substr(0, comma));
    if (const auto parsed = net::ParseEndpoint(endpoint); !parsed.ok()) {
      return wrong(MessageOf(parsed.status()));
    }
    options.endpoints.push_back(endpoint);
    if (comma == rest.size()) break;
    rest.remove_prefix(comma + 1);
  }
  options.user = Variable("ETCDCTL_USER");
  options.password = Variable("ETCDCTL_PASSWORD");
  if (const size_t colon = options.user.find(':'); colon != std::string::npos) {
    options.password = options.user.substr(colon + 1);
    options.user.resize(colon);
  }
  for (const auto& [name, content] : {std::pair("ETCDCTL_CACERT", &options.ca),
                                      {"ETCDCTL_CERT", &options.certificate},
                                      {"ETCDCTL_KEY", &options.key}}) {
    const std::string path = Variable(name);
    if (path.empty()) continue;
    absl::StatusOr<std::string> text = ReadFile(path);
    if (!text.ok()) return WithPrefix(text.status(), fmt::format("{}: ", name));
    *content = *std::move(text);
  }
  if (options.ca.empty() && !options.certificate.empty()) {
    return wrong("ETCDCTL_CERT is set, and ETCDCTL_CACERT, who signed the server's, is not");
  }
  return options;
}

}  // namespace tutti
