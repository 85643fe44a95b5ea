// Engine "openvino": OpenVINO through its C API, opened at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/engine.hpp"
#include "engines/devices.hpp"

namespace pipeline {

struct OpenVinoOptions {
    std::string library;  // path or name of libopenvino_c
    std::string model;    // ONNX, IR (.xml) or TFLite file
    std::string device;   // as OpenVINO names it: CPU, GPU.1, NPU, AUTO:NPU,CPU, ...
    std::size_t contexts = 1;
    // Shape of the first input in the model's own layout, instead of the declared one.
    std::optional<std::vector<std::int64_t>> input_shape;
    // Take each image input (rank 4; 1, 3 or 4 channels) as u8 NHWC whatever the model declares.
    bool image_input = true;
    // Frames are BGR and the model wants RGB, or the other way round.
    bool swap_rb = false;
    // The model gets (value - mean) / scale, in the model's channel order; 1 or C values each.
    std::vector<float> mean;
    std::vector<float> scale;
    std::vector<std::pair<std::string, std::string>> properties;
};

// Throws Errc::not_installed (library), model (file, shape, element type), device (absent) or
// config (an option that is wrong or does not fit the model).
[[nodiscard]] std::shared_ptr<Engine> open_openvino(const OpenVinoOptions& options);

[[nodiscard]] Devices list_openvino_devices(const std::string& library);

}  // namespace pipeline
