// Image inputs become u8 NHWC: color order, mean, scale, layout and type go into the model's graph.
#ifdef PIPELINE_WITH_OPENVINO

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <utility>

#include "engines/openvino/model.hpp"

namespace pipeline::openvino {
namespace {

std::string number(double value) {
    std::ostringstream text;
    text << value;
    return text.str();
}

struct Image {
    std::size_t channels;
    bool nhwc;
};

// `values` for each channel; one value stands for all.
std::vector<float> per_channel(const std::vector<float>& values, const char* option, const Port& port,
                               std::size_t channels) {
    if (values.size() == 1) return std::vector<float>(channels, values[0]);
    if (values.empty() || values.size() == channels) return values;
    throw Error(Errc::config,
                std::to_string(values.size()) + " values, but " + port.label() + " has " +
                    std::to_string(channels) + " channels: give 1 value or one for each channel",
                option);
}

void check_values(const OpenVinoOptions& options) {
    const auto finite = [](float value) { return std::isfinite(value); };
    if (!std::ranges::all_of(options.mean, finite))
        throw Error(Errc::config, "has a value that is no number", "image.mean");
    if (!std::ranges::all_of(options.scale, [&](float value) { return finite(value) && value != 0.0F; })) {
        throw Error(Errc::config, "has a value that is 0 or no number", "image.scale");
    }
}

// What an integer type can hold; none for floats, which hold any pixel.
std::optional<std::pair<double, double>> integer_range(ov_element_type_e type) {
    const auto of = []<class T>(T) {
        using Limits = std::numeric_limits<T>;
        return std::pair(static_cast<double>(Limits::min()), static_cast<double>(Limits::max()));
    };
    switch (type) {
        case U8:
            return of(std::uint8_t{});
        case I8:
            return of(std::int8_t{});
        case U16:
            return of(std::uint16_t{});
        case I16:
            return of(std::int16_t{});
        case U32:
            return of(std::uint32_t{});
        case I32:
            return of(std::int32_t{});
        case U64:
            return of(std::uint64_t{});
        case I64:
            return of(std::int64_t{});
        default:
            return std::nullopt;
    }
}

std::optional<Image> image_of(const Port& port) {
    const bool is_float = port.type == F16 || port.type == BF16 || port.type == F32 || port.type == F64;
    const bool is_number = is_float || integer_range(port.type).has_value();
    if (port.shape.size() != 4 || !is_number) return std::nullopt;
    const auto channels_at = [&](std::size_t i) {
        return port.shape[i] == 1 || port.shape[i] == 3 || port.shape[i] == 4;
    };
    if (channels_at(3)) return Image{static_cast<std::size_t>(port.shape[3]), true};
    if (channels_at(1)) return Image{static_cast<std::size_t>(port.shape[1]), false};
    return std::nullopt;
}

// OpenVINO would wrap what an integer model input cannot hold, and say nothing.
void check_range(const Port& port, const std::vector<float>& mean, const std::vector<float>& scale,
                 std::size_t channels) {
    const auto range = integer_range(port.type);
    if (!range) return;
    for (std::size_t i = 0; i < channels; ++i) {
        const double offset = mean.empty() ? 0.0 : mean[i];
        const double divisor = scale.empty() ? 1.0 : scale[i];
        const auto [low, high] = std::minmax({(0.0 - offset) / divisor, (255.0 - offset) / divisor});
        if (low >= range->first && high <= range->second) continue;
        throw Error(Errc::config, port.label() + " takes integers of " + number(range->first) + " to " +
                                      number(range->second) +
                                      ", but with this mean and scale pixels become " + number(low) + " to " +
                                      number(high));
    }
}

class ImageFolder {
public:
    ImageFolder(const Api& api, const OpenVinoOptions& options, const ov_model_t* model)
        : api_(api),
          options_(options),
          what_(options.model + ": cannot fold the image conversion into the model"),
          nhwc_(layout("NHWC")),
          nchw_(layout("NCHW")),
          processor_(api.own(api.ov_preprocess_prepostprocessor_free, Errc::model, what_,
                             [&](ov_preprocess_prepostprocessor_t** out) {
                                 return api.ov_preprocess_prepostprocessor_create(model, out);
                             })) {}

    void fold(const Port& port, const Image& image) {
        const auto mean = per_channel(options_.mean, "image.mean", port, image.channels);
        const auto scale = per_channel(options_.scale, "image.scale", port, image.channels);
        const bool swap = options_.swap_rb && image.channels == 3;
        const bool arithmetic = !mean.empty() || !scale.empty();
        check_range(port, mean, scale, image.channels);
        if (image.nhwc && port.type == U8 && !swap && !arithmetic) return;
        changed_ = true;
        const auto info = own(api_.ov_preprocess_input_info_free, [&](ov_preprocess_input_info_t** out) {
            return api_.ov_preprocess_prepostprocessor_get_input_info_by_index(processor_.get(), port.index,
                                                                               out);
        });
        declare_layouts(info.get(), image.nhwc);
        add_steps(info.get(), swap, arithmetic ? F32 : port.type, mean, scale);
    }

