// The conversion from planes to colors, in 16-bit fixed point, and the two resizers.
#include "core/resizer.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "core/simd.hpp"

namespace pipeline {
namespace {

// Fixed point that 16 bits hold: values are raised by 2^7, weights by 2^13, their product is lowered by
// 2^16, which leaves four bits for rounding the sum.
constexpr int value_raise = 128;
constexpr float weight_raise = 8192.0F;
constexpr int sum_bits = 4;

std::int16_t times(std::int16_t raised, std::int16_t weight) {
    return static_cast<std::int16_t>((raised * weight) >> 16);
}

// Narrow all the way, so that as many values as fit are computed at once.
std::uint8_t lowered(std::int16_t grey, std::int16_t blue, std::int16_t red) {
    const auto sum = static_cast<std::int16_t>(grey + blue + red);
    const auto value = static_cast<std::int16_t>(sum >> sum_bits);
    return static_cast<std::uint8_t>(std::clamp<std::int16_t>(value, 0, 255));
}

PIPELINE_SIMD void swap_colors(const std::uint8_t* __restrict from, std::size_t width,
                               std::uint8_t* __restrict into) {
    for (std::size_t x = 0; x < width; ++x) {
        into[3 * x] = from[3 * x + 2];
        into[3 * x + 1] = from[3 * x + 1];
        into[3 * x + 2] = from[3 * x];
    }
}

// A line of three colors from lines of Y, U and V. `w` is all weights, color by color.
PIPELINE_SIMD void convert(const std::uint8_t* __restrict y, const std::uint8_t* __restrict u,
                           const std::uint8_t* __restrict v, const std::int16_t* __restrict w, int black,
                           std::size_t width, std::uint8_t* __restrict into) {
    const std::int16_t y0 = w[0], u0 = w[1], v0 = w[2];
    const std::int16_t u1 = w[4], v1 = w[5], u2 = w[7], v2 = w[8];
    for (std::size_t x = 0; x < width; ++x) {
        const auto level = static_cast<std::int16_t>((y[x] - black) * value_raise);
        const auto grey = static_cast<std::int16_t>(times(level, y0) + (1 << (sum_bits - 1)));
        const auto blue = static_cast<std::int16_t>((u[x] - 128) * value_raise);
        const auto red = static_cast<std::int16_t>((v[x] - 128) * value_raise);
        into[3 * x] = lowered(grey, times(blue, u0), times(red, v0));
        into[3 * x + 1] = lowered(grey, times(blue, u1), times(red, v1));
        into[3 * x + 2] = lowered(grey, times(blue, u2), times(red, v2));
    }
}

std::int16_t raised(float weight) {
    const float value = std::round(weight * weight_raise);
    if (!(std::abs(value) <= 32767.0F)) throw Error(Errc::config, "resizer: a weight of 4 or more");
    return static_cast<std::int16_t>(value);
}

std::size_t half(std::size_t pixels) {
    if (pixels % 2 != 0) throw Error(Errc::config, "resizer: an area of I420 at an odd pixel");
    return pixels / 2;
}

struct Scratch {
    Resampler::Scratch resampling;
    std::vector<std::uint8_t> lines;

    std::uint8_t* fit_lines(std::size_t bytes) {
        if (lines.size() < bytes) lines.resize(bytes);
        return lines.data();
    }
};

Scratch& scratch() {
    thread_local Scratch of_thread;
    return of_thread;
}

}  // namespace

BgrResizer::BgrResizer(const Area& area, bool swap)
    : Resizer(area), resampler_(area.rows, area.columns, area.height, area.width, 3), swap_(swap) {}

void BgrResizer::resize(const Frame& frame, Target into) const {
    Scratch& work = scratch();
    resampler_.fit(work.resampling);
    std::uint8_t* line = work.fit_lines(area().width * 3);
    const std::uint8_t* corner = frame.pixels.row(area().top) + area().left * 3;
    for (std::size_t y = 0; y < area().height; ++y) {
        std::uint8_t* out = swap_ ? line : into.row(y);
        resampler_.row(corner, frame.pixels.stride, y, out, work.resampling);
        if (swap_) swap_colors(line, area().width, into.row(y));
    }
}

PlanesResizer::PlanesResizer(const Area& area, const std::array<std::array<float, 3>, 3>& weights,
                             bool full_range)
    : Resizer(area),
      luma_(area.rows, area.columns, area.height, area.width, 1),
      chroma_(half(area.rows), half(area.columns), area.height, area.width, 1),
      black_(full_range ? 0 : 16) {
    half(area.top);
    half(area.left);
    std::size_t at = 0;
    for (const auto& color : weights) {
        for (const float weight : color) weights_[at++] = raised(weight);
    }
}

void PlanesResizer::resize(const Frame& frame, Target into) const {
    Scratch& work = scratch();
    luma_.fit(work.resampling);
    chroma_.fit(work.resampling);
    const std::size_t width = area().width;
    std::uint8_t* y = work.fit_lines(width * 3);
    std::uint8_t* u = y + width;
    std::uint8_t* v = u + width;
    const auto stride = static_cast<std::ptrdiff_t>(frame.columns);
    const Source chroma{frame.pixels.data + frame.rows * frame.columns, stride / 2};
    const std::uint8_t* luma = frame.pixels.row(area().top) + area().left;
    const std::uint8_t* blue = chroma.row(area().top / 2) + area().left / 2;
    const std::uint8_t* red = chroma.row(frame.rows / 2 + area().top / 2) + area().left / 2;
    for (std::size_t row = 0; row < area().height; ++row) {
        luma_.row(luma, stride, row, y, work.resampling);
        chroma_.row(blue, stride / 2, row, u, work.resampling);
        chroma_.row(red, stride / 2, row, v, work.resampling);
        convert(y, u, v, weights_.data(), black_, width, into.row(row));
    }
}

}  // namespace pipeline
