// Random numbers in float32, a vector of Philox blocks at a time: lane i of the four vectors of
// words has block first + i. Numbers are made from the words in the same lanes, and stored
// interleaved, which puts them in the order of their elements. float64, 16-bit floats and integers
// are left to the reference.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/kernels/cpu/random.cc"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "tutti/base/checked.h"
#include "tutti/device/device.h"
#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/random_kernels.h"

#ifndef TUTTI_KERNELS_CPU_RANDOM_ONCE
#define TUTTI_KERNELS_CPU_RANDOM_ONCE
namespace tutti {
namespace {

// Which blocks of which stream.
struct BlockRange {
  uint64_t key;
  uint64_t step;
  uint64_t first;
  int64_t count;
};

// value = a + b * (a number of the op's distribution), never above `most`.
struct Scaling {
  float a;
  float b;
  float most;
};

}  // namespace
}  // namespace tutti
#endif

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<uint32_t>;
using V = hn::Vec<D>;
using DF = hn::RebindToFloat<D>;
using VF = hn::Vec<DF>;

// Both halves of the products of all lanes with one number.
HWY_INLINE void Multiply(V a, V by, V* high, V* low) {
#if HWY_TARGET == HWY_SCALAR
  const uint64_t product = uint64_t{hn::GetLane(a)} * hn::GetLane(by);
  *low = hn::Set(D(), uint32_t(product));
  *high = hn::Set(D(), uint32_t(product >> 32));
#else
  const D d;
  const hn::RepartitionToWide<D> wide;
  const auto even = hn::MulEven(a, by);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))), by);
  *low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
  *high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
#endif
}

// The words of the blocks first, first + 1, ....
HWY_INLINE void Mix(const BlockRange& range, uint64_t first, V* words) {
  const D d;
  const V low = hn::Set(d, uint32_t(first));
  V w0 = hn::Add(low, hn::Iota(d, 0));
  const V carry = hn::IfThenElseZero(hn::Lt(w0, low), hn::Set(d, 1));
  V w1 = hn::Add(hn::Set(d, uint32_t(first >> 32)), carry);
  V w2 = hn::Set(d, uint32_t(range.step));
  V w3 = hn::Set(d, uint32_t(range.step >> 32));
  uint32_t key0 = uint32_t(range.key);
  uint32_t key1 = uint32_t(range.key >> 32);
  const V m0 = hn::Set(d, Philox::kMultiplier0);
  const V m1 = hn::Set(d, Philox::kMultiplier1);
  for (int round = 0; round < Philox::kRounds; ++round) {
    V high0, low0, high1, low1;
    Multiply(w0, m0, &high0, &low0);
    Multiply(w2, m1, &high1, &low1);
    w0 = hn::Xor(hn::Xor(high1, w1), hn::Set(d, key0));
    w1 = low1;
    w2 = hn::Xor(hn::Xor(high0, w3), hn::Set(d, key1));
    w3 = low0;
    key0 += Philox::kWeyl0;
    key1 += Philox::kWeyl1;
  }
  words[0] = w0;
  words[1] = w1;
  words[2] = w2;
  words[3] = w3;
}

// Calls `store` with the words of as many blocks as there are lanes and a place for their 4 *
// lanes elements, until the range is done. The last place may be a buffer of which a part is kept.
template <typename T, typename Store>
HWY_INLINE void ForBlocks(const BlockRange& range, T* out, const Store& store) {
  const D d;
  const auto lanes = int64_t(hn::Lanes(d));
  V words[4];
  int64_t block = 0;
  for (; block + lanes <= range.count; block += lanes) {
    Mix(range, range.first + uint64_t(block), words);
    store(words, out + 4 * block);
  }
  if (block == range.count) return;
  HWY_ALIGN T rest[4 * hn::MaxLanes(D())];
  Mix(range, range.first + uint64_t(block), words);
  store(words, rest);
  std::memcpy(out + 4 * block, rest, size_t(range.count - block) * 4 * sizeof(T));
}

void StoreWords(const BlockRange& range, uint32_t* out) {
  ForBlocks(range, out, [](const V* w, uint32_t* to) HWY_ATTR {
    hn::StoreInterleaved4(w[0], w[1], w[2], w[3], D(), to);
  });
}

HWY_INLINE void StoreScaled(const VF* values, const Scaling& s, float* to) {
  const DF d;
  const VF a = hn::Set(d, s.a), b = hn::Set(d, s.b), most = hn::Set(d, s.most);
  const auto scaled = [&](VF v) HWY_ATTR { return hn::Min(hn::MulAdd(v, b, a), most); };
  hn::StoreInterleaved4(scaled(values[0]), scaled(values[1]), scaled(values[2]), scaled(values[3]),
                        d, to);
}

