#include "tutti/graph/ops/queue.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/queue_type.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

absl::Status InferQueue(InferContext& c) {
  const auto components = QueueComponentsOf(c.attr<std::vector<std::string>>("dtypes"),
                                            c.attr<std::vector<int64_t>>("shapes"));
  if (!components.ok()) return components.status();
  const int64_t capacity = c.attr<int64_t>("capacity");
  if (capacity < 1) return c.Error("capacity is {}; expected at least 1", capacity);
  if (c.def().FindAttr("min_after_dequeue") != nullptr) {
    const int64_t least = c.attr<int64_t>("min_after_dequeue");
    if (least < 0 || least >= capacity) {
      return c.Error("min_after_dequeue is {}; expected 0 to {}, less than the capacity", least,
                     capacity - 1);
    }
  }
  c.SetOutput(0, kInt64, Shape{});
  return absl::OkStatus();
}

absl::StatusOr<QueueComponents> InputComponents(const InferContext& c) {
  return QueueComponentsOf(*c.spec().inputs[0].node);
}

absl::Status InferEnqueue(InferContext& c, bool many) {
  TUTTI_ASSIGN_OR_RETURN(const QueueComponents components, InputComponents(c));
  if (c.num_inputs() - 1 != int(components.size())) {
    return c.Error("{} components given; the queue's elements have {}", c.num_inputs() - 1,
                   components.size());
  }
  int64_t rows = kUnknownDim;
  for (int i = 1; i < c.num_inputs(); ++i) {
    const ValueType& declared = components[i - 1];
    TUTTI_RETURN_IF_ERROR(c.RequireDType(i, declared.dtype));
    if (many) TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(i, 1));
    if (!c.shape(i).has_rank()) continue;
    const Shape element = many ? c.shape(i).WithoutDim(0) : c.shape(i);
    if (!element.CompatibleWith(declared.shape)) {
      return c.Error("{}; the queue's component {} is {}{}", c.DescribeInput(i), i - 1,
                     declared.shape.ToString(),
                     many ? ", with the number of elements before it" : "");
    }
    if (!many || c.shape(i).dim(0) == kUnknownDim) continue;
    if (rows != kUnknownDim && rows != c.shape(i).dim(0)) {
      return c.Error("{}, but other components hold {} elements", c.DescribeInput(i), rows);
    }
    rows = c.shape(i).dim(0);
  }
  return absl::OkStatus();
}

absl::Status InferDequeue(InferContext& c) {
  TUTTI_ASSIGN_OR_RETURN(const QueueComponents components, InputComponents(c));
  for (size_t i = 0; i < components.size(); ++i) {
    c.SetOutput(int(i), components[i].dtype, components[i].shape);
  }
  return absl::OkStatus();
}

absl::Status InferDequeueMany(InferContext& c) {
  TUTTI_ASSIGN_OR_RETURN(const QueueComponents components, InputComponents(c));
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(1));
  TUTTI_RETURN_IF_ERROR(c.RequireRank(1, 0));
  int64_t count = kUnknownDim;
  if (const auto value = c.ConstantInput(1)) {
    count = value->dtype() == kInt64 ? value->scalar<int64_t>() : value->scalar<int32_t>();
    if (count < 0) return c.Error("count is {}; expected 0 or more", count);
  }
  for (size_t i = 0; i < components.size(); ++i) {
    const Shape& element = components[i].shape;
    if (element.rank() == kMaxRank) {
      return c.Error("component {} has {} dimensions already, and tensors have at most {}", i,
                     element.rank(), kMaxRank);
    }
    Shape batch = Shape::UnknownRank();
    if (element.has_rank()) {
      std::vector<int64_t> dims = {count};
      dims.insert(dims.end(), element.dims().begin(), element.dims().end());
      std::string why;
      const auto made = Shape::Make(dims, &why);
      if (!made) return c.Error("component {}: {}", i, why);
      batch = *made;
    }
    c.SetOutput(int(i), components[i].dtype, batch);
  }
  return absl::OkStatus();
}

std::vector<std::string> DTypeNames(const QueueComponents& components) {
  std::vector<std::string> names;
  for (const ValueType& component : components) names.emplace_back(NameOf(component.dtype));
  return names;
}

std::vector<int64_t> FlatShapes(const QueueComponents& components) {
  std::vector<int64_t> flat;
  for (const ValueType& component : components) {
    flat.push_back(component.shape.rank());
    for (const int64_t dim : component.shape.dims()) flat.push_back(dim);
  }
  return flat;
}

}  // namespace

absl::StatusOr<QueueComponents> QueueComponentsOf(const std::vector<std::string>& dtypes,
                                                  const std::vector<int64_t>& shapes) {
  if (dtypes.empty()) return InvalidArgument("a queue's elements need at least one component");
  QueueComponents components;
  size_t at = 0;
  for (const std::string& name : dtypes) {
    const auto dtype = DTypeFromName(name);
    if (!dtype)
      return InvalidArgument("component {}: there is no dtype \"{}\"", components.size(), name);
    const int64_t rank = at < shapes.size() ? shapes[at++] : kMaxRank + 1;
    if (rank < -1 || rank > kMaxRank || (rank > 0 && size_t(rank) > shapes.size() - at)) {
      return InvalidArgument("attribute \"shapes\" does not tell the shape of component {}",
                             components.size());
    }
    if (rank == -1) {
      components.push_back({*dtype, Shape::UnknownRank()});
      continue;
    }
    std::string why;
    const auto shape = Shape::Make(std::span(shapes).subspan(at, size_t(rank)), &why);
    if (!shape) return InvalidArgument("component {}: {}", components.size(), why);
    at += size_t(rank);
    components.push_back({*dtype, *shape});
  }
  if (at != shapes.size()) {
    return InvalidArgument("attribute \"shapes\" holds more than the shapes of {} components",
                           dtypes.size());
  }
  return components;
}

