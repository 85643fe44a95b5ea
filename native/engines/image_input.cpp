// The tables from bytes to the model's values, and the pass that applies them.
#include "engines/image_input.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "core/error.hpp"

namespace pipeline {
namespace {

// Value for one channel out of none, one for all, or one each.
float channel_value(const std::vector<float>& values, std::size_t channel, float none) {
    if (values.empty()) return none;
    return values.size() == 1 ? values[0] : values[channel];
}

bool is_planar(const TensorSpec& spec) noexcept { return spec.layout == "NCHW"; }

std::size_t channel_count(const TensorSpec& spec) noexcept {
    return static_cast<std::size_t>(spec.shape[is_planar(spec) ? 1 : 3]);
}

void check_options(const TensorSpec& model, const ImageOptions& options, std::size_t channels) {
    const auto fail = [&](const std::string& option, const std::string& what) {
        throw Error(Errc::config, what, "image." + option);
    };
    const std::string input = "input '" + model.name + "'";
    for (const auto* values : {&options.mean, &options.scale}) {
        const std::string name = values == &options.mean ? "mean" : "scale";
        if (values->empty()) continue;
        if (values->size() != 1 && values->size() != channels) {
            fail(name, std::to_string(values->size()) + " values, but " + input + " has " +
                           std::to_string(channels) + " channels: give 1 value or one for each channel");
        }
        if (model.dtype == DType::u8) fail(name, "given, but " + input + " takes bytes as they are");
    }
    for (const float value : options.scale) {
        if (value == 0.0F || !std::isfinite(value)) fail("scale", "has a value that is 0 or no number");
    }
}

}  // namespace

std::optional<ImageOptions> take_image(Options& options) {
    auto given = options.take<OptionMap>("image");
    if (!given) return std::nullopt;
    Options image(std::move(*given), "image.");
    ImageOptions result{image.choose<bool>("color", {{"bgr", false}, {"rgb", true}}).value_or(false),
                        image.take<std::vector<float>>("mean", {}),
                        image.take<std::vector<float>>("scale", {})};
    image.finish();
    return result;
}

std::uint16_t to_half(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7E00U);   // not a number
    if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // rounds to infinity
    if (magnitude < 0x38800000U) {
        // Subnormal: adding a number whose last place is 2^-24 rounds to a multiple of it.
        const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
        return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U));
    }
    const std::uint32_t odd = (magnitude >> 13) & 1U;
    return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000U + 0xFFFU + odd) >> 13));
}

bool ImageInput::fits(const TensorSpec& model) noexcept {
    if (model.shape.size() != 4 || (model.layout != "NHWC" && model.layout != "NCHW")) return false;
    if (model.dtype != DType::u8 && model.dtype != DType::f16 && model.dtype != DType::f32) return false;
    const std::size_t channels = channel_count(model);
    return channels == 1 || channels == 3 || channels == 4;
}

ImageInput::ImageInput(const TensorSpec& model, const ImageOptions& options)
    : slot_(model),
      dtype_(model.dtype),
      planar_(is_planar(model)),
      swap_rb_(options.swap_rb && channel_count(model) >= 3),
      converts_(model.dtype != DType::u8 || swap_rb_ || (planar_ && channel_count(model) > 1)),
      channels_(channel_count(model)),
      pixels_(static_cast<std::size_t>(planar_ ? model.shape[2] * model.shape[3]
                                               : model.shape[1] * model.shape[2])),
      batch_(static_cast<std::size_t>(model.shape[0])) {
    check_options(model, options, channels_);
    slot_.dtype = DType::u8;
    slot_.layout = "NHWC";
    if (planar_) slot_.shape = {model.shape[0], model.shape[2], model.shape[3], model.shape[1]};
    for (std::size_t c = 0; c < channels_; ++c) {
        const float mean = channel_value(options.mean, c, 0.0F);
        const float scale = channel_value(options.scale, c, 1.0F);
        for (std::size_t v = 0; v < 256; ++v) {
            floats_[c][v] = (static_cast<float>(v) - mean) / scale;
            halves_[c][v] = to_half(floats_[c][v]);
            bytes_[c][v] = static_cast<std::uint8_t>(v);
        }
    }
}

template <class T>
void ImageInput::convert_to(const Tables<T>& tables, const std::byte* from, std::byte* to) const noexcept {
    const std::size_t values = pixels_ * channels_;
    const std::size_t step = planar_ ? 1 : channels_;
    for (std::size_t n = 0; n < batch_; ++n, from += values, to += values * sizeof(T)) {
        for (std::size_t c = 0; c < channels_; ++c) {
            const auto& table = tables[c];
            const std::byte* source = from + (swap_rb_ && c < 3 ? 2 - c : c);
            std::byte* target = to + (planar_ ? c * pixels_ : c) * sizeof(T);
            for (std::size_t i = 0; i < pixels_; ++i) {
                std::memcpy(target, &table[std::to_integer<std::size_t>(*source)], sizeof(T));
                source += channels_;
                target += step * sizeof(T);
            }
        }
    }
}

void ImageInput::convert(const std::byte* from, std::byte* to) const noexcept {
    if (dtype_ == DType::f32) return convert_to(floats_, from, to);
    if (dtype_ == DType::f16) return convert_to(halves_, from, to);
    return convert_to(bytes_, from, to);
}

ImageInputs make_image_inputs(const std::vector<TensorSpec>& inputs,
                              const std::optional<ImageOptions>& options) {
    ImageInputs result(inputs.size());
    for (std::size_t i = 0; options && i < inputs.size(); ++i) {
        if (ImageInput::fits(inputs[i])) result[i].emplace(inputs[i], *options);
    }
    return result;
}

}  // namespace pipeline
