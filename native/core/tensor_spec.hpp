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
    // Where a row stride is not enough, as for channels that lie apart: the byte stride of each dimension.
    std::vector<std::int64_t> explicit_strides = {};
    std::size_t block_bytes = 0;  // of driver memory, where the engine wants more than the strides span

    // Bytes of the values alone.
    [[nodiscard]] std::size_t byte_size() const;
    // Bytes of driver memory that the engine needs, padding included.
    [[nodiscard]] std::size_t driver_size() const;
    // Byte strides of each dimension in driver memory.
    [[nodiscard]] std::vector<std::int64_t> strides() const;
    // Throws Errc::config naming the tensor when a dimension, size or stride makes no sense.
    void validate() const;

private:
    [[nodiscard]] std::size_t span() const;  // from the first byte to behind the last value
};

// Calls copy(offset in driver memory, offset in dense memory, bytes) for each run of values that lie
// together in both.
template <typename Copy>
void for_each_run(const TensorSpec& spec, Copy copy) {
    const auto strides = spec.strides();
    std::size_t dims = spec.shape.size();  // those outside of a run
    std::size_t run = item_size(spec.dtype);
    while (dims > 0 && strides[dims - 1] == static_cast<std::int64_t>(run)) {
        run *= static_cast<std::size_t>(spec.shape[--dims]);
    }
    std::vector<std::int64_t> at(dims);
    const std::size_t bytes = spec.byte_size();
    for (std::size_t dense = 0; dense < bytes; dense += run) {
        std::int64_t driver = 0;
        for (std::size_t i = 0; i < dims; ++i) driver += at[i] * strides[i];
        copy(static_cast<std::size_t>(driver), dense, run);
        for (std::size_t i = dims; i-- > 0 && ++at[i] == spec.shape[i];) at[i] = 0;
    }
}

}  // namespace pipeline
