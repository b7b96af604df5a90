#include "tutti/collective/engine/check_call.h"

#include "tutti/base/checked.h"
#include "tutti/base/status.h"
#include "tutti/collective/operation/rank_program.h"
#include "tutti/collective/reduce/reduce.h"

namespace tutti::collective {
namespace {

bool HasChunkPerRank(Operation operation) {
  return operation != Operation::kAllReduce && operation != Operation::kReduce &&
         operation != Operation::kBroadcast && operation != Operation::kBarrier;
}

// The input of an all-to-all may not overlap what it writes.
absl::Status CheckApart(const GroupState& group, const Call& call) {
  if (call.count > 0 && call.input == nullptr) {
    return InvalidArgument("all-to-all: the input is null, but its count is {}", call.count);
  }
  const auto bytes = uintptr_t(call.count) * uintptr_t(group.size()) * SizeOf(call.dtype);
  const auto input = reinterpret_cast<uintptr_t>(call.input);
  const auto output = reinterpret_cast<uintptr_t>(call.data);
  if (input >= output + bytes || output >= input + bytes) return absl::OkStatus();
  return InvalidArgument("all-to-all: input and output, of {} bytes each, overlap by {}", bytes,
                         bytes - (input > output ? input - output : output - input));
}

}  // namespace

absl::Status CheckCall(const GroupState& group, const Call& call, const CallOptions& options) {
  const std::string_view name = NameOf(call.operation);
  if (SizeOf(call.dtype) == 0) return InvalidArgument("{}: the dtype is not set", name);
  if (!call.counts.empty() && call.counts.size() != static_cast<size_t>(group.size())) {
    return InvalidArgument("{}: {} counts for {} ranks; expected one for each", name,
                           call.counts.size(), group.size());
  }
  if (call.count < 0) {
    return InvalidArgument("{}: the count is {}, expected 0 or more", name, call.count);
  }
  if (options.root < 0 || options.root >= group.size()) {
    return InvalidArgument("{}: the root is {}, expected a rank of the group: 0 to {}", name,
                           options.root, group.size() - 1);
  }
  const int64_t chunks = HasChunkPerRank(call.operation) ? 2 * int64_t{group.size()} : 1;
  const auto elements = CheckedMul(call.count, chunks);
  const auto bytes =
      elements ? CheckedMul(*elements, static_cast<int64_t>(SizeOf(call.dtype))) : std::nullopt;
  if (!bytes) {
    return InvalidArgument("{}: {} elements of {} for {} ranks are more bytes than 2^63", name,
                           call.count, NameOf(call.dtype), group.size());
  }
  if (call.count > 0 && call.data == nullptr) {
    return InvalidArgument("{}: the data is null, but its count is {}", name, call.count);
  }
  if (IsReduction(call.operation) && !CanReduce(call.dtype)) {
    return InvalidArgument(
        "{}: cannot reduce {}; expected float16, bfloat16, float32, float64, int32 or int64", name,
        NameOf(call.dtype));
  }
  if (options.reduction < Reduction::kSum || options.reduction > Reduction::kProduct) {
    return InvalidArgument("{}: there is no reduction {}", name, int(options.reduction));
  }
  if (options.wire < Wire::kAsIs || options.wire > Wire::kFloat16) {
    return InvalidArgument("{}: there is no wire format {}", name, int(options.wire));
  }
  if (options.wire != Wire::kAsIs && call.dtype != DType::kFloat32) {
    return InvalidArgument("{}: only float32 can travel as another type; this is {}", name,
                           NameOf(call.dtype));
  }
  return call.operation == Operation::kAllToAll ? CheckApart(group, call) : absl::OkStatus();
}

Descriptor DescriptorOf(const GroupState& group, const Call& call, const CallOptions& options,
                        const Choice& choice) {
  Descriptor descriptor{.operation = call.operation,
                        .dtype = call.dtype,
                        .reduction = options.reduction,
                        .wire = options.wire,
                        .algorithm = choice.algorithm.Pack(),
                        .segments = choice.segments,
                        .root = static_cast<uint16_t>(options.root),
                        .group_size = static_cast<uint16_t>(group.size()),
                        .group_members = group.members_hash(),
                        .counts = 0,
                        .count = call.count};
  if (!call.counts.empty()) {
    descriptor.counts = static_cast<uint32_t>(StableHash(std::as_bytes(call.counts)));
  }
  return descriptor;
}

int64_t BytesOf(const GroupState& group, const Call& call) {
  int64_t elements = call.count;
  if (call.counts.empty() && HasChunkPerRank(call.operation)) elements *= group.size();
  return elements * static_cast<int64_t>(SizeOf(call.dtype));
}

}  // namespace tutti::collective
