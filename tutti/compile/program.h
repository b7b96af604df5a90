#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/compile/memory_table.h"
#include "tutti/graph/graph.h"

namespace tutti {

// A graph on its way to become a step: what is fed, what is fetched, what must run. Passes turn one
// Program into another. The graph holds what it was extracted from under the same names.
struct Program {
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  std::vector<Output> feeds;  // Placeholder nodes of `graph`, in the order of the request
  std::vector<Output> fetches;
  std::vector<const Node*> targets;
  MemoryTable memory;  // what passes have decided about the memory of its values
};

// Copies a program node by node, in topological order, and lets `rewrite` change it on the way. All
// passes are made of it.
class ProgramCopy {
 public:
  explicit ProgramCopy(const Program& from);

  Graph& to() { return *result_.graph; }
  MemoryTable& memory() { return result_.memory; }  // of the copy
  const MemoryTable& memory() const { return result_.memory; }

  // What stands in the copy for an output or node of the original. REQUIRES: it was copied or
  // mapped already.
  Output Mapped(Output original) const;
  std::vector<Output> Mapped(const std::vector<Output>& originals) const;
  bool IsMapped(Output original) const { return bool(Mapped(original)); }

  // Adds a copy of `node` with its inputs mapped, and maps its outputs to it.
  absl::StatusOr<Node*> Copy(const Node& node);
  // The spec of that copy, to be changed and then added with AddAs.
  absl::StatusOr<NodeSpec> SpecOf(const Node& node) const;
  // Adds `spec` in place of `node`: all outputs and control edges of node go to the new one, and
  // what the memory table has about it.
  absl::StatusOr<Node*> AddAs(const Node& node, NodeSpec spec);
  // From now on `replacement` (of the copy) stands for `original`.
  void Map(Output original, Output replacement);
  // Whoever has a control edge from `original` gets edges from `replacements` instead (none: it
  // just vanishes, as for a folded constant).
  void MapControl(const Node& original, std::vector<const Node*> replacements);

  // The finished copy, with feeds, fetches and targets mapped.
  absl::StatusOr<Program> Finish();

 private:
  // What became of a node of the original. Most have one output and one replacement, so those lie
  // in an array by id and only the rest in maps: a program may have millions of nodes.
  struct Entry {
    const Node* original = nullptr;  // null: not seen
    Output output;                   // for its output 0; empty if not mapped
    bool control_mapped = false;
    const Node* control = nullptr;  // null: see more_control_
  };
  Entry& EntryOf(const Node& original);
  const Entry* FindEntry(const Node& original) const;
  // The replacements of a node in control edges are added to `nodes`; false if it was not mapped.
  bool AppendControl(const Node& original, std::vector<const Node*>& nodes) const;

  const Program& from_;
  Program result_;
  std::vector<Entry> entries_;  // by the original's id
  std::unordered_map<Output, Output, OutputHash> more_outputs_;
  std::unordered_map<const Node*, std::vector<const Node*>> more_control_;
};

// How often each output of a program is used: by inputs, and once more for each fetch.
class UseCounts {
 public:
  explicit UseCounts(const Program& program);
  int of(Output output) const;
  // The nodes that take `output` as an input (once per use).
  const std::vector<const Node*>& consumers(Output output) const;
  bool HasControlSuccessor(const Node& node) const { return control_.contains(&node); }

 private:
  std::unordered_map<Output, int, OutputHash> counts_;
  std::unordered_map<Output, std::vector<const Node*>, OutputHash> consumers_;
  std::unordered_map<const Node*, int> control_;
  std::vector<const Node*> none_;
};

}  // namespace tutti
