#pragma once

#include <string>

#include "tutti/compile/extract.h"
#include "tutti/compile/program.h"
#include "tutti/placement/measured_costs.h"
#include "tutti/placement/placer.h"
#include "tutti/placement/report.h"
#include "tutti/placement/state_homes.h"

namespace tutti::placement {

struct ProgramOptions {
  Method method = Method::kSearch;
  PlaceOptions place;
  const MeasuredSeconds* measured = nullptr;  // where `current` has the nodes; null: estimates
  bool report = false;                        // fill Placed::report
  // Where nodes are now, by name; null: nowhere. Fills Placed::current_seconds, and a report tells
  // of this placement.
  const std::unordered_map<std::string, std::string>* current = nullptr;
};

// A program whose nodes all ask for a device by its full name, which Place then follows.
struct Placed {
  Program program;
  double seconds = 0;          // predicted
  double current_seconds = 0;  // the same of ProgramOptions::current
  PlacementReport report;
};

// Places what the rules leave open, by the simulated time of the step. State that has a home stays
// there; state that has none gets one. With kManual, nodes go where Place would put them, and only
// the prediction is made. Errors: those of CostsOf and MakePlan.
absl::StatusOr<Placed> PlaceProgram(const Program& program, const Machines& machines,
                                    StateHomes& homes, const ProgramOptions& options);

// Gives the state of `graph` that has none a home, by its WholeStep. Where that cannot be had (it
// does not fit together), nothing is decided, and each step decides for what it uses.
absl::Status PlaceState(const Graph& graph, const StepRequest& like, const Machines& machines,
                        StateHomes& homes, const ProgramOptions& options);

}  // namespace tutti::placement
