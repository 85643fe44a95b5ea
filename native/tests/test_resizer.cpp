#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "check.hpp"
#include "core/resizer.hpp"

using namespace pipeline;

namespace {

using Weights = std::array<std::array<float, 3>, 3>;

constexpr Weights weights_601 = {
    {{1.164F, 0.0F, 1.596F}, {1.164F, -0.392F, -0.813F}, {1.164F, 2.017F, 0.0F}}};

// An array of just so many bytes that the sanitizers see the first one that is read too many.
std::vector<std::uint8_t> noise(std::size_t count) {
    std::mt19937 random(7);
    std::vector<std::uint8_t> bytes(count);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    return bytes;
}

// The value at (y, x) of an image of `channels`, resampled in floating point.
double sample(const std::uint8_t* data, std::ptrdiff_t stride, std::size_t channels, std::size_t rows,
              std::size_t columns, double y, double x, std::size_t channel) {
    y = std::clamp(y, 0.0, static_cast<double>(rows - 1));
    x = std::clamp(x, 0.0, static_cast<double>(columns - 1));
    const auto top = static_cast<std::size_t>(y), left = static_cast<std::size_t>(x);
    const auto bottom = std::min(top + 1, rows - 1), right = std::min(left + 1, columns - 1);
    const double down = y - static_cast<double>(top), across = x - static_cast<double>(left);
    const auto at = [&](std::size_t row, std::size_t column) {
        return static_cast<double>(data[static_cast<std::ptrdiff_t>(row) * stride +
                                        static_cast<std::ptrdiff_t>(column * channels + channel)]);
    };
    return (at(top, left) * (1 - across) + at(top, right) * across) * (1 - down) +
           (at(bottom, left) * (1 - across) + at(bottom, right) * across) * down;
}

double place(std::size_t at, std::size_t from, std::size_t to) {
    return (static_cast<double>(at) + 0.5) * static_cast<double>(from) / static_cast<double>(to) - 0.5;
}

struct Case {
    std::size_t rows, columns, height, width;
};

constexpr Case cases[] = {{48, 64, 32, 32},  {48, 64, 24, 32},   {36, 640, 20, 40}, {14, 18, 32, 40},
                          {32, 32, 32, 32},  {30, 34, 15, 17},   {2, 2, 5, 7},      {100, 60, 2, 2},
                          {48, 64, 48, 48},  {64, 48, 63, 48},   {40, 2, 20, 20},   {54, 96, 30, 32},
                          {20, 300, 20, 31}, {108, 192, 20, 10}, {2, 300, 1, 1},    {4, 4, 9, 4}};

void bgr_is_resampled_bilinearly() {
    for (const auto& [rows, columns, height, width] : cases) {
        const auto frame = noise(rows * columns * 3);
        const auto stride = static_cast<std::ptrdiff_t>(columns * 3);
        std::vector<std::uint8_t> plain(height * width * 3), swapped(plain.size());
        const Area area{0, 0, rows, columns, height, width};
        BgrResizer(area, false)
            .resize({frame.data(), stride}, {plain.data(), static_cast<std::ptrdiff_t>(width * 3)});
        BgrResizer(area, true)
            .resize({frame.data(), stride}, {swapped.data(), static_cast<std::ptrdiff_t>(width * 3)});
        for (std::size_t i = 0; i < plain.size(); ++i) {
            const std::size_t y = i / 3 / width, x = i / 3 % width, channel = i % 3;
            const double expected = sample(frame.data(), stride, 3, rows, columns, place(y, rows, height),
                                           place(x, columns, width), channel);
            // Rounded twice, and weights are 256ths.
            CHECK(std::abs(plain[i] - expected) <= 2.1);
            CHECK(swapped[i / 3 * 3 + 2 - channel] == plain[i]);
        }
    }
}

void planes_are_resampled_and_converted() {
    for (const bool full_range : {false, true}) {
        for (const auto& [rows, columns, height, width] : cases) {
            const auto frame = noise(rows * columns * 3 / 2);
            const auto wide = static_cast<std::ptrdiff_t>(columns), narrow = wide / 2;
            const std::uint8_t* u = frame.data() + rows * columns;
            const std::uint8_t* v = u + rows * columns / 4;
            std::vector<std::uint8_t> resized(height * width * 3);
            const PlanesResizer resizer({0, 0, rows, columns, height, width}, weights_601, full_range);
            resizer.resize({{frame.data(), wide}, rows, columns},
                           {resized.data(), static_cast<std::ptrdiff_t>(width * 3)});
            for (std::size_t i = 0; i < resized.size(); ++i) {
                const std::size_t y = i / 3 / width, x = i / 3 % width;
                const double in_y = place(y, rows / 2, height), in_x = place(x, columns / 2, width);
                const double values[] = {sample(frame.data(), wide, 1, rows, columns, place(y, rows, height),
                                                place(x, columns, width), 0) -
                                             (full_range ? 0 : 16),
                                         sample(u, narrow, 1, rows / 2, columns / 2, in_y, in_x, 0) - 128,
                                         sample(v, narrow, 1, rows / 2, columns / 2, in_y, in_x, 0) - 128};
                double expected = 0;
                for (std::size_t part = 0; part < 3; ++part) {
                    expected += values[part] * static_cast<double>(weights_601[i % 3][part]);
                }
                CHECK(std::abs(resized[i] - std::clamp(expected, 0.0, 255.0)) <= 8);
            }
        }
    }
}

void a_part_of_a_frame_is_resized_between_what_is_not_ours() {
    constexpr std::size_t rows = 20, columns = 30, height = 6, width = 5;
    const auto frame = noise(rows * columns * 3);
    const Area area{4, 6, 12, 10, height, width};
    // Rows of the target are further apart than they are long, the last one not.
    constexpr std::size_t stride = width * 3 + 5;
    std::vector<std::uint8_t> resized(stride * (height - 1) + width * 3, 77);
    BgrResizer(area, false).resize({{frame.data(), columns * 3}, rows, columns}, {resized.data(), stride});
    for (std::size_t i = 0; i < resized.size(); ++i) {
        const std::size_t y = i / stride, x = i % stride / 3;
        if (i % stride >= width * 3) {
            CHECK(resized[i] == 77);
            continue;
        }
        const auto* corner = frame.data() + (area.top * columns + area.left) * 3;
        const double expected = sample(corner, columns * 3, 3, area.rows, area.columns, place(y, 12, height),
                                       place(x, 10, width), i % stride % 3);
        CHECK(std::abs(resized[i] - expected) <= 2.1);
    }
}

void what_cannot_be_resized_is_refused() {
    CHECK_THROWS(BgrResizer({0, 0, 0, 4, 4, 4}, false), Errc::config, "0 pixels");
    CHECK_THROWS(BgrResizer({0, 0, 4, 4, 4, 0}, false), Errc::config, "0 pixels");
    CHECK_THROWS(Resampler(4, 4, 4, 4, 2), Errc::config, "channels");
    CHECK_THROWS(PlanesResizer({1, 0, 4, 4, 4, 4}, weights_601, false), Errc::config, "odd");
    CHECK_THROWS(PlanesResizer({0, 0, 4, 5, 4, 4}, weights_601, false), Errc::config, "odd");
    Weights large = weights_601;
    large[2][1] = 4.0F;
    CHECK_THROWS(PlanesResizer({0, 0, 4, 4, 4, 4}, large, false), Errc::config, "weight");
}

}  // namespace

int main() {
    bgr_is_resampled_bilinearly();
    planes_are_resampled_and_converted();
    a_part_of_a_frame_is_resized_between_what_is_not_ours();
    what_cannot_be_resized_is_refused();
}