    // The model with all that was folded, or `model` itself when there was nothing to do.
    Owned<ov_model_t> build(Owned<ov_model_t> model) {
        if (!changed_) return model;
        return own(api_.ov_model_free, [&](ov_model_t** out) {
            return api_.ov_preprocess_prepostprocessor_build(processor_.get(), out);
        });
    }

private:
    template <class T, class Create>
    Owned<T> own(void (*free)(T*), Create&& create) const {
        return api_.own(free, Errc::model, what_, std::forward<Create>(create));
    }
    void check(ov_status_e status) const { api_.check(status, Errc::model, what_); }

    Owned<ov_layout_t> layout(const char* text) const {
        return own(api_.ov_layout_free, [&](ov_layout_t** out) { return api_.ov_layout_create(text, out); });
    }

    void declare_layouts(const ov_preprocess_input_info_t* info, bool nhwc) const {
        const auto tensor =
            own(api_.ov_preprocess_input_tensor_info_free, [&](ov_preprocess_input_tensor_info_t** out) {
                return api_.ov_preprocess_input_info_get_tensor_info(info, out);
            });
        check(api_.ov_preprocess_input_tensor_info_set_element_type(tensor.get(), U8));
        check(api_.ov_preprocess_input_tensor_info_set_layout(tensor.get(), nhwc_.get()));
        const auto inner =
            own(api_.ov_preprocess_input_model_info_free, [&](ov_preprocess_input_model_info_t** out) {
                return api_.ov_preprocess_input_info_get_model_info(info, out);
            });
        check(api_.ov_preprocess_input_model_info_set_layout(inner.get(), (nhwc ? nhwc_ : nchw_).get()));
    }

    // Layout, and from float to an integer model, are converted by OpenVINO at the end by itself.
    void add_steps(const ov_preprocess_input_info_t* info, bool swap, ov_element_type_e type,
                   const std::vector<float>& mean, const std::vector<float>& scale) const {
        const auto steps =
            own(api_.ov_preprocess_preprocess_steps_free, [&](ov_preprocess_preprocess_steps_t** out) {
                return api_.ov_preprocess_input_info_get_preprocess_steps(info, out);
            });
        const auto convert = [&](ov_element_type_e to) {
            check(api_.ov_preprocess_preprocess_steps_convert_element_type(steps.get(), to));
        };
        // By way of bf16, which holds 0..255 exactly. Otherwise OpenVINO (2026.4) puts the change of
        // layout before the conversion, and the CPU then copies the image three times, not once.
        if (type == F32 && options_.device == "CPU") convert(BF16);
        if (type != U8) convert(type);
        if (swap) check(api_.ov_preprocess_preprocess_steps_reverse_channels(steps.get()));
        const auto count = [](const std::vector<float>& values) {
            return static_cast<std::int32_t>(values.size());
        };
        if (!mean.empty()) {
            check(api_.ov_preprocess_preprocess_steps_mean_multi_channels(steps.get(), mean.data(),
                                                                          count(mean)));
        }
        if (!scale.empty()) {
            check(api_.ov_preprocess_preprocess_steps_scale_multi_channels(steps.get(), scale.data(),
                                                                           count(scale)));
        }
    }

    const Api& api_;
    const OpenVinoOptions& options_;
    const std::string what_;
    const Owned<ov_layout_t> nhwc_;
    const Owned<ov_layout_t> nchw_;
    const Owned<ov_preprocess_prepostprocessor_t> processor_;
    bool changed_ = false;
};

}  // namespace

Model fold_images(const Api& api, const OpenVinoOptions& options, Owned<ov_model_t> model,
                  const std::vector<Port>& inputs) {
    check_values(options);
    std::vector<std::optional<Image>> images(inputs.size());
    if (options.image_input) std::ranges::transform(inputs, images.begin(), image_of);
    const auto any = [&](auto&& test) { return std::ranges::any_of(images, test); };
    const bool some = any([](const auto& image) { return image.has_value(); });
    // A color order, by contrast, is no matter where there are no three channels.
    if (!some && (!options.mean.empty() || !options.scale.empty())) {
        throw Error(Errc::config, options.model +
                                      ": mean and scale need an image input (rank 4 with 1, 3 or 4 "
                                      "channels, image_input on); the first is " +
                                      inputs.at(0).label() + " " + inputs[0].shape_text);
    }
    Model result{Owned<ov_model_t>(nullptr, api.ov_model_free), std::vector<bool>(inputs.size())};
    if (!some) {
        result.model = std::move(model);
        return result;
    }
    ImageFolder folder(api, options, model.get());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (!images[i]) continue;
        folder.fold(inputs[i], *images[i]);
        result.image_inputs[i] = true;
    }
    result.model = folder.build(std::move(model));
    return result;
}

}  // namespace pipeline::openvino

#endif  // PIPELINE_WITH_OPENVINO
