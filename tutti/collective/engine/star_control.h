#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tutti/collective/engine/control.h"
#include "tutti/collective/engine/engine.h"
#include "tutti/net/coordination/star.h"

namespace tutti::collective {

// A job's star as the engine's control plane.
class StarControl final : public Control {
 public:
  explicit StarControl(std::unique_ptr<net::Star> star) : star_(std::move(star)) {}
  net::Star& star() { return *star_; }
  // Verdicts go to the engine, which outlives this.
  void Serve(Engine* engine) {
    star_->OnFailure([engine](int, const absl::Status& status) { engine->Fail(status); });
    star_->OnLeft([engine](int rank, const absl::Status& status) { engine->Leaves(rank, status); });
  }

  void ReportLost(int rank, const absl::Status& status) override {
    star_->ReportLost(rank, status);
  }
  void ReportFailure(const absl::Status& status) override { star_->ReportFailure(status); }
  void SetProgress(uint64_t counter) override { star_->SetProgress(counter); }
  std::vector<uint64_t> Progress() const override { return star_->Progress(); }

 private:
  std::unique_ptr<net::Star> star_;
};

}  // namespace tutti::collective
