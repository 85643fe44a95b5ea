// For engines that cannot fold image conversions into their graph: a u8 image as captured,
// written into the tensor that the model declares, by table and in one pass.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/tensor_spec.hpp"
#include "engines/options.hpp"

namespace pipeline {

struct ImageOptions {
    // Frames are BGR and the model wants RGB, or the other way round.
    bool swap_rb = false;
    // The model gets (value - mean) / scale, in the model's channel order; 1 or C values each.
    std::vector<float> mean;
    std::vector<float> scale;
};

// The option "image": a mapping of color (bgr or rgb), mean and scale; nothing: inputs stay as declared.
[[nodiscard]] std::optional<ImageOptions> take_image(Options& options);

class ImageInput {
public:
    // Whether the model's tensor is an image: rank 4 of known order, 1, 3 or 4 channels, and a type
    // that bytes can be turned into without knowing more (u8, f16, f32).
    [[nodiscard]] static bool fits(const TensorSpec& model) noexcept;

    // Throws Errc::config naming the input when mean or scale do not fit it.
    ImageInput(const TensorSpec& model, const ImageOptions& options);

    // What the slot holds: u8 NHWC.
    [[nodiscard]] const TensorSpec& slot() const noexcept { return slot_; }
    // False: the model takes the slot's bytes as they are.
    [[nodiscard]] bool converts() const noexcept { return converts_; }
    // `from` is a slot's dense memory, `to` has the model's bytes.
    void convert(const std::byte* from, std::byte* to) const noexcept;

private:
    template <class T>
    using Tables = std::array<std::array<T, 256>, 4>;  // by the model's channel

    template <class T>
    void convert_to(const Tables<T>& tables, const std::byte* from, std::byte* to) const noexcept;

    TensorSpec slot_;
    DType dtype_;
    bool planar_;  // the model is NCHW
    bool swap_rb_;
    bool converts_;
    std::size_t channels_;
    std::size_t pixels_;  // of one image
    std::size_t batch_;
    Tables<float> floats_{};
    Tables<std::uint16_t> halves_{};
    Tables<std::uint8_t> bytes_{};
};

// By input, in the model's order: how a u8 image gets into it, or nothing.
using ImageInputs = std::vector<std::optional<ImageInput>>;
[[nodiscard]] ImageInputs make_image_inputs(const std::vector<TensorSpec>& inputs,
                                            const std::optional<ImageOptions>& options);

// The nearest half-precision value's bits, ties to even.
[[nodiscard]] std::uint16_t to_half(float value) noexcept;

}  // namespace pipeline
