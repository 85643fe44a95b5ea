// Layouts of a model's tensors and the attributes that tell them.
#include "model.hpp"

#include <algorithm>
#include <cmath>

namespace standin {

namespace {

namespace type = rknn::tensor_type;
namespace format = rknn::tensor_format;

std::size_t align(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

void set_dims(rknn::TensorAttr& attr, const std::vector<std::size_t>& dims) {
    attr.n_dims = static_cast<std::uint32_t>(dims.size());
    for (std::size_t i = 0; i < dims.size(); ++i) attr.dims[i] = static_cast<std::uint32_t>(dims[i]);
}

// What does not depend on the layout.
rknn::TensorAttr blank_attr(const Tensor& tensor, std::size_t shape) {
    rknn::TensorAttr attr{};
    attr.index = tensor.index;
    std::copy(tensor.name.begin(), tensor.name.end(), attr.name);
    attr.type = tensor.type;
    attr.qnt_type = tensor.qnt;
    attr.fl = tensor.fl;
    attr.zp = tensor.qnt == rknn::quantisation::affine ? tensor.zp : 0;
    attr.scale = tensor.qnt == rknn::quantisation::affine ? tensor.scale : 1.0F;
    attr.n_elems = static_cast<std::uint32_t>(tensor.extent(shape).elements());
    return attr;
}

// `layout` as an attribute tells it.
rknn::TensorAttr told(const Tensor& tensor, std::size_t shape, const Layout& layout) {
    auto attr = blank_attr(tensor, shape);
    const auto& e = layout.extent;
    attr.fmt = layout.fmt;
    attr.type = layout.type;
    if (layout.fmt == format::nc1hwc2) {
        set_dims(attr, {e.n, layout.c1(), layout.rows, layout.columns, layout.c2});
        attr.n_elems =
            static_cast<std::uint32_t>(e.n * layout.c1() * layout.rows * layout.columns * layout.c2);
    } else if (layout.fmt == format::nhwc) {
        set_dims(attr, {e.n, e.h, e.w, e.c});
    } else if (layout.fmt == format::nchw) {
        set_dims(attr, {e.n, e.c, e.h, e.w});
    } else {
        const auto& dims = tensor.shapes[shape];
        set_dims(attr, {dims.begin(), dims.end()});
    }
    attr.size = static_cast<std::uint32_t>(attr.n_elems * element_size(layout.type));
    // Rows without padding are told as the vendor does for inputs (their width) and outputs (0).
    const bool strided = layout.fmt == format::nhwc || layout.fmt == format::nchw;
    if (strided && (tensor.is_input || layout.columns != e.w)) {
        attr.w_stride = static_cast<std::uint32_t>(layout.columns);
    }
    attr.size_with_stride = static_cast<std::uint32_t>(layout.bytes);
    return attr;
}

}  // namespace

std::size_t element_size(std::int32_t element) noexcept {
    switch (element) {
        case type::int8:
        case type::uint8:
            return 1;
        case type::float16:
            return 2;
        case type::float32:
            return 4;
        default:
            return 0;
    }
}

std::size_t Layout::step() const noexcept {
    if (fmt == format::nc1hwc2) return c2;
    return fmt == format::nhwc ? extent.c : 1;
}

std::size_t Layout::row(std::size_t n, std::size_t c, std::size_t h) const noexcept {
    if (fmt == format::nc1hwc2) return ((n * c1() + c / c2) * rows + h) * columns * c2 + c % c2;
    if (fmt == format::nhwc) return (n * rows + h) * columns * extent.c + c;
    return ((n * extent.c + c) * rows + h) * columns;
}

std::size_t Layout::dense() const noexcept {
    const std::size_t channels = fmt == format::nc1hwc2 ? c1() * c2 : extent.c;
    return extent.n * channels * rows * columns * element_size(type);
}

double Tensor::step() const noexcept {
    return qnt == rknn::quantisation::dfp ? std::ldexp(1.0, -fl) : static_cast<double>(scale);
}

Extent Tensor::extent(std::size_t shape) const {
    const auto& dims = shapes[shape];
    if (dims.size() == 4) return {dims[0], dims[1], dims[2], dims[3]};
    Extent result{dims[0], 1, 1, 1};
    for (std::size_t i = 1; i < dims.size(); ++i) result.c *= dims[i];
    return result;
}

bool Tensor::is_image(std::size_t shape) const {
    const auto& dims = shapes[shape];
    return dims.size() == 4 && (dims[1] == 1 || dims[1] == 3 || dims[1] == 4);
}

Layout Tensor::layout(std::size_t shape) const {
    auto result = layout(shape, native, type);
    result.bytes = result.dense() + extra;
    // Buffers of tensors that are not 4-D are whole units of the device's.
    if (native == format::undefined) result.bytes = align(result.bytes, 16);
    return result;
}

Layout Tensor::layout(std::size_t shape, std::int32_t fmt, std::int32_t element) const {
    Layout result;
    result.fmt = fmt;
    result.type = element;
    result.extent = extent(shape);
    result.rows = result.extent.h;
    result.columns = result.extent.w;
    // Other layouts than the native one are dense, but for an image's rows.
    const bool padded = fmt == native || (is_input && is_image(shape) && fmt == format::nhwc);
    if (padded && fmt != format::undefined) {
        result.columns = align(result.columns, w_align);
        result.rows = fmt == format::nc1hwc2 ? align(result.rows, h_align) : result.rows;
    }
    if (fmt == format::nc1hwc2) result.c2 = c2;
    result.bytes = result.dense();
    return result;
}

rknn::TensorAttr Tensor::attr(std::size_t shape) const {
    if (shapes[shape].size() != 4) return told(*this, shape, layout(shape));
    auto result = told(*this, shape, layout(shape, is_input ? format::nhwc : format::nchw, type));
    if (!is_input) {
        result.w_stride = 0;
        result.size_with_stride = static_cast<std::uint32_t>(layout(shape).bytes);
    }
    return result;
}

rknn::TensorAttr Tensor::native_attr(std::size_t shape) const { return told(*this, shape, layout(shape)); }

rknn::TensorAttr Tensor::nhwc_attr(std::size_t shape) const {
    if (shapes[shape].size() != 4 || native == format::nhwc) return native_attr(shape);
    return told(*this, shape, layout(shape, format::nhwc, type));
}

std::size_t Model::weight_bytes() const {
    std::size_t bytes = 0;
    for (const auto& w : weights) bytes += w.factors.size() + w.bias.size() * sizeof w.bias[0];
    return bytes;
}

std::size_t Model::internal_bytes() const {
    std::size_t bytes = 0;
    for (std::size_t shape = 0; shape < shapes(); ++shape) {
        std::size_t needed = 0;
        for (const auto& tensor : inputs) needed += tensor.extent(shape).elements() * sizeof(std::int16_t);
        bytes = std::max(bytes, needed);
    }
    return bytes;
}

}  // namespace standin
