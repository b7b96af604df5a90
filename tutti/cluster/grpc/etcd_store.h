#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/net/coordination/store/store.h"

namespace tutti {

inline constexpr std::string_view kEtcdScheme = "etcd://";

struct EtcdOptions {
  std::vector<std::string> endpoints;  // "host:2379", of its members
  std::string job = "tutti";           // a name under which its tasks keep their keys
  std::string prefix = "/tutti/";      // begins all keys; not seen by users of the store
  std::string user, password;          // empty: none
  // TLS where there is a certificate of who signed the server's; else none. Contents of PEM files.
  std::string ca, certificate, key;
  double attempt_seconds = 2;    // that a member may take for an answer before the next is asked
  double patience_seconds = 60;  // for which the etcd may give no answer before a call fails
  // Looked at while the etcd gives no answer: true ends the waiting. Null: never.
  std::function<bool()> stopped = nullptr;
  // Told when the etcd has given no answer for a while, and when it does again; null: the log.
  std::function<void(const std::string& text)> notice = nullptr;
};

// "etcd://host:2379,host:2379/job" with user, password and TLS from the variables of etcdctl:
// ETCDCTL_USER ("name" or "name:password"), ETCDCTL_PASSWORD, ETCDCTL_CACERT, ETCDCTL_CERT and
// ETCDCTL_KEY. INVALID_ARGUMENT says what is wrong.
absl::StatusOr<EtcdOptions> ParseEtcdUrl(std::string_view url);

// A Store in an etcd. A call is tried at one etcd member after the other until one answers, so the
// loss of a single member has no effect. While a majority is lost, calls wait and say so, and fail
// with UNAVAILABLE once patience_seconds are over. A lease lasts at least as long as etcd's
// shortest (about 2 s), and does not expire while a majority is lost. Each watch is called on its
// own thread, where it may call the store. Construction does not contact the etcd.
absl::StatusOr<std::shared_ptr<net::Store>> OpenEtcd(EtcdOptions options);

}  // namespace tutti
