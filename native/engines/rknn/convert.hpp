// From the NPU's own layout and type to what the user sees, in one pass.
#pragma once

#include <cstddef>

#include "core/tensor_spec.hpp"

namespace pipeline::rknn {

// Where value (n, c, h, w) is, counted in values:
// n * image + (c / block) * block_stride + (c % block) * channel + h * row + w * column.
struct Placement {
    std::size_t images = 1, channels = 1, rows = 1, columns = 1;
    std::size_t block = 1;
    std::size_t image = 0, block_stride = 0, channel = 0, row = 0, column = 1;

    // Values from the first to behind the last.
    [[nodiscard]] std::size_t span() const noexcept;
};

struct Conversion {
    Placement from;
    bool channels_last = false;  // order of the dense result: NHWC, else NCHW
    DType type = DType::i8;      // of the native values
    bool dequantize = false;     // to f32; else the type stays
    Quantization quantization;
};

// `native` has from.span() values, `dense` one for each (n, c, h, w). Allocates nothing.
void convert(const Conversion& conversion, const std::byte* native, std::byte* dense) noexcept;

}  // namespace pipeline::rknn
