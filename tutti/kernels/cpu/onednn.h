#pragma once

#include <exception>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>

#include "tutti/base/status.h"
#include "tutti/device/layout.h"
#include "tutti/tensor/shape.h"

// What kernels on oneDNN share.
namespace tutti::onednn {

// One engine and one stream for the process: on the CPU both are stateless, and a primitive runs on
// the cores of the calling thread's TeamScope. Thread-safe.
dnnl::engine& Engine();
dnnl::stream& Stream();

// Primitives take their scratch memory from us, so that a step allocates nothing.
dnnl::primitive_attr Attr();

// Runs `body`, which may throw dnnl::error or std::bad_alloc.
template <typename Body>
absl::Status Guard(Body body) {
  try {
    body();
    return absl::OkStatus();
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) return ResourceExhausted("oneDNN is out of memory");
    return Internal("oneDNN: {} (status {})", error.what(), int(error.status));
  } catch (const std::exception& error) {
    return Internal("oneDNN: {}", error.what());
  }
}

// An NHWC image as oneDNN describes it: logical dimensions N, C, H, W. `layout` is row-major or one
// that LayoutOf returned. A one-channel image is called nchw: the bytes are the same, but oneDNN
// has fast code for that name only.
dnnl::memory::desc ImageDesc(const Shape& nhwc, const Layout& layout);
dnnl::memory::desc AnyImageDesc(const Shape& nhwc);

// The layout of an image that `desc` describes: row-major, or channels in blocks of 8 or 16
// ("aDbc8d"). nullopt for anything else, and for channels that do not fill their blocks.
std::optional<Layout> LayoutOf(const dnnl::memory::desc& desc);

// How many channels lie together: 8 for "aDbc8d". 0 for row-major.
int ChannelBlock(const Layout& layout);

// How good an implementation is: 0 for oneDNN's reference loops, 1 for those on top of GEMM, 2 for
// code generated for the case.
int Quality(const char* implementation);

}  // namespace tutti::onednn
