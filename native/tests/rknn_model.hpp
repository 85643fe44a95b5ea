// A small model for the stand-in librknnrt.so, and its results computed the plain way.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace pipeline::test {

// One square RGB image; one int8 output of `channels` planes, each a quarter of its side.
struct RknnModel {
    std::size_t side = 32;
    std::size_t channels = 5;
    std::uint32_t version = 6;
    std::string platforms = "rk3588 rk3576";
    std::string more = {};  // further fields of the output
    bool dynamic = false;   // also half the side
    std::string native = "nc1hwc2";

    static constexpr double mult = 0.001;
    static constexpr float scale = 0.5F;
    static constexpr int zero = 3;

    [[nodiscard]] static int weight(std::size_t c, std::size_t k) {
        return static_cast<int>((c * 7 + k * 5) % 11) - 5;
    }
    [[nodiscard]] static int bias(std::size_t c) { return static_cast<int>(c) * 100 - 150; }
    [[nodiscard]] std::size_t out_side() const { return side / 4; }
    [[nodiscard]] std::size_t image_bytes() const { return side * side * 3; }
    [[nodiscard]] std::size_t elements() const { return channels * out_side() * out_side(); }

    [[nodiscard]] std::string bytes() const {
        const auto dims = [&](std::size_t c, std::size_t s) {
            const auto square = std::to_string(c) + ",";
            const auto one = "1," + square + std::to_string(s) + "," + std::to_string(s);
            return dynamic ? one + "|1," + square + std::to_string(s / 2) + "," + std::to_string(s / 2) : one;
        };
        const std::string text =
            "model run_us=0\ncustom from a test\n" +
            (platforms.empty() ? "" : "platform " + platforms + "\n") +
            "input name=image type=int8 qnt=affine scale=1 zp=-128 native=nhwc w_align=16 "
            "dims=" +
            dims(3, side) +
            "\noutput name=scores type=int8 qnt=affine "
            "scale=0.5 zp=3 mult=0.001 native=" +
            native + " dims=" + dims(channels, out_side()) + " " + more + "\n";
        std::string weights;
        for (std::size_t c = 0; c < channels; ++c) {
            for (std::size_t k = 0; k < 3; ++k) weights.push_back(static_cast<char>(weight(c, k)));
        }
        for (std::size_t c = 0; c < channels; ++c) append(weights, static_cast<std::int32_t>(bias(c)));
        std::string head = "RKNN" + std::string(4, '\0');
        append(head, version);
        head += std::string(4, '\0');
        append(head, std::uint64_t{text.size()});
        append(head, std::uint64_t{weights.size()});
        head.resize(64);
        return head + text + weights;
    }

    // Of an image of bytes, NHWC: the output's quanta, NCHW.
    [[nodiscard]] std::vector<std::int8_t> run(const std::vector<std::uint8_t>& image) const {
        std::vector<std::int8_t> result;
        for (std::size_t c = 0; c < channels; ++c) {
            for (std::size_t y = 0; y < out_side(); ++y) {
                for (std::size_t x = 0; x < out_side(); ++x) {
                    result.push_back(quantum(bias(c) + window(image, c, y, x)));
                }
            }
        }
        return result;
    }

private:
    template <class T>
    static void append(std::string& to, T value) {
        std::array<char, sizeof value> raw{};
        std::memcpy(raw.data(), &value, sizeof value);
        to.append(raw.data(), raw.size());
    }

    [[nodiscard]] long window(const std::vector<std::uint8_t>& image, std::size_t c, std::size_t y,
                              std::size_t x) const {
        long sum = 0;
        for (std::size_t dy = 0; dy < 4; ++dy) {
            for (std::size_t dx = 0; dx < 4; ++dx) {
                const std::size_t pixel = ((y * 4 + dy) * side + x * 4 + dx) * 3;
                for (std::size_t k = 0; k < 3; ++k) sum += weight(c, k) * image[pixel + k];
            }
        }
        return sum;
    }

    // An image's byte is its real value, thus quantum + 128.
    [[nodiscard]] static std::int8_t quantum(long sum) {
        const double real = std::round(static_cast<double>(sum) * mult / static_cast<double>(scale)) + zero;
        return static_cast<std::int8_t>(std::fmin(std::fmax(real, -128.0), 127.0));
    }
};

}  // namespace pipeline::test
