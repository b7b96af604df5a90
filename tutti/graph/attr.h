#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/tensor/dtype.h"
#include "tutti/tensor/shape.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

struct Subgraph;

// A constant property of a node. Integers are int64, reals double; a Subgraph is the body of If and
// While.
using AttrValue =
    std::variant<bool, int64_t, double, std::string, DType, Shape, Tensor, std::vector<int64_t>,
                 std::vector<double>, std::vector<std::string>, std::shared_ptr<const Subgraph>>;

// The alternatives of AttrValue, by index.
enum class AttrType {
  kBool,
  kInt,
  kFloat,
  kString,
  kDType,
  kShape,
  kTensor,
  kInts,
  kFloats,
  kStrings,
  kSubgraph,
};

inline AttrType TypeOf(const AttrValue& value) { return static_cast<AttrType>(value.index()); }
std::string_view NameOf(AttrType type);

// Equal type and value; tensors and reals by bits, subgraphs by their graphs.
bool AttrEquals(const AttrValue& a, const AttrValue& b);

using Attr = std::pair<std::string, AttrValue>;

// The attributes of a node, sorted by name.
using AttrList = std::vector<Attr>;

const AttrValue* FindAttr(const AttrList& attrs, std::string_view name);
void SetAttr(AttrList& attrs, std::string_view name, AttrValue value);

}  // namespace tutti