void Uniform(const BlockRange& range, const Scaling& scaling, float* out) {
  ForBlocks(range, out, [&](const V* w, float* to) HWY_ATTR {
    const DF d;
    const hn::RebindToSigned<D> di;
    VF values[4];
    for (int i = 0; i < 4; ++i) {
      const VF bits = hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<8>(w[i])));
      values[i] = hn::Mul(bits, hn::Set(d, 0x1p-24f));
    }
    StoreScaled(values, scaling, to);
  });
}

// (w + 0.5) * 2^-32, with all the precision that small ones have.
HWY_INLINE VF OpenUnit(V w) {
  const D d;
  const DF df;
  const hn::RebindToSigned<D> di;
  const VF high = hn::ConvertTo(df, hn::BitCast(di, hn::ShiftRight<16>(w)));
  const VF low = hn::ConvertTo(df, hn::BitCast(di, hn::And(w, hn::Set(d, 0xFFFF))));
  const VF whole = hn::Add(hn::Mul(high, hn::Set(df, 65536.0f)), low);
  return hn::Mul(hn::Add(whole, hn::Set(df, 0.5f)), hn::Set(df, 0x1p-32f));
}

void Normal(const BlockRange& range, const Scaling& scaling, float* out) {
  ForBlocks(range, out, [&](const V* w, float* to) HWY_ATTR {
    const DF d;
    const hn::RebindToSigned<D> di;
    VF values[4];
    for (int i = 0; i < 4; i += 2) {
      const VF log = hn::Log(d, OpenUnit(w[i]));
      const VF radius = hn::Sqrt(hn::Max(hn::Mul(log, hn::Set(d, -2.0f)), hn::Zero(d)));
      const VF turn = hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<8>(w[i + 1])));
      const VF angle = hn::Mul(turn, hn::Set(d, float(2 * std::numbers::pi * 0x1p-24)));
      values[i] = hn::Mul(radius, hn::Cos(d, angle));
      values[i + 1] = hn::Mul(radius, hn::Sin(d, angle));
    }
    StoreScaled(values, scaling, to);
  });
}

// sqrt(2) * erfinv(u) / u as a polynomial of degree 7 in -log(1 - u^2), fitted at Chebyshev's nodes
// over |u| <= kTruncatedEdge: relative error 5e-9.
HWY_INLINE VF TruncatedFromUnit(VF u) {
  constexpr float kCoefficients[] = {1.66821057f,      0.426641416f,    0.00576323077f,
                                     -0.00570375792f,  0.000415193716f, 0.000118709384f,
                                     -2.03964997e-05f, -1.89590592e-06f};
  constexpr float kWidth = 2.4201448721792933f;  // a little more than -log(1 - kTruncatedEdge^2)
  const DF d;
  const VF log = hn::Log(d, hn::NegMulAdd(u, u, hn::Set(d, 1.0f)));
  const VF t = hn::MulAdd(log, hn::Set(d, -2.0f / kWidth), hn::Set(d, -1.0f));
  VF sum = hn::Set(d, kCoefficients[7]);
  for (int i = 6; i >= 0; --i) sum = hn::MulAdd(sum, t, hn::Set(d, kCoefficients[i]));
  return hn::Mul(u, sum);
}

void Truncated(const BlockRange& range, const Scaling& scaling, float* out) {
  ForBlocks(range, out, [&](const V* w, float* to) HWY_ATTR {
    const DF d;
    const D du;
    const hn::RebindToSigned<D> di;
    VF values[4];
    for (int i = 0; i < 4; ++i) {
      const auto centred = hn::BitCast(di, hn::Xor(w[i], hn::Set(du, 0x80000000u)));
      const VF half = hn::Add(hn::ConvertTo(d, centred), hn::Set(d, 0.5f));
      values[i] = TruncatedFromUnit(hn::Mul(half, hn::Set(d, float(kTruncatedEdge * 0x1p-31))));
    }
    StoreScaled(values, scaling, to);
  });
}

