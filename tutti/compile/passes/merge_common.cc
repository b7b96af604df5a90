// Common subexpression elimination: nodes with the same op, inputs, attributes, control inputs and
// device are merged into one. One walk is enough, because a node's inputs come before it and are
// compared after merging.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "tutti/compile/passes/node_facts.h"
#include "tutti/compile/passes/passes.h"
#include "tutti/graph/build.h"
#include "tutti/graph/op_def.h"

namespace tutti {
namespace {

// Of a large tensor only the first bytes are hashed; the comparison sees all.
constexpr size_t kMostHashed = 4096;

bool Before(const Output& a, const Output& b) {
  return a.node->id() != b.node->id() ? a.node->id() < b.node->id() : a.index < b.index;
}

// What makes two nodes the same. Made of the spec that the copy of a node has.
struct Key {
  const OpDef* def = nullptr;
  std::vector<Output> inputs;
  std::vector<const Node*> control_inputs;
  const AttrList* attrs = nullptr;
  std::string_view device;
  size_t hash = 0;
};

class Hasher {
 public:
  void Bytes(const void* data, size_t size) {
    Number(std::hash<std::string_view>()({static_cast<const char*>(data), size}));
  }
  void Text(std::string_view text) { Bytes(text.data(), text.size()); }
  void Number(uint64_t number) { hash_ = (hash_ ^ number) * 0x9e3779b97f4a7c15u + (hash_ >> 29); }
  size_t hash() const { return size_t(hash_); }

 private:
  uint64_t hash_ = 0;
};

void HashValue(const AttrValue& value, Hasher& hasher) {
  hasher.Number(value.index());
  if (const auto* flag = std::get_if<bool>(&value)) {
    hasher.Number(*flag);
  } else if (const auto* integer = std::get_if<int64_t>(&value)) {
    hasher.Number(uint64_t(*integer));
  } else if (const auto* real = std::get_if<double>(&value)) {
    hasher.Bytes(real, sizeof(*real));
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    hasher.Text(*text);
  } else if (const auto* dtype = std::get_if<DType>(&value)) {
    hasher.Number(uint64_t(*dtype));
  } else if (const auto* shape = std::get_if<Shape>(&value)) {
    for (const int64_t dim : shape->dims()) hasher.Number(uint64_t(dim));
  } else if (const auto* tensor = std::get_if<Tensor>(&value)) {
    for (const int64_t dim : tensor->shape().dims()) hasher.Number(uint64_t(dim));
    if (tensor->valid()) hasher.Bytes(tensor->raw(), std::min(tensor->bytes(), kMostHashed));
  } else if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
    hasher.Bytes(integers->data(), integers->size() * sizeof(int64_t));
  } else if (const auto* reals = std::get_if<std::vector<double>>(&value)) {
    hasher.Bytes(reals->data(), reals->size() * sizeof(double));
  } else if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& item : *texts) hasher.Text(item);
  }
}

// The attribute as given or by default, so that it makes no difference which.
const AttrValue* ValueOf(const Key& key, const AttrDef& attr) {
  if (const AttrValue* given = FindAttr(*key.attrs, attr.name)) return given;
  return attr.default_value ? &*attr.default_value : nullptr;
}

// Notes of other passes, which are declared nowhere.
std::vector<const Attr*> Notes(const Key& key) {
  std::vector<const Attr*> notes;
  for (const Attr& attr : *key.attrs) {
    if (key.def->FindAttr(attr.first) == nullptr) notes.push_back(&attr);
  }
  return notes;
}

Key MakeKey(const OpDef& def, const NodeSpec& spec) {
  Key key{.def = &def,
          .inputs = spec.inputs,
          .control_inputs = spec.control_inputs,
          .attrs = &spec.attrs,
          .device = spec.device};
  if (def.commutative) std::sort(key.inputs.begin(), key.inputs.end(), Before);
  std::sort(key.control_inputs.begin(), key.control_inputs.end(),
            [](const Node* a, const Node* b) { return a->id() < b->id(); });
  Hasher hasher;
  hasher.Text(def.name);
  for (const Output& input : key.inputs) {
    hasher.Number(uint64_t(input.node->id()));
    hasher.Number(uint64_t(input.index));
  }
  for (const Node* control : key.control_inputs) hasher.Number(uint64_t(control->id()));
  for (const AttrDef& attr : def.attrs) {
    if (const AttrValue* value = ValueOf(key, attr)) HashValue(*value, hasher);
  }
  for (const Attr* note : Notes(key)) {
    hasher.Text(note->first);
    HashValue(note->second, hasher);
  }
  key.hash = hasher.hash();
  return key;
}

bool SameAttrs(const Key& a, const Key& b) {
  for (const AttrDef& attr : a.def->attrs) {
    const AttrValue* x = ValueOf(a, attr);
    const AttrValue* y = ValueOf(b, attr);
    if (x != y && (x == nullptr || y == nullptr || !AttrEquals(*x, *y))) return false;
  }
  const auto notes_a = Notes(a), notes_b = Notes(b);
  return std::equal(notes_a.begin(), notes_a.end(), notes_b.begin(), notes_b.end(),
                    [](const Attr* x, const Attr* y) {
                      return x->first == y->first && AttrEquals(x->second, y->second);
                    });
}

struct KeyHash {
  size_t operator()(const Key& key) const { return key.hash; }
};
struct KeyEqual {
  bool operator()(const Key& a, const Key& b) const {
    return a.def == b.def && a.inputs == b.inputs && a.control_inputs == b.control_inputs &&
           a.device == b.device && SameAttrs(a, b);
  }
};

}  // namespace

absl::StatusOr<Program> MergeCommon(Program program, const PassContext&) {
  ProgramCopy copy(program);
  // Keys point into the specs of nodes of the copy, which do not move.
  std::unordered_map<Key, const Node*, KeyHash, KeyEqual> seen;
  for (const auto& node : program.graph->nodes()) {
    if (!IsPure(*node)) {
      TUTTI_RETURN_IF_ERROR(copy.Copy(*node).status());
      continue;
    }
    TUTTI_ASSIGN_OR_RETURN(NodeSpec spec, copy.SpecOf(*node));
    if (const auto it = seen.find(MakeKey(node->def(), spec)); it != seen.end()) {
      for (int i = 0; i < node->num_outputs(); ++i)
        copy.Map(node->output(i), it->second->output(i));
      copy.MapControl(*node, {it->second});
      continue;
    }
    TUTTI_ASSIGN_OR_RETURN(const Node* added, copy.AddAs(*node, std::move(spec)));
    seen.emplace(MakeKey(added->def(), added->spec()), added);
  }
  return copy.Finish();
}

}  // namespace tutti