absl::StatusOr<QueueComponents> QueueComponentsOf(const Node& queue) {
  return QueueComponentsOf(queue.attr<std::vector<std::string>>("dtypes"),
                           queue.attr<std::vector<int64_t>>("shapes"));
}

void RegisterQueueOps(OpRegistry& registry) {
  const std::vector<AttrDef> common = {{"dtypes", AttrType::kStrings},
                                       {"shapes", AttrType::kInts},
                                       {"capacity", int64_t{32}},
                                       {"container", std::string()}};
  const std::vector<std::string> queues = {"FIFOQueue", "RandomShuffleQueue"};
  std::vector<AttrDef> shuffled = common;
  shuffled.insert(shuffled.end(), {{"min_after_dequeue", int64_t{0}}, {"seed", int64_t{0}}});
  registry.Add({.name = "FIFOQueue",
                .attrs = common,
                .infer = InferQueue,
                .gradient = Gradient::kZero,
                .stateful = true});
  registry.Add({.name = "RandomShuffleQueue",
                .attrs = shuffled,
                .infer = InferQueue,
                .gradient = Gradient::kZero,
                .stateful = true});
  registry.Add({.name = "Enqueue",
                .inputs = {"&queue", "components..."},
                .refers_to = queues,
                .infer = [](InferContext& c) { return InferEnqueue(c, false); },
                .stateful = true,
                .async = true});
  registry.Add({.name = "EnqueueMany",
                .inputs = {"&queue", "components..."},
                .refers_to = queues,
                .infer = [](InferContext& c) { return InferEnqueue(c, true); },
                .stateful = true,
                .async = true});
  registry.Add({.name = "Dequeue",
                .inputs = {"&queue"},
                .refers_to = queues,
                .infer = InferDequeue,
                .gradient = Gradient::kZero,
                .stateful = true,
                .async = true,
                .provides_outputs = true});
  registry.Add({.name = "DequeueMany",
                .inputs = {"&queue", "count"},
                .refers_to = queues,
                .infer = InferDequeueMany,
                .gradient = Gradient::kZero,
                .stateful = true,
                .async = true,
                .provides_outputs = true});
  registry.Add({.name = "QueueSize",
                .inputs = {"&queue"},
                .refers_to = queues,
                .infer =
                    [](InferContext& c) {
                      c.SetOutput(0, kInt64, Shape{});
                      return absl::OkStatus();
                    },
                .gradient = Gradient::kZero,
                .stateful = true,
                .without_effects = true});
  registry.Add({.name = "QueueClose",
                .inputs = {"&queue"},
                .refers_to = queues,
                .attrs = {{"cancel_pending", false}},
                .infer = [](InferContext&) { return absl::OkStatus(); },
                .stateful = true});
}

namespace {

const std::string& ContainerOf(const Graph& graph, const std::string& given) {
  return given.empty() ? graph.container_scope() : given;
}

}  // namespace

Output FIFOQueue(Graph& graph, const QueueComponents& components, const QueueOptions& options,
                 std::string_view name, std::source_location where) {
  return OpBuilder("FIFOQueue", name)
      .On(graph)
      .At(where)
      .Attr("dtypes", DTypeNames(components))
      .Attr("shapes", FlatShapes(components))
      .Attr("capacity", options.capacity)
      .Attr("container", ContainerOf(graph, options.container))
      .Build();
}

Output RandomShuffleQueue(Graph& graph, const QueueComponents& components,
                          const ShuffleQueueOptions& options, std::string_view name,
                          std::source_location where) {
  return OpBuilder("RandomShuffleQueue", name)
      .On(graph)
      .At(where)
      .Attr("dtypes", DTypeNames(components))
      .Attr("shapes", FlatShapes(components))
      .Attr("capacity", options.capacity)
      .Attr("min_after_dequeue", options.min_after_dequeue)
      .Attr("seed", options.seed)
      .Attr("container", ContainerOf(graph, options.container))
      .Build();
}

Node* Enqueue(Input queue, const std::vector<Output>& components, std::string_view name) {
  return OpBuilder("Enqueue", name).In(queue).In(components).BuildNode();
}
Node* EnqueueMany(Input queue, const std::vector<Output>& components, std::string_view name) {
  return OpBuilder("EnqueueMany", name).In(queue).In(components).BuildNode();
}
std::vector<Output> Dequeue(Input queue, std::string_view name) {
  return OpBuilder("Dequeue", name).In(queue).BuildAll();
}
std::vector<Output> DequeueMany(Input queue, Input count, std::string_view name) {
  return OpBuilder("DequeueMany", name).In(queue).In(count).BuildAll();
}
Output QueueSize(Input queue, std::string_view name) {
  return OpBuilder("QueueSize", name).In(queue).Build();
}
Node* QueueClose(Input queue, const QueueCloseOptions& options, std::string_view name) {
  return OpBuilder("QueueClose", name)
      .In(queue)
      .Attr("cancel_pending", options.cancel_pending)
      .BuildNode();
}

}  // namespace tutti
