#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

namespace tutti::collective {

// The part of the job's control plane that the engine uses. Thread-safe. The verdict on each report
// reaches every rank through Engine::Fail.
class Control {
 public:
  virtual ~Control() = default;
  // A link to the rank broke.
  virtual void ReportLost(int rank, const absl::Status& status) = 0;
  // The job cannot go on.
  virtual void ReportFailure(const absl::Status& status) = 0;
  // How many operations of the world this rank has started, and how many the others have. Empty
  // where that is not known.
  virtual void SetProgress(uint64_t counter) = 0;
  virtual std::vector<uint64_t> Progress() const = 0;
};

}  // namespace tutti::collective
