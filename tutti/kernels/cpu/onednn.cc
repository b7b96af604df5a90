#include "tutti/kernels/cpu/onednn.h"

#include <string_view>

namespace tutti::onednn {

using dnnl::memory;

dnnl::engine& Engine() {
  static dnnl::engine* const engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

dnnl::stream& Stream() {
  static dnnl::stream* const stream = new dnnl::stream(Engine());
  return *stream;
}

dnnl::primitive_attr Attr() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

namespace {

memory::dims ImageDims(const Shape& nhwc) {
  return {nhwc.dim(0), nhwc.dim(3), nhwc.dim(1), nhwc.dim(2)};
}

memory::desc Tagged(const memory::dims& dims, memory::format_tag tag) {
  return memory::desc(dims, memory::data_type::f32, tag);
}

}  // namespace

memory::desc ImageDesc(const Shape& nhwc, const Layout& layout) {
  const memory::dims dims = ImageDims(nhwc);
  switch (ChannelBlock(layout)) {
    case 8:
      return Tagged(dims, memory::format_tag::nChw8c);
    case 16:
      return Tagged(dims, memory::format_tag::nChw16c);
    default:
      break;
  }
  return Tagged(dims, nhwc.dim(3) == 1 ? memory::format_tag::nchw : memory::format_tag::nhwc);
}

memory::desc AnyImageDesc(const Shape& nhwc) {
  return Tagged(ImageDims(nhwc), memory::format_tag::any);
}

std::optional<Layout> LayoutOf(const memory::desc& desc) {
  const memory::dims dims = desc.dims();
  if (desc == Tagged(dims, memory::format_tag::nhwc)) return Layout();
  if (dims[1] == 1 && desc == Tagged(dims, memory::format_tag::nchw)) return Layout();
  if (dims[1] % 8 == 0 && desc == Tagged(dims, memory::format_tag::nChw8c)) {
    return Layout("aDbc8d");
  }
  if (dims[1] % 16 == 0 && desc == Tagged(dims, memory::format_tag::nChw16c)) {
    return Layout("aDbc16d");
  }
  return std::nullopt;
}

int ChannelBlock(const Layout& layout) {
  if (layout.tag() == "aDbc8d") return 8;
  if (layout.tag() == "aDbc16d") return 16;
  return 0;
}

int Quality(const char* implementation) {
  const std::string_view name = implementation;
  if (name.starts_with("ref")) return 0;
  return name.find("gemm") != std::string_view::npos ? 1 : 2;
}

}  // namespace tutti::onednn