// y = x * scale where the word is at least `threshold`, else 0.
void Drop(const uint32_t* words, uint32_t threshold, float scale, const float* x, float* y,
          int64_t count) {
  const D d;
  const DF df;
  const auto lanes = int64_t(hn::Lanes(d));
  const V limit = hn::Set(d, threshold);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto keep = hn::RebindMask(df, hn::Not(hn::Lt(hn::LoadU(d, words + i), limit)));
    const VF scaled = hn::Mul(hn::LoadU(df, x + i), hn::Set(df, scale));
    hn::StoreU(hn::IfThenElseZero(keep, scaled), df, y + i);
  }
  for (; i < count; ++i) y[i] = words[i] >= threshold ? x[i] * scale : 0;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {
namespace {

HWY_EXPORT(StoreWords);
HWY_EXPORT(Uniform);
HWY_EXPORT(Normal);
HWY_EXPORT(Truncated);
HWY_EXPORT(Drop);

constexpr int64_t kBlocksPerCore = 1024;

using FillFunction = void (*)(const BlockRange&, const Scaling&, float*);

// Fills `output` with numbers by `fill`, which makes whole blocks of four.
void FillBlocks(const Team& team, const RandomStream& stream, const Scaling& scaling,
                FillFunction fill, Tensor& output) {
  float* const data = output.data<float>();
  const int64_t elements = output.elements();
  team.ParallelFor(DivideRoundUp(elements, 4), kBlocksPerCore, [&](int64_t begin, int64_t end) {
    const int64_t whole = std::min(end, elements / 4);
    fill({stream.key(), stream.step(), uint64_t(begin), whole - begin}, scaling, data + 4 * begin);
    if (whole == end) return;
    float last[4];
    fill({stream.key(), stream.step(), uint64_t(whole), 1}, scaling, last);
    std::memcpy(data + 4 * whole, last, size_t(elements - 4 * whole) * sizeof(float));
  });
}

absl::Status RandomUniform(KernelContext& context, const DynamicKernel& kernel) {
  TUTTI_ASSIGN_OR_RETURN(const RandomStream stream, StartRandom(context, kernel));
  if (context.output(0).dtype() != kFloat32) {
    RandomUniformRef(context, stream);
    return absl::OkStatus();
  }
  const double lo = context.node->attr<double>("lo");
  const double hi = context.node->attr<double>("hi");
  const float below = std::nextafter(float(hi), -std::numeric_limits<float>::infinity());
  FillBlocks(context.team(), stream,
             {float(lo), float(hi - lo), double(float(hi)) < hi ? float(hi) : below},
             HWY_DYNAMIC_DISPATCH(Uniform), context.output(0));
  return absl::OkStatus();
}

absl::Status FillNormal(KernelContext& context, const DynamicKernel& kernel, FillFunction fill,
                        void (*reference)(KernelContext&, const RandomStream&)) {
  TUTTI_ASSIGN_OR_RETURN(const RandomStream stream, StartRandom(context, kernel));
  if (context.output(0).dtype() != kFloat32) {
    reference(context, stream);
    return absl::OkStatus();
  }
  const Scaling scaling{float(context.node->attr<double>("mean")),
                        float(context.node->attr<double>("stddev")),
                        std::numeric_limits<float>::infinity()};
  FillBlocks(context.team(), stream, scaling, fill, context.output(0));
  return absl::OkStatus();
}

absl::Status RandomNormal(KernelContext& context, const DynamicKernel& kernel) {
  return FillNormal(context, kernel, HWY_DYNAMIC_DISPATCH(Normal), RandomNormalRef);
}

absl::Status TruncatedNormal(KernelContext& context, const DynamicKernel& kernel) {
  return FillNormal(context, kernel, HWY_DYNAMIC_DISPATCH(Truncated), TruncatedNormalRef);
}

absl::Status Dropout(KernelContext& context) {
  const Tensor& x = context.input(0);
  const DropoutPlan plan = PlanDropout(context);
  const float* const from = x.data<float>();
  float* const to = context.output(0).data<float>();
  context.team().ParallelFor(x.elements(), 4 * kBlocksPerCore, [&](int64_t begin, int64_t end) {
    constexpr int64_t kWords = 1024;
    HWY_ALIGN uint32_t words[kWords + 4];
    for (int64_t i = begin; i < end; i += kWords) {
      const int64_t count = std::min(kWords, end - i);
      // The first element may stand within a block.
      const uint64_t first = plan.offset + uint64_t(i);
      const auto skip = int64_t(first % 4);
      HWY_DYNAMIC_DISPATCH(StoreWords)
      ({plan.stream.key(), plan.stream.step(), first / 4, DivideRoundUp(skip + count, 4)}, words);
      HWY_DYNAMIC_DISPATCH(Drop)
      (words + skip, plan.threshold, float(plan.scale), from + i, to + i, count);
    }
  });
  return absl::OkStatus();
}

}  // namespace

void RegisterRandomCpuKernels(KernelRegistry& registry) {
  AddDynamicKernel(registry, "RandomUniform", "cpu", RandomUniform);
  AddDynamicKernel(registry, "RandomNormal", "cpu", RandomNormal);
  AddDynamicKernel(registry, "TruncatedNormal", "cpu", TruncatedNormal);
  AddDynamicKernel(registry, "Dropout", "cpu",
                   [](KernelContext& context, const DynamicKernel& kernel) -> absl::Status {
                     TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, context.input(0).shape()));
                     return Dropout(context);
                   },
                   {kFloat32}, {{0, 0}});
}

}  // namespace tutti
#endif
