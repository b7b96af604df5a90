#include "tutti/topology/fabric.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <span>

#include "tutti/base/status.h"
#include "tutti/topology/nesting.h"
#include "tutti/topology/quantity.h"

namespace tutti::topology {
namespace {

constexpr int kMaxCount = 1'000'000;      // of one level
constexpr int kMaxDevices = 100'000'000;  // of all levels together
constexpr int kMaxDepth = 16;
constexpr size_t kMaxFileBytes = 1 << 20;

// What stands in the file, as it is told in an error: the value itself where it is a plain one.
std::string Shown(const toml::node& node) {
  if (const auto* text = node.as_string()) return fmt::format("\"{}\"", text->get());
  if (const auto* integer = node.as_integer()) return fmt::format("{}", integer->get());
  if (const auto* real = node.as_floating_point()) return fmt::format("{}", real->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  return node.is_table() ? "a table" : node.is_array() ? "an array" : "a date or time";
}

// One [section] of the file. Every getter has its key noted as known.
class Section {
 public:
  Section(std::string_view file, std::string_view name, const toml::table& table)
      : file_(file), name_(name), table_(table) {}

  absl::StatusOr<int> Count(std::string_view key) {
    TUTTI_ASSIGN_OR_RETURN(const toml::node* node, Need(key, "a whole number of 1 or more"));
    const auto* integer = node->as_integer();
    if (integer == nullptr || integer->get() < 1 || integer->get() > kMaxCount) {
      return Wrong(key, *node, fmt::format("a whole number from 1 to {}", kMaxCount));
    }
    return static_cast<int>(integer->get());
  }

  absl::StatusOr<Link> ReadLink() {
    Link link;
    TUTTI_ASSIGN_OR_RETURN(
        link.bytes_per_second,
        Quantity("bandwidth", ParseRate, "a rate such as \"25Gbit/s\" or \"400GB/s\""));
    TUTTI_ASSIGN_OR_RETURN(link.latency,
                           Quantity("latency", ParseSeconds, "a time such as \"5us\""));
    return link;
  }

  template <typename T>
  absl::StatusOr<T> Quantity(std::string_view key, absl::StatusOr<T> (*parse)(std::string_view),
                             std::string_view expected) {
    TUTTI_ASSIGN_OR_RETURN(const toml::node* node, Need(key, expected));
    const auto* text = node->as_string();
    if (text == nullptr) return Wrong(key, *node, expected);
    absl::StatusOr<T> value = parse(text->get());
    if (!value.ok()) return Wrong(key, *node, expected);
    return value;
  }

  bool Has(std::string_view key) const { return table_.contains(key); }

  absl::StatusOr<std::string> Text(std::string_view key, std::string_view expected) {
    TUTTI_ASSIGN_OR_RETURN(const toml::node* node, Need(key, expected));
    if (const auto* text = node->as_string()) return text->get();
    return Wrong(key, *node, expected);
  }

  absl::Status Wrong(std::string_view key, const toml::node& node, std::string_view expected) {
    return InvalidArgument("{}:{}: {} is {}; expected {}", file_, node.source().begin.line,
                           Path(key), Shown(node), expected);
  }
  absl::Status Wrong(std::string_view key, std::string_view expected) {
    return Wrong(key, *table_.get(key), expected);
  }

  // An error for the first key that is not in the list.
  absl::Status OnlyKeys(std::span<const std::string_view> known) {
    for (const auto& [key, node] : table_) {
      if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
      return InvalidArgument("{}:{}: {} is not a key of a topology; known here: {}", file_,
                             key.source().begin.line, Path(key.str()), fmt::join(known, ", "));
    }
    return absl::OkStatus();
  }

 private:
  std::string Path(std::string_view key) const {
    return name_.empty() ? std::string(key) : fmt::format("{}.{}", name_, key);
  }

  absl::StatusOr<const toml::node*> Need(std::string_view key, std::string_view expected) {
    if (const toml::node* node = table_.get(key)) return node;
    return InvalidArgument("{}:{}: {} is missing; expected {}", file_, table_.source().begin.line,
                           Path(key), expected);
  }

  std::string_view file_;
  std::string_view name_;
  const toml::table& table_;
};

class FabricReader {
 public:
  FabricReader(std::string_view file, const toml::table& root)
      : file_(file), root_(file, "", root), table_(root) {}

  absl::StatusOr<Fabric> Read() {
    constexpr std::string_view kKeys[] = {"name", "device", "host", "rack", "spine", "model"};
    TUTTI_RETURN_IF_ERROR(root_.OnlyKeys(kKeys));
    if (root_.Has("name")) {
      TUTTI_ASSIGN_OR_RETURN(fabric_.name, root_.Text("name", "a text"));
    }
    TUTTI_RETURN_IF_ERROR(ReadDevices());
    TUTTI_RETURN_IF_ERROR(ReadHosts());
    TUTTI_RETURN_IF_ERROR(ReadRacks());
    TUTTI_RETURN_IF_ERROR(ReadModel());
    return fabric_;
  }

 private:
  // The section, checked for keys it should not have; none if the file has no such section.
  absl::StatusOr<std::optional<Section>> Find(std::string_view name,
                                              std::span<const std::string_view> keys) {
    const toml::node* node = table_.get(name);
    if (node == nullptr) return std::optional<Section>();
    const toml::table* table = node->as_table();
    if (table == nullptr) return root_.Wrong(name, *node, fmt::format("a section [{}]", name));
    Section section(file_, name, *table);
    TUTTI_RETURN_IF_ERROR(section.OnlyKeys(keys));
    return std::optional<Section>(section);
  }

  absl::Status ReadDevices() {
    constexpr std::string_view kKeys[] = {"count", "bandwidth", "latency", "reduce"};
    TUTTI_ASSIGN_OR_RETURN(std::optional<Section> device, Find("device", kKeys));
    if (!device) return absl::OkStatus();
    TUTTI_ASSIGN_OR_RETURN(fabric_.devices_per_host, device->Count("count"));
    if (fabric_.devices_per_host > 1 || device->Has("bandwidth") || device->Has("latency")) {
      TUTTI_ASSIGN_OR_RETURN(fabric_.device_link, device->ReadLink());
    }
    if (device->Has("reduce")) {
      TUTTI_ASSIGN_OR_RETURN(fabric_.reduce_bytes_per_second,
                             device->Quantity("reduce", ParseRate, "a rate such as \"200GB/s\""));
    }
    return absl::OkStatus();
  }

  absl::Status ReadHosts() {
    constexpr std::string_view kKeys[] = {"count", "bandwidth", "latency"};
    TUTTI_ASSIGN_OR_RETURN(std::optional<Section> host, Find("host", kKeys));
    if (!host) {
      return InvalidArgument(
          "{}: the section [host] is missing; expected count, bandwidth and latency of the hosts "
          "of a rack",
          file_);
    }
    TUTTI_ASSIGN_OR_RETURN(fabric_.hosts_per_rack, host->Count("count"));
    TUTTI_ASSIGN_OR_RETURN(fabric_.host_link, host->ReadLink());
    return absl::OkStatus();
  }

  absl::Status ReadRacks() {
    constexpr std::string_view kRackKeys[] = {"count", "bandwidth", "latency"};
    constexpr std::string_view kSpineKeys[] = {"bandwidth", "latency"};
    TUTTI_ASSIGN_OR_RETURN(std::optional<Section> rack, Find("rack", kRackKeys));
    TUTTI_ASSIGN_OR_RETURN(std::optional<Section> spine, Find("spine", kSpineKeys));
    if (rack) {
      TUTTI_ASSIGN_OR_RETURN(fabric_.racks, rack->Count("count"));
      TUTTI_ASSIGN_OR_RETURN(fabric_.rack_link, rack->ReadLink());
    }
    if (spine) {
      TUTTI_ASSIGN_OR_RETURN(fabric_.spine, spine->ReadLink());
    } else if (fabric_.racks > 1) {
      return InvalidArgument(
          "{}: the section [spine] is missing; expected bandwidth and latency of what joins the {} "
          "racks",
          file_, fabric_.racks);
    }
    const double devices = static_cast<double>(fabric_.devices_per_host) * fabric_.hosts_per_rack *
                           static_cast<double>(fabric_.racks);
    if (devices > kMaxDevices) {
      return InvalidArgument("{}: {} devices x {} hosts x {} racks are more than {} devices", file_,
                             fabric_.devices_per_host, fabric_.hosts_per_rack, fabric_.racks,
                             kMaxDevices);
    }
    return absl::OkStatus();
  }

  absl::Status ReadModel() {
    constexpr std::string_view kKeys[] = {"parameters", "dtype", "replicas"};
    constexpr std::string_view kTypes = "\"float16\", \"bfloat16\", \"float32\" or \"float64\"";
    TUTTI_ASSIGN_OR_RETURN(std::optional<Section> model, Find("model", kKeys));
    if (!model) return absl::OkStatus();
    TUTTI_ASSIGN_OR_RETURN(fabric_.parameters,
                           model->Quantity("parameters", ParseCount, "a count such as \"175G\""));
    TUTTI_ASSIGN_OR_RETURN(const std::string dtype, model->Text("dtype", kTypes));
    fabric_.bytes_per_parameter = dtype == "float16" || dtype == "bfloat16" ? 2
                                  : dtype == "float32"                      ? 4
                                  : dtype == "float64"                      ? 8
                                                                            : 0;
    if (fabric_.bytes_per_parameter == 0) return model->Wrong("dtype", kTypes);
    if (fabric_.parameters > std::numeric_limits<int64_t>::max() / fabric_.bytes_per_parameter) {
      return model->Wrong("parameters", "parameters of less than 2^63 bytes");
    }
    TUTTI_ASSIGN_OR_RETURN(fabric_.replicas, model->Count("replicas"));
    if (fabric_.replicas > fabric_.devices()) {
      return model->Wrong("replicas",
                          fmt::format("at most {}, the devices there are", fabric_.devices()));
    }
    return absl::OkStatus();
  }

  std::string_view file_;
  Section root_;
  const toml::table& table_;
  Fabric fabric_;
};

}  // namespace

absl::StatusOr<Fabric> ParseFabric(std::string_view text, std::string_view file) {
  if (text.size() > kMaxFileBytes) {
    return InvalidArgument("{}: {} bytes; a topology has at most {}", file, text.size(),
                           kMaxFileBytes);
  }
  // The parser recurses into keys as deep as they are nested.
  if (const int line = LineNestedDeeperThan(kMaxDepth, text); line > 0) {
    return InvalidArgument("{}:{}: nested deeper than {} levels; a topology has two", file, line,
                           kMaxDepth);
  }
  try {
    const toml::table table = toml::parse(text, file);
    return FabricReader(file, table).Read();
  } catch (const toml::parse_error& error) {
    return InvalidArgument("{}:{}: not TOML: {}", file, error.source().begin.line,
                           error.description());
  }
}

absl::StatusOr<Fabric> ReadFabric(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound("{}: cannot be read: {}", path, std::strerror(errno));
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.fail() && !file.eof())) {
    return NotFound("{}: cannot be read: not a file of text", path);
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return ParseFabric(text, path);
}

}  // namespace tutti::topology
