#include "tutti/train/checkpoints/run_facts.h"

#include <fmt/format.h>

#include <set>

#include "tutti/base/cores.h"
#include "tutti/graph/text/format.h"
#include "tutti/nn/variables.h"
#include "tutti/train/estimator/agreement.h"

namespace tutti {
namespace {

// Where the variables live, as a digest; "default" if no strategy has said anything.
std::string PlacementOf(const Graph& graph) {
  std::string text;
  bool any = false;
  for (const Output& variable : nn::Variables(graph)) {
    text += variable.node->name() + " " + variable.node->device() + "\n";
    any = any || !variable.node->device().empty();
  }
  return any ? Digest(text) : "default";
}

void Compare(const checkpoint::Facts& then, const checkpoint::Facts& now,
             std::vector<std::string>& differences) {
  std::set<std::string> names;
  for (const auto& [name, value] : then) names.insert(name);
  for (const auto& [name, value] : now) names.insert(name);
  const auto value_of = [](const checkpoint::Facts& facts, const std::string& name) {
    const auto found = facts.find(name);
    return found == facts.end() ? std::string("not set") : found->second;
  };
  for (const std::string& name : names) {
    const std::string was = value_of(then, name), is = value_of(now, name);
    if (was != is) differences.push_back(fmt::format("{} is {}, was {}", name, is, was));
  }
}

}  // namespace

RunFacts RunFactsOf(const RunConfig& config, const Graph& graph, const Dataset& dataset,
                    const checkpoint::Facts& order) {
  RunFacts facts;
  if (config.model_dir.empty()) return facts;
  facts.seed = config.seed;
  facts.fingerprint = Digest(ToText(graph));
  facts.order = order;
  facts.order["strategy"] = config.strategy;
  facts.order["workers"] = fmt::format("{}", config.workers());
  facts.order["batch size"] = fmt::format("{}", dataset.batch_size());
  facts.order["devices"] = fmt::format("{} of {} cores", config.devices, UsableCores());
  facts.order["placement"] = config.placement == "manual" ? PlacementOf(graph) : config.placement;
  const auto seed = dataset.shuffle_seed();
  facts.data = {{"samples", fmt::format("{}", dataset.samples())},
                {"seed of Shuffle", seed ? fmt::format("{}", *seed) : "none"}};
  return facts;
}

std::vector<std::string> DifferencesFrom(const checkpoint::Manifest& saved, const RunFacts& facts) {
  std::vector<std::string> differences;
  Compare(saved.order, facts.order, differences);
  Compare(saved.data, facts.data, differences);
  if (saved.seed != facts.seed) {
    differences.push_back(fmt::format("seed is {}, was {}", facts.seed, saved.seed));
  }
  if (saved.fingerprint != facts.fingerprint) {
    differences.emplace_back("the graph is another (a rate, a constant, an op)");
  }
  return differences;
}

}  // namespace tutti
