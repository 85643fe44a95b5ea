#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "check.hpp"
#include "core/error.hpp"
#include "engines/image_input.hpp"

using namespace pipeline;

namespace {

TensorSpec spec(DType dtype, std::vector<std::int64_t> shape, const char* layout) {
    TensorSpec result;
    result.name = "image";
    result.dtype = dtype;
    result.shape = std::move(shape);
    result.layout = layout;
    return result;
}

float from_half(std::uint16_t bits) {
    const int exponent = (bits >> 10) & 31;
    const int fraction = bits & 1023;
    const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
    if (exponent == 31) return fraction != 0 ? std::nanf("") : sign * std::numeric_limits<float>::infinity();
    if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
    return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

void halves_are_the_nearest() {
    for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const float value = from_half(half);
        if (std::isnan(value)) continue;
        CHECK(to_half(value) == half);
        // Halfway to the next one goes to the even one, and anything beyond it up.
        if ((half & 0x7FFF) >= 0x7BFF) continue;
        const float next = from_half(static_cast<std::uint16_t>(half + 1));
        const float middle = (value + next) / 2;
        CHECK(to_half(middle) == ((half & 1) != 0 ? half + 1 : half));
        CHECK(to_half(std::nextafter(middle, next)) == half + 1);
        CHECK(to_half(std::nextafter(middle, value)) == half);
    }
    CHECK(to_half(65519.0F) == 0x7BFF);
    CHECK(to_half(65520.0F) == 0x7C00);
    CHECK(std::isnan(from_half(to_half(std::nanf("")))));
}

std::vector<std::byte> image_bytes(std::size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 % 256);
    return bytes;
}

void floats_get_color_mean_and_scale_in_either_order() {
    for (const bool planar : {false, true}) {
        for (const bool swap : {false, true}) {
            const auto model =
                planar ? spec(DType::f32, {2, 3, 5, 4}, "NCHW") : spec(DType::f32, {2, 5, 4, 3}, "NHWC");
            CHECK(ImageInput::fits(model));
            const ImageInput image(model, {swap, {1, 2, 3}, {2, 4, 8}});
            CHECK(image.converts());
            CHECK(image.slot().dtype == DType::u8);
            CHECK(image.slot().layout == "NHWC");
            CHECK((image.slot().shape == std::vector<std::int64_t>{2, 5, 4, 3}));
            const auto from = image_bytes(120);
            std::vector<float> to(120);
            image.convert(from.data(), reinterpret_cast<std::byte*>(to.data()));
            for (std::size_t n = 0; n < 2; ++n) {
                for (std::size_t pixel = 0; pixel < 20; ++pixel) {
                    for (std::size_t c = 0; c < 3; ++c) {
                        const auto value =
                            std::to_integer<int>(from[n * 60 + pixel * 3 + (swap ? 2 - c : c)]);
                        const float wanted = (static_cast<float>(value) - static_cast<float>(c + 1)) /
                                             static_cast<float>(2 << c);
                        CHECK(to[n * 60 + (planar ? c * 20 + pixel : pixel * 3 + c)] == wanted);
                    }
                }
            }
        }
    }
}

void halves_and_bytes_are_written_too() {
    const auto from = image_bytes(12);
    const ImageInput halves(spec(DType::f16, {1, 2, 2, 3}, "NHWC"), {false, {}, {255}});
    std::array<std::uint16_t, 12> words{};
    halves.convert(from.data(), reinterpret_cast<std::byte*>(words.data()));
    CHECK(words[5] == to_half(static_cast<float>(std::to_integer<int>(from[5])) / 255.0F));
    const ImageInput swapped(spec(DType::u8, {1, 2, 2, 3}, "NHWC"), {true, {}, {}});
    CHECK(swapped.converts());
    std::array<std::byte, 12> bytes{};
    swapped.convert(from.data(), bytes.data());
    CHECK(bytes[3] == from[5] && bytes[4] == from[4] && bytes[5] == from[3]);
    CHECK(!ImageInput(spec(DType::u8, {1, 2, 2, 3}, "NHWC"), {}).converts());
    CHECK(!ImageInput(spec(DType::u8, {1, 1, 2, 2}, "NCHW"), {true, {}, {}}).converts());
    CHECK(ImageInput(spec(DType::u8, {1, 3, 2, 2}, "NCHW"), {}).converts());
}

void what_is_no_image_is_left_alone() {
    CHECK(!ImageInput::fits(spec(DType::f32, {1, 3, 4}, "")));
    CHECK(!ImageInput::fits(spec(DType::f32, {1, 4, 4, 2}, "NHWC")));
    CHECK(!ImageInput::fits(spec(DType::f32, {1, 4, 4, 3}, "")));
    CHECK(!ImageInput::fits(spec(DType::i32, {1, 4, 4, 3}, "NHWC")));
    CHECK(ImageInput::fits(spec(DType::f32, {1, 4, 4, 1}, "NHWC")));
}

void options_that_do_not_fit_are_refused() {
    const auto model = spec(DType::f32, {1, 4, 4, 3}, "NHWC");
    CHECK_THROWS(ImageInput(model, {false, {1, 2}, {}}), Errc::config,
                 "image.mean: 2 values, but input 'image' has 3 channels");
    CHECK_THROWS(ImageInput(model, {false, {}, {1, 1, 0}}), Errc::config, "image.scale: ");
    CHECK_THROWS(ImageInput(spec(DType::u8, {1, 4, 4, 3}, "NHWC"), {false, {1}, {}}), Errc::config,
                 "image.mean: given");
}

}  // namespace

int main() {
    halves_are_the_nearest();
    floats_get_color_mean_and_scale_in_either_order();
    halves_and_bytes_are_written_too();
    what_is_no_image_is_left_alone();
    options_that_do_not_fit_are_refused();
}
