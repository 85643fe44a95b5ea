#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

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

// A frame in its buffer, as large as its picture.
struct Frame {
    Source pixels;
    std::size_t rows = 0;
    std::size_t columns = 0;
};

// Draws a part of frames of one format as pictures of one size, in three colors. Nothing of it changes
// while it draws, so several threads may; each allocates when it draws the first picture of a size.
class Drawer {
public:
    explicit Drawer(const Area& area) : area_(area) {}
    Drawer(const Drawer&) = delete;
    Drawer& operator=(const Drawer&) = delete;
    virtual ~Drawer() = default;

    [[nodiscard]] const Area& area() const noexcept { return area_; }
    [[nodiscard]] bool within(const Frame& frame) const noexcept {
        return frame.rows >= area_.top && frame.rows - area_.top >= area_.rows &&
               frame.columns >= area_.left && frame.columns - area_.left >= area_.columns;
    }
    // `frame` holds the area; `into` has rows for its height, of its width.
    virtual void draw(const Frame& frame, Target into) const = 0;

private:
    Area area_;
};

// Draws BGR frames as BGR, or as RGB with `swap`.
class BgrDrawer final : public Drawer {
public:
    BgrDrawer(const Area& area, bool swap);

    void draw(const Frame& frame, Target into) const override;

private:
    Resampler resampler_;
    bool swap_;
};

// Draws I420 frames, whose planes follow one another without gaps. Each plane is resampled by itself, a
// row at a time, so only as many pixels as are drawn are converted, while they are in the cache.
class PlanesDrawer final : public Drawer {
public:
    // `weights` has a row for each color drawn: what Y, U and V count in it, each less than 4; Y
    // counts alike in all. Y has no brightness at 0 where `full_range`, else at 16; U and V no color
    // at 128. Error(config) when the area begins or ends at an odd pixel or a weight is too large.
    PlanesDrawer(const Area& area, const std::array<std::array<float, 3>, 3>& weights, bool full_range);

    void draw(const Frame& frame, Target into) const override;

private:
    Resampler luma_;
    Resampler chroma_;
    std::array<std::int16_t, 9> weights_{};
    int black_;
};

}  // namespace pipeline
