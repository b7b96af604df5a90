#include "tutti/testing/op_sample.h"

namespace tutti::testing {

const std::vector<OpSample>& SampleRegistry::Find(const std::string& op) const {
  static const std::vector<OpSample> none;
  const auto it = samples_.find(op);
  return it == samples_.end() ? none : it->second;
}

const SampleRegistry& SampleRegistry::Global() {
  static const SampleRegistry* const registry = [] {
    auto* made = new SampleRegistry;
    AddSourceSamples(*made);
    AddElementwiseSamples(*made);
    AddActivationSamples(*made);
    AddShapeSamples(*made);
    AddArrangeSamples(*made);
    AddGatherSamples(*made);
    AddReduceSamples(*made);
    AddRandomSamples(*made);
    AddMatMulSamples(*made);
    AddLinalgSamples(*made);
    AddSoftmaxSamples(*made);
    AddConvSamples(*made);
    AddPoolSamples(*made);
    AddNormSamples(*made);
    AddControlSamples(*made);
    return made;
  }();
  return *registry;
}

}  // namespace tutti::testing
