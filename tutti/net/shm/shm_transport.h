#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/net/shm/shared_pages.h"
#include "tutti/net/transport.h"

namespace tutti::net {

// Where a rank can be reached by the processes of its host. Ranks exchange the names by other means
// before they connect. A name holds a secret: whoever knows it is a member of the job, as sure as
// the way on which the names were exchanged; so it is neither logged nor written to disk.
class ShmEndpoint {
 public:
  static absl::StatusOr<std::unique_ptr<ShmEndpoint>> Open();

  const std::string& name() const { return name_; }
  // True if the two names are of one host: one kernel and one network namespace. False for names
  // that are malformed.
  static bool SameHost(std::string_view one, std::string_view other);

 private:
  friend class ShmTransport;
  ShmEndpoint() = default;

  std::string name_;
  shm::FileDescriptor listener_;
};

struct ShmOptions {
  int rank = 0;
  int size = 1;
  // The endpoints' names by rank. An empty one is on another host, and cannot be reached.
  std::vector<std::string> names;
  double timeout_seconds = 60;  // for all of them to appear
};

// Ranks that are processes of one host. All memory is anonymous and passed over Unix sockets: a
// killed process leaves nothing behind, and its peers see its socket close.
class ShmTransport {
 public:
  // Returns when every rank that has a name is connected with this one; all call it at about the
  // same time. DEADLINE_EXCEEDED lists who is missing.
  static absl::StatusOr<std::unique_ptr<Transport>> Connect(std::unique_ptr<ShmEndpoint> own,
                                                            const ShmOptions& options);
};

}  // namespace tutti::net
