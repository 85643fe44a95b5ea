// Sizes, strides and checks of tensors, and their element types by name.
#include "core/tensor_spec.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.hpp"

namespace pipeline {

std::size_t item_size(DType dtype) noexcept {
    switch (dtype) {
        case DType::boolean:
        case DType::u8:
        case DType::i8:
            return 1;
        case DType::u16:
        case DType::i16:
        case DType::f16:
            return 2;
        case DType::u32:
        case DType::i32:
        case DType::f32:
            return 4;
        case DType::u64:
        case DType::i64:
        case DType::f64:
            return 8;
    }
    return 0;
}

std::string_view dtype_name(DType dtype) noexcept {
    switch (dtype) {
        case DType::boolean:
            return "bool";
        case DType::u8:
            return "uint8";
        case DType::i8:
            return "int8";
        case DType::u16:
            return "uint16";
        case DType::i16:
            return "int16";
        case DType::u32:
            return "uint32";
        case DType::i32:
            return "int32";
        case DType::u64:
            return "uint64";
        case DType::i64:
            return "int64";
        case DType::f16:
            return "float16";
        case DType::f32:
            return "float32";
        case DType::f64:
            return "float64";
    }
    return "";
}

std::size_t TensorSpec::byte_size() const {
    std::size_t size = item_size(dtype);
    for (const auto extent : shape) size *= static_cast<std::size_t>(extent);
    return size;
}

std::vector<std::int64_t> TensorSpec::strides() const {
    if (!explicit_strides.empty()) return explicit_strides;
    std::vector<std::int64_t> result(shape.size());
    auto stride = static_cast<std::int64_t>(item_size(dtype));
    for (std::size_t i = shape.size(); i-- > 0;) {
        // Rows are dimension 1 of a rank-4 tensor: padding sits between them.
        if (row_stride != 0 && i == 1) stride = static_cast<std::int64_t>(row_stride);
        result[i] = stride;
        stride *= shape[i];
    }
    return result;
}

std::size_t TensorSpec::span() const {
    if (!explicit_strides.empty()) {
        std::size_t size = item_size(dtype);
        for (std::size_t i = 0; i < shape.size(); ++i) {
            size += static_cast<std::size_t>(explicit_strides[i]) * static_cast<std::size_t>(shape[i] - 1);
        }
        return size;
    }
    if (row_stride == 0) return byte_size();
    return static_cast<std::size_t>(strides()[0]) * static_cast<std::size_t>(shape[0]);
}

std::size_t TensorSpec::driver_size() const { return std::max(span(), block_bytes); }

void TensorSpec::validate() const {
    const auto fail = [this](const std::string& what) {
        throw Error(Errc::config, "tensor '" + name + "': " + what);
    };
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max() / 4;
    const auto times = [&](std::size_t a, std::size_t b) {
        if (b != 0 && a > most / b) fail("its size does not fit the address space");
        return a * b;
    };
    std::size_t size = item_size(dtype);
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] <= 0) {
            fail("dimension " + std::to_string(i) + " is " + std::to_string(shape[i]) + ", not above 0");
        }
        size = times(size, static_cast<std::size_t>(shape[i]));
    }
    if (!explicit_strides.empty()) {
        if (row_stride != 0)
            fail("it has a row stride and strides of each dimension, which is once too often");
        if (explicit_strides.size() != shape.size()) {
            fail(std::to_string(explicit_strides.size()) + " strides for " + std::to_string(shape.size()) +
                 " dimensions");
        }
        for (const auto stride : explicit_strides) {
            if (stride <= 0) fail("a stride is " + std::to_string(stride) + ", not above 0");
        }
        // From the innermost dimension outwards, each step must lead behind all values before it.
        std::vector<std::pair<std::size_t, std::size_t>> steps;
        for (std::size_t i = 0; i < shape.size(); ++i) {
            if (shape[i] == 1) continue;
            steps.emplace_back(static_cast<std::size_t>(explicit_strides[i]),
                               static_cast<std::size_t>(shape[i]));
        }
        std::sort(steps.begin(), steps.end());
        std::size_t extent = item_size(dtype);
        for (const auto& [stride, count] : steps) {
            if (stride < extent) fail("a stride of " + std::to_string(stride) + " makes values overlap");
            extent += times(stride, count - 1);
        }
        return;
    }
    if (row_stride == 0) return;
    if (shape.size() != 4) fail("a row stride needs 4 dimensions, not " + std::to_string(shape.size()));
    const std::size_t row =
        static_cast<std::size_t>(shape[2]) * static_cast<std::size_t>(shape[3]) * item_size(dtype);
    if (row_stride < row) {
        fail("row stride " + std::to_string(row_stride) + " is below the row's " + std::to_string(row) +
             " bytes");
    }
    static_cast<void>(
        times(times(row_stride, static_cast<std::size_t>(shape[1])), static_cast<std::size_t>(shape[0])));
}

}  // namespace pipeline
