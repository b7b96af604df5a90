#include "tutti/compile/memory_table.h"

#include <algorithm>

namespace tutti {
namespace {

ValueId IdOf(Output value) { return {value.node->id(), value.index}; }

}  // namespace

Layout MemoryTable::LayoutOf(Output value) const {
  const auto it = layouts.find(IdOf(value));
  return it == layouts.end() ? Layout() : it->second;
}

void MemoryTable::SetLayout(Output value, const Layout& layout) {
  if (layout.row_major()) {
    layouts.erase(IdOf(value));
  } else {
    layouts[IdOf(value)] = layout;
  }
}

const Pin* MemoryTable::PinOf(Output value) const {
  const auto it = pins.find(IdOf(value));
  return it == pins.end() ? nullptr : &it->second;
}

void MemoryTable::SetPin(Output value, const Pin& pin) { pins[IdOf(value)] = pin; }

int MemoryTable::AddArena(std::string name, std::string kind) {
  arenas.push_back({std::move(name), std::move(kind)});
  return int(arenas.size() - 1);
}

void MemoryTable::CopyNode(const MemoryTable& from, const Node& original, const Node& copy) {
  for (int i = 0; i < std::min(original.num_outputs(), copy.num_outputs()); ++i) {
    if (!from.layouts.empty()) SetLayout(copy.output(i), from.LayoutOf(original.output(i)));
    if (const Pin* pin = from.PinOf(original.output(i))) SetPin(copy.output(i), *pin);
  }
  if (from.joined_buckets.contains(original.id())) joined_buckets.insert(copy.id());
}

}  // namespace tutti
