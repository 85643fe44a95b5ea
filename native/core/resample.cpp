// The loops of the bilinear resampler, written so that the compiler makes them wide.
#include "core/resample.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "core/error.hpp"
#include "core/simd.hpp"

namespace pipeline {
namespace {

// From so many source pixels for each one of the result, blending only those that count is faster.
constexpr std::size_t sparse_from = 8;

// Halves go up across and down between rows, so that rounding twice makes nothing brighter.
constexpr std::uint16_t half_up = 128;
constexpr std::uint16_t half_down = 127;

std::uint8_t mix(std::uint8_t first, std::uint8_t second, std::uint16_t weight, std::uint16_t half) {
    const auto other = static_cast<std::uint16_t>(256 - weight);
    return static_cast<std::uint8_t>(static_cast<std::uint16_t>(first * other + second * weight + half) >> 8);
}

PIPELINE_SIMD void mix_rows(const std::uint8_t* __restrict first, const std::uint8_t* __restrict second,
                            std::uint16_t weight, std::size_t count, std::uint8_t* __restrict out) {
    for (std::size_t i = 0; i < count; ++i) out[i] = mix(first[i], second[i], weight, half_down);
}

PIPELINE_SIMD void mix_pairs(const std::uint8_t* __restrict pairs, const std::uint16_t* __restrict weights,
                             std::size_t count, std::uint8_t* __restrict out) {
    for (std::size_t i = 0; i < count; ++i) out[i] = mix(pairs[2 * i], pairs[2 * i + 1], weights[i], half_up);
}

PIPELINE_SIMD void mix_values(const std::uint8_t* __restrict left, const std::uint8_t* __restrict right,
                              const std::uint16_t* __restrict weights, std::size_t count,
                              std::uint8_t* __restrict out) {
    for (std::size_t i = 0; i < count; ++i) out[i] = mix(left[i], right[i], weights[i], half_up);
}

void gather_values(const std::uint8_t* __restrict row, const std::uint32_t* __restrict offsets,
                   std::size_t width, std::uint8_t* __restrict pairs) {
    for (std::size_t x = 0; x < width; ++x) std::memcpy(pairs + 2 * x, row + offsets[x], 2);
}

// Pixels of three values move as four: the fourth is overwritten by the next one.
void gather_pixels(const std::uint8_t* __restrict row, const std::uint32_t* __restrict offsets,
                   std::size_t width, std::uint8_t* __restrict left, std::uint8_t* __restrict right) {
    for (std::size_t x = 0; x < width; ++x) {
        std::memcpy(left + 3 * x, row + offsets[x], 4);
        std::memcpy(right + 3 * x, row + offsets[x] + 3, 4);
    }
}

}  // namespace

Resampler::Tap Resampler::tap(std::size_t at, std::size_t from, std::size_t to) {
    const double scale = static_cast<double>(from) / static_cast<double>(to);
    const double place =
        std::clamp((static_cast<double>(at) + 0.5) * scale - 0.5, 0.0, static_cast<double>(from - 1));
    Tap result;
    // The last pixel as the second of two, so that there always is a second one.
    result.first = std::min(static_cast<std::size_t>(place), from < 2 ? 0 : from - 2);
    result.weight =
        static_cast<std::uint16_t>(std::lround((place - static_cast<double>(result.first)) * 256.0));
    return result;
}

Resampler::Resampler(std::size_t rows, std::size_t columns, std::size_t height, std::size_t width,
                     std::size_t channels)
    : line_(columns * channels),
      count_(width * channels),
      channels_(channels),
      sparse_(columns >= sparse_from * width) {
    if (rows == 0 || columns == 0 || height == 0 || width == 0) {
        throw Error(Errc::config, "resampling: a side of 0 pixels");
    }
    if (channels != 1 && channels != 3) {
        throw Error(Errc::config,
                    "resampling: 1 or 3 channels needed, " + std::to_string(channels) + " given");
    }
    for (std::size_t y = 0; y < height; ++y) taps_.push_back(tap(y, rows, height));
    const std::size_t reach = channels == 1 ? 2 : 7;
    for (std::size_t x = 0; x < width; ++x) {
        const Tap found = tap(x, columns, width);
        const std::size_t offset = found.first * channels;
        offsets_.push_back(static_cast<std::uint32_t>(offset));
        weights_.insert(weights_.end(), channels, found.weight);
        if (offset + reach <= line_) safe_ = x + 1;
        adjacent_ = adjacent_ && channels == 1 && found.first == 2 * x;
    }
    same_ = columns == width;
    adjacent_ = adjacent_ && safe_ == width;
}

void Resampler::fit(Scratch& scratch) const {
    const auto reach = [](std::vector<std::uint8_t>& bytes, std::size_t needed) {
        if (bytes.size() < needed) bytes.resize(needed);
    };
    reach(scratch.upper, std::max(line_, count_));
    reach(scratch.lower, count_);
    reach(scratch.left, 2 * count_ + 1);
    reach(scratch.right, count_ + 1);
}

void Resampler::row(const std::uint8_t* source, std::ptrdiff_t stride, std::size_t y, std::uint8_t* out,
                    Scratch& scratch) const {
    const Tap& at = taps_[y];
    const std::uint8_t* first = source + static_cast<std::ptrdiff_t>(at.first) * stride;
    if (at.weight == 0) return across(first, out, scratch);
    const std::uint8_t* second = first + stride;
    if (at.weight == 256) return across(second, out, scratch);
    if (sparse_) {
        across(first, scratch.upper.data(), scratch);
        across(second, scratch.lower.data(), scratch);
        mix_rows(scratch.upper.data(), scratch.lower.data(), at.weight, count_, out);
    } else if (same_) {
        mix_rows(first, second, at.weight, count_, out);
    } else {
        mix_rows(first, second, at.weight, line_, scratch.upper.data());
        across(scratch.upper.data(), out, scratch);
    }
}

void Resampler::across(const std::uint8_t* row, std::uint8_t* out, Scratch& scratch) const {
    if (same_) {
        std::memcpy(out, row, count_);
        return;
    }
    const std::size_t safe = safe_ * channels_;
    if (adjacent_) {
        mix_pairs(row, weights_.data(), count_, out);
    } else if (channels_ == 1) {
        gather_values(row, offsets_.data(), safe_, scratch.left.data());
        mix_pairs(scratch.left.data(), weights_.data(), safe, out);
    } else {
        gather_pixels(row, offsets_.data(), safe_, scratch.left.data(), scratch.right.data());
        mix_values(scratch.left.data(), scratch.right.data(), weights_.data(), safe, out);
    }
    for (std::size_t i = safe; i < count_; ++i) {
        const std::size_t left = offsets_[i / channels_] + i % channels_;
        const std::size_t right = std::min(left + channels_, line_ - channels_ + i % channels_);
        out[i] = mix(row[left], row[right], weights_[i], half_up);
    }
}

}  // namespace pipeline
