#include "tutti/train/strategies/ps/placer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/topology/quantity.h"

namespace tutti {
namespace {

std::string RowsOf(const PlacedVariable& variable) {
  if (variable.rows < 0) return "whole";
  return fmt::format("rows {} to {}", variable.first_row, variable.first_row + variable.rows - 1);
}

// Is the variable "w/part_1" what the plan has as rows of "w"? Else its name is the variable's.
bool IsPart(const PlacedVariable& placed, const std::string& variable) {
  return variable == placed.name ||
         (placed.rows >= 0 && variable.starts_with(placed.name + "/part_"));
}

}  // namespace

std::string RenderPlan(const std::vector<std::string>& devices,
                       const std::vector<PlacedVariable>& variables) {
  using topology::FormatBytes;
  std::vector<int64_t> bytes(devices.size(), 0);
  int64_t total = 0;
  size_t widest = 0;
  for (const PlacedVariable& variable : variables) {
    bytes[variable.server] += variable.bytes + variable.slot_bytes;
    total += variable.bytes + variable.slot_bytes;
    widest = std::max(widest, variable.name.size() + 1 + variable.shape.ToString().size());
  }
  std::string text;
  for (size_t s = 0; s < devices.size(); ++s) {
    text += fmt::format("{}ps {}  {}  {}, {:.0f}% of all bytes", s == 0 ? "" : "\n", s, devices[s],
                        FormatBytes(double(bytes[s])),
                        total > 0 ? 100 * double(bytes[s]) / double(total) : 0);
    for (const PlacedVariable& variable : variables) {
      if (variable.server != s) continue;
      const std::string what = variable.name + " " + variable.shape.ToString();
      text += fmt::format("\n  {:<{}}  {:<20} {}", what, widest, RowsOf(variable),
                          FormatBytes(double(variable.bytes)));
      if (variable.slot_bytes > 0) {
        text += fmt::format(" + {} of slots", FormatBytes(double(variable.slot_bytes)));
      }
    }
  }
  return text;
}

std::string ServerPlacer::Summary() const {
  std::vector<int64_t> bytes(devices_.size(), 0);
  std::set<std::string_view> names;
  for (const PlacedVariable& variable : variables_) {
    bytes[variable.server] += variable.bytes + variable.slot_bytes;
    names.insert(variable.name);
  }
  std::string sizes;
  for (size_t s = 0; s < bytes.size(); ++s) {
    const char* const between = s == 0 ? "" : s + 1 == bytes.size() ? " and " : ", ";
    sizes += between + topology::FormatBytes(double(bytes[s]));
  }
  return fmt::format("{} {}: {} {}, {}", bytes.size(), bytes.size() == 1 ? "server" : "servers",
                     names.size(), names.size() == 1 ? "variable" : "variables", sizes);
}

ServerPlacer::ServerPlacer(std::vector<std::string> devices, int64_t split_bytes, int64_t memory)
    : devices_(std::move(devices)),
      split_bytes_(split_bytes),
      memory_(memory),
      bytes_(devices_.size(), 0),
      slot_bytes_(devices_.size(), 0) {}

size_t ServerPlacer::Emptiest() const {
  return size_t(std::min_element(bytes_.begin(), bytes_.end()) - bytes_.begin());
}

size_t ServerPlacer::ServerOf(const std::string& device) const {
  const auto found = std::find(devices_.begin(), devices_.end(), device);
  return found == devices_.end() ? 0 : size_t(found - devices_.begin());
}

void ServerPlacer::RequireMemory(const PlacedVariable& variable, const std::string& what,
                                 int64_t bytes) const {
  using topology::FormatBytes;
  const int64_t there = bytes_[variable.server] + slot_bytes_[variable.server];
  if (memory_ == 0 || (there <= memory_ && bytes <= memory_ - there)) return;
  const bool whole = variable.rows < 0 && devices_.size() > 1;
  throw Error(Code::kResourceExhausted,
              fmt::format("{} of variable \"{}\" {} ({}) needs {} on ps {} ({}), which holds {} "
                          "already; --ps-memory is {}. Use more servers{} or a larger --ps-memory",
                          what, variable.name, variable.shape.ToString(), RowsOf(variable),
                          FormatBytes(double(bytes)), variable.server, devices_[variable.server],
                          FormatBytes(double(there)), FormatBytes(double(memory_)),
                          whole ? fmt::format(", a --split-bytes below {}", split_bytes_) : ""));
}

void ServerPlacer::Add(PlacedVariable variable) {
  RequireMemory(variable, "the value", variable.bytes);
  bytes_[variable.server] += variable.bytes;
  variables_.push_back(std::move(variable));
}

VariablePlacement ServerPlacer::PlaceSlot(const VariableRequest& request) {
  const Node& owner = *request.options.slot_of.node;
  const size_t server = ServerOf(owner.device());
  for (PlacedVariable& placed : variables_) {
    if (placed.server != server || !IsPart(placed, owner.name())) continue;
    const int64_t bytes = request.shape.elements() * int64_t(SizeOf(request.dtype));
    RequireMemory(placed, fmt::format("the slot \"{}\"", request.name), bytes);
    placed.slot_bytes += bytes;
    slot_bytes_[server] += bytes;
    break;
  }
  return {.device = owner.device()};
}

VariablePlacement ServerPlacer::Split(const VariableRequest& request, int64_t bytes) {
  const int64_t rows = request.shape[0], parts = int64_t(devices_.size());
  VariablePlacement placement;
  for (int64_t p = 0; p < parts; ++p) {
    const int64_t first = rows * p / parts, count = rows * (p + 1) / parts - first;
    placement.parts.push_back({count, devices_[size_t(p)]});
    Add({request.name, request.shape, first, count, bytes / rows * count, 0, size_t(p)});
  }
  return placement;
}

VariablePlacement ServerPlacer::Place(const VariableRequest& request) {
  if (request.options.slot_of) return PlaceSlot(request);
  const Shape& shape = request.shape;
  const int64_t bytes =
      shape.IsFullyKnown() ? shape.elements() * int64_t(SizeOf(request.dtype)) : 0;
  const bool can_split = request.options.trainable && devices_.size() > 1 && shape.IsFullyKnown() &&
                         shape.rank() > 0 && shape[0] >= int64_t(devices_.size());
  if (can_split && bytes > split_bytes_) return Split(request, bytes);
  const bool counter = !request.options.trainable && shape.rank() == 0;
  const size_t server = counter ? 0 : Emptiest();
  Add({request.name, shape, 0, -1, bytes, 0, server});
  return {.device = devices_[server]};
}

}  // namespace tutti
