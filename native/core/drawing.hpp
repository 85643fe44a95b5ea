#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/resample.hpp"

namespace pipeline {

// Which pixels of a frame are drawn, and how large.
struct Area {
    std::size_t top = 0;
    std::size_t left = 0;
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t height = 0;
    std::size_t width = 0;
};

// A picture of 8-bit values; rows are `stride` bytes apart.
template <class Byte>
struct Rows {
    Byte* data = nullptr;
    std::ptrdiff_t stride = 0;

    [[nodiscard]] Byte* row(std::size_t index) const {
        return data + static_cast<std::ptrdiff_t>(index) * stride;
    }
};
using Source = Rows<const std::uint8_t>;
using Target = Rows<std::uint8_t>;

// Draws BGR frames as BGR, or as RGB with `swap`.
class BgrDrawer {
public:
    BgrDrawer(const Area& area, bool swap);

    void draw(Source frame, Target into);

private:
    Area area_;
    Resampler resampler_;
    std::vector<std::uint8_t> line_;  // before its colours are swapped
};

// Draws I420 frames in three colours. Each plane is resampled by itself, a row at a time, so only as
// many pixels as are drawn are converted, while they are in the cache.
class PlanesDrawer {
public:
    // `weights` has a row for each colour drawn: what Y, U and V count in it, each less than 4; Y
    // counts alike in all. Y has no brightness at 0 where `full_range`, else at 16; U and V no colour
    // at 128. Error(config) when the area begins or ends at an odd pixel or a weight is too large.
    PlanesDrawer(const Area& area, const std::array<std::array<float, 3>, 3>& weights, bool full_range);

    void draw(Source y, Source u, Source v, Target into);

private:
    Area area_;
    Resampler luma_;
    Resampler chroma_;
    std::array<std::int16_t, 9> weights_{};
    int black_;
    std::vector<std::uint8_t> lines_;  // of Y, U and V
};

}  // namespace pipeline
