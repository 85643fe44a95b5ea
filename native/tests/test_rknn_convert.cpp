// From NPU layouts to what the user sees, against the definition.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "check.hpp"
#include "engines/rknn/convert.hpp"

namespace {

using namespace pipeline;

template <class T>
void check_conversion(rknn::Conversion conversion, DType type) {
    conversion.type = type;
    conversion.quantization = {0.25F, 7};
    const rknn::Placement& p = conversion.from;
    std::vector<T> native(p.span());
    for (std::size_t i = 0; i < native.size(); ++i) native[i] = static_cast<T>(i * 37 + i / 251);
    const std::size_t count = p.images * p.channels * p.rows * p.columns;
    std::vector<std::byte> dense(count * (conversion.dequantize ? sizeof(float) : sizeof(T)));
    rknn::convert(conversion, reinterpret_cast<const std::byte*>(native.data()), dense.data());
    for (std::size_t i = 0; i < count; ++i) {
        const bool last = conversion.channels_last;
        const std::size_t c = last ? i % p.channels : i / p.columns / p.rows % p.channels;
        const std::size_t w = last ? i / p.channels % p.columns : i % p.columns;
        const std::size_t h = last ? i / p.channels / p.columns % p.rows : i / p.columns % p.rows;
        const std::size_t n = i / p.channels / p.columns / p.rows;
        const T value = native[n * p.image + c / p.block * p.block_stride + c % p.block * p.channel +
                               h * p.row + w * p.column];
        if (conversion.dequantize) {
            float real = 0;
            std::memcpy(&real, dense.data() + i * sizeof real, sizeof real);
            CHECK(real == (static_cast<float>(value) - 7.0F) * 0.25F);
        } else {
            CHECK(std::memcmp(&value, dense.data() + i * sizeof value, sizeof value) == 0);
        }
    }
}

void conversions_are_exact() {
    for (const std::size_t channels : {1, 3, 16, 17, 40}) {
        for (const std::size_t columns : {1, 15, 16, 33}) {
            const std::size_t rows = 3;
            const std::size_t row = columns + 2;
            const std::size_t blocks = (channels + 15) / 16;
            const rknn::Placement placements[] = {
                // NC1HWC2 of 16, NHWC and NCHW, with padded rows
                {2, channels, rows, columns, 16, blocks * rows * row * 16, rows * row * 16, 1, row * 16, 16},
                {2, channels, rows, columns, channels, rows * row * channels, 0, 1, row * channels, channels},
                {2, channels, rows, columns, channels, channels * rows * row, 0, rows * row, row, 1}};
            for (const auto& placement : placements) {
                for (const bool last : {true, false}) {
                    check_conversion<std::int8_t>({placement, last, DType::i8, true, {}}, DType::i8);
                    check_conversion<std::uint8_t>({placement, last, DType::u8, true, {}}, DType::u8);
                    check_conversion<std::int8_t>({placement, last, DType::i8, false, {}}, DType::i8);
                    check_conversion<std::int16_t>({placement, last, DType::i16, true, {}}, DType::i16);
                    check_conversion<std::uint16_t>({placement, last, DType::f16, false, {}}, DType::f16);
                    check_conversion<std::uint32_t>({placement, last, DType::f32, false, {}}, DType::f32);
                }
            }
        }
    }
}

}  // namespace

int main() { conversions_are_exact(); }
