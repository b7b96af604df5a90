#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tutti/graph/attr.h"

namespace tutti {

class Graph;
class GraphBuilder;
class Node;
struct OpDef;

// One result of a node: what an edge of the graph starts at. A plain value; default-constructed it
// is empty.
struct Output {
  const Node* node = nullptr;
  int index = 0;

  explicit operator bool() const { return node != nullptr; }
  DType dtype() const;
  const Shape& shape() const;
  std::string name() const;  // "dense/matmul", or "split:1" for a later result
  Graph& graph() const;

  friend bool operator==(const Output& a, const Output& b) = default;
};

struct OutputHash {
  size_t operator()(const Output& output) const {
    return std::hash<const void*>()(output.node) * 31 + size_t(output.index);
  }
};

// What is known of a node's result before it runs.
struct ValueType {
  DType dtype = DType::kInvalid;
  Shape shape;
  friend bool operator==(const ValueType&, const ValueType&) = default;
};

// What a node is made from. Empty `name`: made from the op's name. `device` may be partial
// ("/cpu:1"). Colocation with another node is the attribute "_colocate": that node's name.
struct NodeSpec {
  std::string op = {};
  std::string name = {};
  std::vector<Output> inputs = {};
  std::vector<const Node*> control_inputs = {};
  AttrList attrs = {};
  std::string device = {};
  std::source_location where = {};
  std::source_location placed_at = {};  // where `device` or "_colocate" was asked for, if known
};

// A vertex of the graph: an op applied to inputs. Immutable; owned by its Graph, whose lifetime it
// shares.
class Node {
 public:
  int64_t id() const { return id_; }  // its position in graph().nodes(); inputs have smaller ids
  const std::string& name() const { return spec_.name; }
  const std::string& op() const { return spec_.op; }
  const OpDef& def() const { return *def_; }
  Graph& graph() const { return *graph_; }

  const std::vector<Output>& inputs() const { return spec_.inputs; }
  Output input(int i) const { return spec_.inputs[i]; }
  int num_inputs() const { return int(spec_.inputs.size()); }
  const std::vector<const Node*>& control_inputs() const {
    return spec_.control_inputs;
  }                                                           // these run before
  const std::string& device() const { return spec_.device; }  // as requested
  // The name of the node that it is colocated with; empty: none.
  std::string_view colocated_with() const;

  int num_outputs() const { return int(outputs_.size()); }
  const ValueType& type(int i) const { return outputs_[i]; }
  Output output(int i = 0) const { return {this, i}; }

  // Attributes as given; those left out have the op's default. attr<T>: REQUIRES that the op
  // declares it with that type.
  const AttrList& attrs() const { return spec_.attrs; }
  const AttrValue* FindAttr(std::string_view name) const;  // or the op's default, or null
  template <typename T>
  const T& attr(std::string_view name) const {
    return std::get<T>(RequireAttr(name));
  }
  bool HasAttr(std::string_view name) const { return FindAttr(name) != nullptr; }

  // `MatMul "dense/matmul"`, for messages; with " (model.cc:12)" when the source line is known.
  std::string Describe() const;
  const std::source_location& where() const { return spec_.where; }
  const NodeSpec& spec() const { return spec_; }

 private:
  friend class GraphBuilder;
  const AttrValue& RequireAttr(std::string_view name) const;

  int64_t id_ = 0;
  Graph* graph_ = nullptr;
  const OpDef* def_ = nullptr;
  NodeSpec spec_;
  std::vector<ValueType> outputs_;
};

// A dataflow graph: nodes in the order they were added, which is a topological order, because a
// node's inputs exist before it. Nodes are only ever added, so a Session made from a graph sees
// what is added later. Types and shapes are inferred, and mistakes found, when a node is added. Not
// thread-safe while being built.
class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Adds a node. Throws Error when the op is unknown, the name is taken or malformed, or the inputs
  // do not suit the op. Programs call the functions of tutti/graph/ops instead.
  Node* Add(NodeSpec spec);

  const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  int64_t size() const { return int64_t(nodes_.size()); }
  const Node* Find(std::string_view name) const;   // null when there is none
  Output FindOutput(std::string_view name) const;  // "split:1"; empty when there is none

  // Reserves memory for this many nodes in all.
  void Reserve(int64_t nodes);

