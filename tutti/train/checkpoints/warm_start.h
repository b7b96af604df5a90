#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/train/checkpoints/saved_names.h"

namespace tutti {

// Which saved tensor a variable takes: pairs NEW=OLD, separated by commas. Either name may end with
// a star, which stands for the same text in both: "encoder/*=backbone/encoder/*". The first pair
// that fits counts; a variable that none fits has its own name.
class NameMap {
 public:
  // Throws Error (kInvalidArgument).
  explicit NameMap(std::string_view text);
  std::string OldName(const std::string& name) const;

 private:
  std::vector<std::pair<std::string, std::string>> pairs_;
};

// What a training can take from a checkpoint of another one, without slots and the global step.
struct WarmStart {
  std::vector<SavedName> taken;    // variables of the graph
  std::vector<std::string> names;  // the tensor that each takes
  // Text for users: "dense_1/kernel: float32 [64, 10] here, float32 [64, 1000] there".
  std::vector<std::string> missing;
  std::vector<std::string> left_over;
};
WarmStart PlanWarmStart(std::span<const SavedName> variables, const checkpoint::Manifest& manifest,
                        const NameMap& map);

// What keeps a checkpoint from being that of the model: at most `most` differences, as texts.
// `whole`: tensors that the model does not have are differences, too.
std::vector<std::string> ModelDifferences(std::span<const SavedName> variables,
                                          const checkpoint::Manifest& manifest, bool whole,
                                          size_t most = 5);

}  // namespace tutti
