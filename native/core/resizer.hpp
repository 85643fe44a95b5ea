// Frames resized in one pass, bilinearly, and converted to three colors on the way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/resample.hpp"

namespace pipeline {

// Which pixels of a frame are taken, and how large they become.
struct Area {
    std::size_t top = 0;
    std::size_t left = 0;
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t height = 0;
    std::size_t width = 0;
};

// Rows of 8-bit values, `stride` bytes apart.
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

// A frame in its buffer: one row for each row of pixels; of I420, the planes below one another.
struct Frame {
    Source pixels;
    std::size_t rows = 0;
    std::size_t columns = 0;
};

// Resizes a part of frames of one format to images of one size, in three colors. `resize` changes nothing
// of it, so several threads may call it; each allocates for its first image of a size.
class Resizer {
public:
    explicit Resizer(const Area& area) : area_(area) {}
    Resizer(const Resizer&) = delete;
    Resizer& operator=(const Resizer&) = delete;
    virtual ~Resizer() = default;

    [[nodiscard]] const Area& area() const noexcept { return area_; }
    [[nodiscard]] bool within(const Frame& frame) const noexcept {
        return frame.rows >= area_.top && frame.rows - area_.top >= area_.rows &&
               frame.columns >= area_.left && frame.columns - area_.left >= area_.columns;
    }
    // `frame` holds the area; `into` has rows for its height, of its width.
    virtual void resize(const Frame& frame, Target into) const = 0;

private:
    Area area_;
};

// BGR frames to BGR, or to RGB with `swap`.
class BgrResizer final : public Resizer {
public:
    BgrResizer(const Area& area, bool swap);

    void resize(const Frame& frame, Target into) const override;

private:
    Resampler resampler_;
    bool swap_;
};

// I420 frames, whose planes follow one another without gaps. Each plane is resampled by itself, a row at
// a time, so only as many pixels as the image has are converted, while they are in the cache.
class PlanesResizer final : public Resizer {
public:
    // `weights` has a row for each color: what Y, U and V count in it, each less than 4; Y
    // counts alike in all. Y has no brightness at 0 where `full_range`, else at 16; U and V no color
    // at 128. Error(config) when the area begins or ends at an odd pixel or a weight is too large.
    PlanesResizer(const Area& area, const std::array<std::array<float, 3>, 3>& weights, bool full_range);

    void resize(const Frame& frame, Target into) const override;

private:
    Resampler luma_;
    Resampler chroma_;
    std::array<std::int16_t, 9> weights_{};
    int black_;
};

}  // namespace pipeline
