#include "tutti/train/strategies/catalogue.h"

namespace tutti {

// Each is defined in the file of its name: strategies/<name>.cc.
#define TUTTI_STRATEGIES(S) \
  S(AllReduce)              \
  S(Local)                  \
  S(Mirrored)               \
  S(PsAsync)                \
  S(PsSsp)                  \
  S(PsSync)

#define TUTTI_DECLARE_STRATEGY(Name) StrategyDef Name##StrategyDef();
TUTTI_STRATEGIES(TUTTI_DECLARE_STRATEGY)
#undef TUTTI_DECLARE_STRATEGY

std::vector<StrategyDef> BuiltInStrategies() {
  std::vector<StrategyDef> defs;
#define TUTTI_ADD_STRATEGY(Name) defs.push_back(Name##StrategyDef());
  TUTTI_STRATEGIES(TUTTI_ADD_STRATEGY)
#undef TUTTI_ADD_STRATEGY
  return defs;
}

}  // namespace tutti
