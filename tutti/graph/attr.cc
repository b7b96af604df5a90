#include "tutti/graph/attr.h"

#include <algorithm>
#include <bit>

#include "tutti/graph/equality.h"

namespace tutti {

std::string_view NameOf(AttrType type) {
  constexpr std::string_view kNames[] = {"bool",   "int",  "float",  "string",  "dtype",   "shape",
                                         "tensor", "ints", "floats", "strings", "subgraph"};
  return kNames[static_cast<size_t>(type)];
}

namespace {

template <typename T>
bool SameValue(const T& a, const T& b) {
  return a == b;
}
// By bits, so that NaN equals itself and the two zeros differ.
bool SameValue(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}
bool SameValue(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return SameValue(x, y); });
}

}  // namespace

bool AttrEquals(const AttrValue& a, const AttrValue& b) {
  if (a.index() != b.index()) return false;
  if (const auto* tensor = std::get_if<Tensor>(&a))
    return tensor->BitwiseEquals(std::get<Tensor>(b));
  if (const auto* subgraph = std::get_if<std::shared_ptr<const Subgraph>>(&a)) {
    const auto& other = std::get<std::shared_ptr<const Subgraph>>(b);
    if (*subgraph == other) return true;
    return *subgraph != nullptr && other != nullptr && SubgraphsEqual(**subgraph, *other);
  }
  return std::visit(
      [&](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, Tensor> ||
                      std::is_same_v<T, std::shared_ptr<const Subgraph>>) {
          return false;
        } else {
          return SameValue(value, std::get<T>(b));
        }
      },
      a);
}

const AttrValue* FindAttr(const AttrList& attrs, std::string_view name) {
  const auto it =
      std::lower_bound(attrs.begin(), attrs.end(), name,
                       [](const Attr& attr, std::string_view key) { return attr.first < key; });
  return it != attrs.end() && it->first == name ? &it->second : nullptr;
}

void SetAttr(AttrList& attrs, std::string_view name, AttrValue value) {
  const auto it =
      std::lower_bound(attrs.begin(), attrs.end(), name,
                       [](const Attr& attr, std::string_view key) { return attr.first < key; });
  if (it != attrs.end() && it->first == name) {
    it->second = std::move(value);
  } else {
    attrs.emplace(it, std::string(name), std::move(value));
  }
}

}  // namespace tutti
