// Bilinear resampling of 8-bit rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pipeline {

// One row of the result at a time, placed as OpenCV's INTER_LINEAR
// places it: pixels are squares, taken at their centres, and the edge repeats.
class Resampler {
public:
    // From `rows` x `columns` pixels to `height` x `width`, of `channels` values each, 1 or 3.
    // Error(config) when a side is 0 or channels is another number.
    Resampler(std::size_t rows, std::size_t columns, std::size_t height, std::size_t width,
              std::size_t channels);

    // What one thread works with; used again for one image after the other.
    struct Scratch {
        std::vector<std::uint8_t> upper;
        std::vector<std::uint8_t> lower;
        std::vector<std::uint8_t> left;  // with one channel, both neighbours of each value
        std::vector<std::uint8_t> right;
    };
    // Makes it large enough for `row`, which it mostly is already.
    void fit(Scratch& scratch) const;

    // Writes row `y` of the result, width * channels values, to `out`. `source` is the first row of
    // the source, whose rows are `stride` bytes apart.
    void row(const std::uint8_t* source, std::ptrdiff_t stride, std::size_t y, std::uint8_t* out,
             Scratch& scratch) const;

private:
    struct Tap {
        std::size_t first = 0;
        std::uint16_t weight = 0;  // of the one after it, in 256ths
    };

    static Tap tap(std::size_t at, std::size_t from, std::size_t to);
    void across(const std::uint8_t* row, std::uint8_t* out, Scratch& scratch) const;

    std::size_t line_;      // values of a source row
    std::size_t count_;     // values of a row of the result
    std::size_t channels_;  // values of a pixel
    std::size_t safe_ = 0;  // pixels that may be read with what lies after them
    bool same_ = true;      // each pixel is the source's at the same place
    bool adjacent_ = true;  // the neighbours of each value lie as if they had been gathered
    bool sparse_;           // most of a source row is not looked at
    std::vector<Tap> taps_;
    std::vector<std::uint32_t> offsets_;  // of each pixel's first neighbour
    std::vector<std::uint16_t> weights_;  // of the second neighbour, for each value
};

}  // namespace pipeline
