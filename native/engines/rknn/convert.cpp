// The loops from the NPU's blocked layouts and types to dense rows.
#include "engines/rknn/convert.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace pipeline::rknn {
namespace {

struct Dequantize {
    using Out = float;
    float scale;
    float zero_point;
    template <class In>
    [[nodiscard]] float operator()(In value) const noexcept {
        return (static_cast<float>(value) - zero_point) * scale;
    }
};

template <class T>
struct Keep {
    using Out = T;
    [[nodiscard]] T operator()(T value) const noexcept { return value; }
};

constexpr std::size_t tile = 16;
using Lanes [[gnu::vector_size(tile)]] = std::uint8_t;

Lanes zip_low(Lanes a, Lanes b) noexcept {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
Lanes zip_high(Lanes a, Lanes b) noexcept {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

// 16 pixels of 16 one-byte channels to 16 channels of 16 pixels: four rounds of interleaving.
void transpose_bytes(const std::byte* pixels, std::size_t column, std::byte* channels) noexcept {
    Lanes lanes[tile];
    for (std::size_t i = 0; i < tile; ++i) std::memcpy(&lanes[i], pixels + i * column, tile);
    for (int round = 0; round < 4; ++round) {
        Lanes next[tile];
        for (std::size_t i = 0; i < tile / 2; ++i) {
            next[2 * i] = zip_low(lanes[i], lanes[i + tile / 2]);
            next[2 * i + 1] = zip_high(lanes[i], lanes[i + tile / 2]);
        }
        std::copy_n(next, tile, lanes);
    }
    std::memcpy(channels, lanes, sizeof lanes);
}

template <class In, class Op>
void convert_run(const In* from, std::size_t count, typename Op::Out* to, Op op) noexcept {
    for (std::size_t i = 0; i < count; ++i) to[i] = op(from[i]);
}

// One row of up to 16 channels that lie together, to a row of each channel, `plane` apart.
// `loadable`: of the 16 values at each pixel all are memory of ours.
template <class In, class Op>
void split_row(const In* from, const Placement& p, std::size_t channels, bool loadable, typename Op::Out* to,
               std::size_t plane, Op op) noexcept {
    for (std::size_t done = 0; done < p.columns;) {
        // The last tile overlaps the one before it, rather than to reach over the row's end.
        const std::size_t width = std::min(tile, p.columns);
        const std::size_t at = std::min(done, p.columns - width);
        In part[tile][tile];
        if constexpr (sizeof(In) == 1) {
            if (width == tile && loadable) {
                transpose_bytes(reinterpret_cast<const std::byte*>(from + at * p.column), p.column,
                                reinterpret_cast<std::byte*>(part));
                for (std::size_t c = 0; c < channels; ++c)
                    convert_run(part[c], tile, to + c * plane + at, op);
                done = at + width;
                continue;
            }
        }
        for (std::size_t w = 0; w < width; ++w) {
            for (std::size_t c = 0; c < channels; ++c) part[c][w] = from[(at + w) * p.column + c];
        }
        for (std::size_t c = 0; c < channels; ++c) convert_run(part[c], width, to + c * plane + at, op);
        done = at + width;
    }
}

template <class In, class Op>
void split_channels(const Placement& p, const In* from, typename Op::Out* to, Op op) noexcept {
    const std::size_t plane = p.rows * p.columns;
    for (std::size_t n = 0; n < p.images; ++n) {
        for (std::size_t c = 0; c < p.channels;) {
            const std::size_t in_block = c % p.block;
            const std::size_t count = std::min({tile, p.block - in_block, p.channels - c});
            const bool loadable = p.block - in_block >= tile;
            for (std::size_t h = 0; h < p.rows; ++h) {
                split_row(from + n * p.image + c / p.block * p.block_stride + in_block + h * p.row, p, count,
                          loadable, to + (n * p.channels + c) * plane + h * p.columns, plane, op);
            }
            c += count;
        }
    }
}

template <class In, class Op>
void gather(const Placement& p, bool channels_last, const In* from, typename Op::Out* to, Op op) noexcept {
    for (std::size_t n = 0; n < p.images; ++n) {
        for (std::size_t c = 0; c < p.channels; ++c) {
            const In* plane = from + n * p.image + c / p.block * p.block_stride + c % p.block * p.channel;
            for (std::size_t h = 0; h < p.rows; ++h) {
                for (std::size_t w = 0; w < p.columns; ++w) {
                    const std::size_t at = channels_last
                                               ? ((n * p.rows + h) * p.columns + w) * p.channels + c
                                               : ((n * p.channels + c) * p.rows + h) * p.columns + w;
                    to[at] = op(plane[h * p.row + w * p.column]);
                }
            }
        }
    }
}

template <class In, class Op>
void convert_as(const Conversion& conversion, const std::byte* native, std::byte* dense, Op op) noexcept {
    const Placement& p = conversion.from;
    const auto* from = reinterpret_cast<const In*>(native);
    auto* to = reinterpret_cast<typename Op::Out*>(dense);
    const bool together = p.channels <= p.block && p.channel == 1 && p.column == p.channels;
    if (conversion.channels_last && together) {
        const std::size_t width = p.columns * p.channels;
        for (std::size_t i = 0; i < p.images * p.rows; ++i) {
            convert_run(from + i / p.rows * p.image + i % p.rows * p.row, width, to + i * width, op);
        }
    } else if (!conversion.channels_last && p.column == 1 && p.channels <= p.block) {
        for (std::size_t i = 0; i < p.images * p.channels * p.rows; ++i) {
            const std::size_t plane = i / p.rows;
            convert_run(
                from + plane / p.channels * p.image + plane % p.channels * p.channel + i % p.rows * p.row,
                p.columns, to + i * p.columns, op);
        }
    } else if (!conversion.channels_last && p.channel == 1) {
        split_channels(p, from, to, op);
    } else {
        gather(p, conversion.channels_last, from, to, op);
    }
}

template <class In>
void convert_from(const Conversion& conversion, const std::byte* native, std::byte* dense) noexcept {
    const auto& [scale, zero_point] = conversion.quantization;
    if (conversion.dequantize) {
        convert_as<In>(conversion, native, dense, Dequantize{scale, static_cast<float>(zero_point)});
    } else {
        convert_as<In>(conversion, native, dense, Keep<In>{});
    }
}

}  // namespace

std::size_t Placement::span() const noexcept {
    // Blocks are whole in memory, the last one too.
    return 1 + (images - 1) * image + (channels - 1) / block * block_stride + (block - 1) * channel +
           (rows - 1) * row + (columns - 1) * column;
}

void convert(const Conversion& conversion, const std::byte* native, std::byte* dense) noexcept {
    switch (conversion.type) {
        case DType::i8:
            return convert_from<std::int8_t>(conversion, native, dense);
        case DType::u8:
        case DType::boolean:
            return convert_from<std::uint8_t>(conversion, native, dense);
        case DType::i16:
            return convert_from<std::int16_t>(conversion, native, dense);
        case DType::u16:
            return convert_from<std::uint16_t>(conversion, native, dense);
        case DType::f16:  // two bytes like any
            return convert_as<std::uint16_t>(conversion, native, dense, Keep<std::uint16_t>{});
        case DType::i32:
            return convert_from<std::int32_t>(conversion, native, dense);
        case DType::u32:
        case DType::f32:
            return convert_as<std::uint32_t>(conversion, native, dense, Keep<std::uint32_t>{});
        case DType::u64:
        case DType::i64:
        case DType::f64:
            return convert_as<std::uint64_t>(conversion, native, dense, Keep<std::uint64_t>{});
    }
}

}  // namespace pipeline::rknn