  // "dense", then "dense_1", and so on, under the current name scope; taken from then on.
  std::string UniqueName(std::string_view base);

  // Set by the Scope classes below.
  const std::string& name_scope() const { return name_scope_; }
  const std::string& device_scope() const { return device_scope_.device; }
  const std::string& container_scope() const { return container_scope_; }
  const std::vector<const Node*>& control_scope() const { return control_scope_; }

  // A graph inside If or While. Using an Output of `parent` (or its parents) inside it captures
  // that value: an Arg node stands for it here, and captures() lists what it stands for.
  explicit Graph(Graph* parent) : parent_(parent) {}
  Graph* parent() const { return parent_; }
  struct Capture {
    Output outer;
    Output arg;
  };
  const std::vector<Capture>& captures() const { return captures_; }

 private:
  friend class NameScope;
  friend class DeviceScope;
  friend class ColocateWith;
  friend class ContainerScope;
  friend class ControlScope;
  friend class GraphBuilder;

  Graph* parent_ = nullptr;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::unordered_map<std::string_view, const Node*> by_name_;
  std::unordered_map<std::string, int64_t> name_counts_;
  std::vector<Capture> captures_;
  std::string name_scope_;
  struct Wish {  // where nodes that are added from here on go
    std::string device = {};
    std::string colocate = {};  // with the node of that name
    std::source_location at = {};
  };
  Wish device_scope_;
  std::string container_scope_;
  std::vector<const Node*> control_scope_;
};

// The body of an If branch or a While: `args` are its Arg nodes in order, captures last.
struct Subgraph {
  std::unique_ptr<Graph> graph;
  std::vector<Output> args;
  std::vector<Output> results;
};

// While it lives, names of new nodes get "name/" in front. Scopes nest. A scope name that was used
// before is made unique ("dense_1"). The name "/" leads back to the root for as long.
class NameScope {
 public:
  NameScope(Graph& graph, std::string_view name);
  ~NameScope();
  NameScope(const NameScope&) = delete;
  NameScope& operator=(const NameScope&) = delete;
  const std::string& prefix() const { return graph_.name_scope_; }  // "dense_1/"

 private:
  Graph& graph_;
  std::string previous_;
};

// While it lives, new nodes request `device`: a full name ("/job:worker/task:1/cpu:0") or a part of
// one ("/job:ps", "/task:1", "cpu:1"); a * matches any job, task or number. If several devices
// match, the first one is taken, devices of the session's own task before others. The innermost
// scope counts.
class DeviceScope {
 public:
  DeviceScope(Graph& graph, std::string_view device,
              std::source_location where = std::source_location::current());
  // New nodes request the same placement as `like`: its device, or its colocation with another
  // node.
  DeviceScope(Graph& graph, const Node& like);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Graph& graph_;
  Graph::Wish previous_;
};

// While it lives, new nodes are placed on the device of the node that `output` belongs to,
// regardless of the device scopes around it. A device scope inside it must agree.
//
//   ColocateWith beside(w);
//   Output norm = Sum(Square(w));
class ColocateWith {
 public:
  explicit ColocateWith(Output output,
                        std::source_location where = std::source_location::current());
  ~ColocateWith();
  ColocateWith(const ColocateWith&) = delete;
  ColocateWith& operator=(const ColocateWith&) = delete;

 private:
  Graph& graph_;
  Graph::Wish previous_;
};

// While it lives, new variables, queues, mutexes and other resources belong to `container`, unless
// they name another one. A device identifies a resource by container and name, so clients whose
// graphs use the same names share nothing if their containers differ, and each container can be
// reset separately (Session::Reset). The innermost scope counts; outside of all scopes the
// container is "".
class ContainerScope {
 public:
  ContainerScope(Graph& graph, std::string_view container);
  ~ContainerScope();
  ContainerScope(const ContainerScope&) = delete;
  ContainerScope& operator=(const ContainerScope&) = delete;

 private:
  Graph& graph_;
  std::string previous_;
};

// While it lives, new nodes run after `nodes`.
class ControlScope {
 public:
  ControlScope(Graph& graph, std::vector<const Node*> nodes);
  ~ControlScope();
  ControlScope(const ControlScope&) = delete;
  ControlScope& operator=(const ControlScope&) = delete;

 private:
  Graph& graph_;
  size_t previous_size_;
};

}  // namespace tutti
