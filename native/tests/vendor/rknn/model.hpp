// The stand-in's model file: tensors, their layouts in memory, and the weights of its network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engines/rknn/abi.hpp"

namespace standin {

namespace rknn = pipeline::rknn;

// Bytes of one element; 0 for a type that the stand-in does not have.
[[nodiscard]] std::size_t element_size(std::int32_t type) noexcept;

// Logical extents; tensors of other ranks than 4 have all but the first dimension in `c`.
struct Extent {
    std::size_t n = 1;
    std::size_t c = 1;
    std::size_t h = 1;
    std::size_t w = 1;
    [[nodiscard]] std::size_t elements() const noexcept { return n * c * h * w; }
};

// Where the elements of a tensor lie in memory.
struct Layout {
    std::int32_t fmt = rknn::tensor_format::nchw;
    std::int32_t type = rknn::tensor_type::int8;
    Extent extent;
    std::size_t rows = 1;     // of memory for each plane, at least extent.h
    std::size_t columns = 1;  // of memory for each row, at least extent.w
    std::size_t c2 = 1;
    std::size_t bytes = 0;  // needed for a buffer, at least `dense()`

    [[nodiscard]] std::size_t c1() const noexcept { return (extent.c + c2 - 1) / c2; }
    // Elements from one to the next of a row, and of the first of a row.
    [[nodiscard]] std::size_t step() const noexcept;
    [[nodiscard]] std::size_t row(std::size_t n, std::size_t c, std::size_t h) const noexcept;
    // Bytes that elements and padding take.
    [[nodiscard]] std::size_t dense() const noexcept;
};

struct Tensor {
    std::uint32_t index = 0;
    bool is_input = false;
    std::string name;
    std::vector<std::vector<std::uint32_t>> shapes;  // one, or those of a dynamic model; NCHW
    std::int32_t type = rknn::tensor_type::int8;
    std::int32_t qnt = rknn::quantisation::affine;
    float scale = 1.0F;
    std::int32_t zp = 0;
    std::int8_t fl = 0;
    std::vector<double> mean;  // of an input's channels
    std::vector<double> std;
    double mult = 1.0;  // of an output: from sum to real value
    std::int32_t native = rknn::tensor_format::nc1hwc2;
    std::size_t c2 = 16;
    std::size_t w_align = 1;  // pixels
    std::size_t h_align = 1;
    std::size_t extra = 0;  // bytes that a buffer must have beyond its elements

    [[nodiscard]] double step() const noexcept;  // real value of one quantum
    [[nodiscard]] Extent extent(std::size_t shape) const;
    [[nodiscard]] bool is_image(std::size_t shape) const;  // 4-D with 1, 3 or 4 channels
    // In the native layout, or in another one of the given format and type.
    [[nodiscard]] Layout layout(std::size_t shape) const;
    [[nodiscard]] Layout layout(std::size_t shape, std::int32_t fmt, std::int32_t element) const;
    // As the queries tell it: logical, native, or native NHWC.
    [[nodiscard]] rknn::TensorAttr attr(std::size_t shape) const;
    [[nodiscard]] rknn::TensorAttr native_attr(std::size_t shape) const;
    [[nodiscard]] rknn::TensorAttr nhwc_attr(std::size_t shape) const;
};

struct Weights {
    std::vector<std::int8_t> factors;  // [output channel][channels of all inputs]
    std::vector<std::int32_t> bias;
};

struct Model {
    std::uint32_t version = 0;
    std::vector<std::string> platforms;  // empty: any
    std::string custom;
    std::uint32_t run_us = 0;
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
    std::vector<Weights> weights;  // of each output

    [[nodiscard]] std::size_t shapes() const { return inputs.front().shapes.size(); }
    [[nodiscard]] bool dynamic() const { return shapes() > 1; }
    [[nodiscard]] std::size_t weight_bytes() const;
    [[nodiscard]] std::size_t internal_bytes() const;
};

// Throws std::runtime_error with the reason; `version` alone is filled before anything is judged.
[[nodiscard]] std::shared_ptr<const Model> parse_model(const void* data, std::size_t size);
// The version in the file's head, or 0 where it is no model.
[[nodiscard]] std::uint32_t model_version(const void* data, std::size_t size) noexcept;

}  // namespace standin
