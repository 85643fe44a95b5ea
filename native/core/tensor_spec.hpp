// What an engine reports about one input or output tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pipeline {

enum class DType { boolean, u8, i8, u16, i16, u32, i32, u64, i64, f16, f32, f64 };

[[nodiscard]] std::size_t item_size(DType dtype) noexcept;
[[nodiscard]] std::string_view dtype_name(DType dtype) noexcept;  // NumPy's spelling

// real = (quantised - zero_point) * scale
struct Quantization {
    float scale = 1.0F;
    std::int32_t zero_point = 0;
};

struct TensorSpec {
    std::string name;
    DType dtype = DType::u8;
    std::vector<std::int64_t> shape;
    std::string layout;          // "NHWC", "NCHW", ... or empty where the engine does not tell
    std::size_t row_stride = 0;  // bytes from one row (index of dimension 1 of NHWC) to the next; 0: dense
    std::optional<Quantization> quantization;

    // Bytes of the values alone.
    [[nodiscard]] std::size_t byte_size() const;
    // Bytes of driver memory that the engine needs, padding of rows included.
    [[nodiscard]] std::size_t driver_size() const;
    // Byte strides of each dimension in driver memory.
    [[nodiscard]] std::vector<std::int64_t> strides() const;
    // Throws Errc::config naming the tensor when a dimension, size or stride makes no sense.
    void validate() const;
};

}  // namespace pipeline
