#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/train/strategies/strategy.h"

namespace tutti {

// One variable on one server: a whole one, or rows of a larger one.
struct PlacedVariable {
  std::string name;  // of the logical variable
  Shape shape;       // of all of it
  int64_t first_row = 0;
  int64_t rows = -1;       // -1: all of it
  int64_t bytes = 0;       // of this part
  int64_t slot_bytes = 0;  // of what the optimizer keeps beside it
  size_t server = 0;
};

// Where the variables of a training live, as text for users:
//
//   ps 0  /job:ps/task:0/cpu:0     1.6 MB   52% of bytes
//     dense/kernel [784, 100]      rows 0 to 391     156.8 KB + 313.6 KB of slots
//     global_step []               whole             8 B
std::string RenderPlan(const std::vector<std::string>& devices,
                       const std::vector<PlacedVariable>& variables);

// Spreads variables over servers: each goes to the one that has the fewest bytes so far. One of
// more than `split_bytes` is cut by rows into a part for every server, of equal size but for a row.
// Slots stay with their variable; scalars that do not train, as the global step, are on the first
// server. The plan depends on the variables' shapes and their order alone, so that every worker
// comes to the same one.
class ServerPlacer final : public VariablePlacer {
 public:
  // `memory`: bytes that variables and their slots may take on each server; 0: any number.
  // REQUIRES: there is a device.
  ServerPlacer(std::vector<std::string> devices, int64_t split_bytes, int64_t memory = 0);

  // Throws Error (kResourceExhausted), naming the variable, the server, the bytes and the limit,
  // when a server would hold more than its memory.
  VariablePlacement Place(const VariableRequest& request) override;
  std::string Describe() const override { return RenderPlan(devices_, variables_); }
  // "2 servers: 3 variables, 80 KB and 82 KB"; slots count.
  std::string Summary() const override;

  const std::vector<PlacedVariable>& variables() const { return variables_; }

 private:
  size_t Emptiest() const;
  size_t ServerOf(const std::string& device) const;
  void Add(PlacedVariable variable);
  // `what` of `variable` adds `bytes` to its server.
  void RequireMemory(const PlacedVariable& variable, const std::string& what, int64_t bytes) const;
  VariablePlacement PlaceSlot(const VariableRequest& request);
  VariablePlacement Split(const VariableRequest& request, int64_t bytes);

  const std::vector<std::string> devices_;
  const int64_t split_bytes_;
  const int64_t memory_;             // 0: there is no limit
  std::vector<int64_t> bytes_;       // on each server, without slots
  std::vector<int64_t> slot_bytes_;  // and those of slots
  std::vector<PlacedVariable> variables_;
};

}  // namespace tutti
