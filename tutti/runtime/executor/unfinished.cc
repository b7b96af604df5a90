#include "tutti/runtime/executor/unfinished.h"

#include <fmt/format.h>

namespace tutti {

void UnfinishedNodes::StepFailed() {
  std::lock_guard lock(mutex_);
  failed_ = true;
}

void UnfinishedNodes::Add(std::string node, std::string why) {
  std::lock_guard lock(mutex_);
  if (++count_ > kMostListed) return;
  first_.push_back(why.empty() ? std::move(node) : fmt::format("{} ({})", node, why));
}

std::string UnfinishedNodes::ToString() const {
  std::lock_guard lock(mutex_);
  if (failed_ || count_ == 0) return "";
  std::string text = fmt::format("; not done: {}", fmt::join(first_, ", "));
  if (count_ > first_.size()) text += fmt::format(" and {} more", count_ - first_.size());
  return text;
}

}  // namespace tutti
