#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/compile/program.h"
#include "tutti/device/device_info.h"

namespace tutti {

// Who decides where nodes go that nobody places.
enum class PlacementMethod : uint8_t {
  kManual,  // they go to the first device
  kGreedy,  // each where it would finish first (tutti/placement)
  kSearch,  // the same, then moves that make the simulated step shorter
};

struct PlaceOptions {
  // A node whose wish cannot be met goes to the first device, or to that of its state or of the
  // node that it is colocated with; `fell_back` learns the node and why.
  bool soft = false;
  std::function<void(const Node& node, const std::string& why)> fell_back = nullptr;
};

// The node whose state this one works on, where it must run: a Variable, or a queue and its like.
// Null when there is none.
const Node* StateOf(const Node& node);

// "asks for device "/cpu:1" (model.cc:12)": the node's own wish, and the source line that set it
// where that is known, for messages.
std::string WishOf(const Node& node);

// The device requests of a program's nodes, checked: which node each one follows, and which devices
// are allowed for the nodes that follow no other (leaders).
struct PlaceRules {
  // By id: the node whose device this one gets; itself if it follows nobody.
  std::vector<const Node*> leader;
  // By id, of leaders: the devices that match the request, in their order. Empty: there is no
  // request, or no device matches it (PlaceOptions::soft).
  std::vector<std::vector<int>> allowed;
};

// The rules that Place follows: the first allowed device is the one it takes. The bodies of If and
// While stay whole, so their wishes are those of the node that has them. The errors are those of
// Place.
absl::StatusOr<PlaceRules> FindRules(const Program& program, std::span<const DeviceInfo> devices,
                                     const PlaceOptions& options = {});

// Gives every node of the program a device: its `device` becomes a full name. What updates or
// inspects a variable or queue goes to where that lives; a node that is colocated with another
// ("_colocate") goes to its device; a node that asks for a device (or for a part of its name) gets
// the first that matches; a look-up of rows that nobody places goes to its table, so that only the
// rows travel; everything else goes to the first device.
//
// INVALID_ARGUMENT when no device has the name, two wishes contradict each other, the body of an If
// or While asks for two devices, or nodes are colocated with each other in a circle. It names the
// node, its wish, the source line that set it, and what there is. REQUIRES: there is a device, and
// every name is complete.
absl::StatusOr<Program> Place(const Program& program, std::span<const DeviceInfo> devices,
                              const PlaceOptions& options = {});

}  // namespace tutti
