#include "tutti/nn/sample_scope.h"

#include <utility>

namespace tutti::nn {
namespace {

thread_local const SampleScope* active_samples = nullptr;

}  // namespace

SampleScope::SampleScope(Output first, Output samples)
    : first_(first), samples_(samples), previous_(std::exchange(active_samples, this)) {}
SampleScope::~SampleScope() { active_samples = previous_; }

const SampleScope* SampleScope::Current() { return active_samples; }

}  // namespace tutti::nn
