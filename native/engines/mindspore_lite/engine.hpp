// Engine "mindspore_lite": .ms models through MindSpore Lite's C API, opened at run time.
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
#include "engines/image_input.hpp"

namespace pipeline {

struct MindSporeLiteOptions {
    std::string library;  // path or name of the C library, of the OH_AI or the MS family
    std::string model;    // .ms file
    std::string device;   // CPU, GPU, NPU (Kirin), NNRT, NNRT:<id>, NNRT:<type> or NNRT:<name>
    std::size_t contexts = 1;
    // Shape of the first input in the model's own layout, instead of the declared one.
    std::optional<std::vector<std::int64_t>> input_shape;
    // Take each image input (rank 4; 1, 3 or 4 channels) as u8 NHWC whatever the model declares.
    std::optional<ImageOptions> image;
    std::int32_t threads = 0;         // 0: the library decides
    std::int32_t affinity = 0;        // 0 none, 1 big cores, 2 little cores
    std::vector<std::int32_t> cores;  // instead of affinity
    bool fp16 = false;
    std::int32_t performance = 0;  // NNRT: 0 none, 1 low, 2 medium, 3 high, 4 extreme
    std::int32_t priority = 0;     // NNRT: 0 none, 1 low, 2 medium, 3 high
    std::int32_t frequency = 0;    // Kirin NPU: 0 its own choice, 1 low, 2 balanced, 3 high, 4 extreme
    bool cpu_fallback = true;      // operators that the accelerator lacks run on the CPU
    std::vector<std::pair<std::string, std::string>> extensions;  // NNRT, by the library's names
};

// Throws Errc::not_installed (library), model (file, shape, element type), device (absent) or
// config (an option that is wrong or that this library does not know).
[[nodiscard]] std::shared_ptr<Engine> open_mindspore_lite(const MindSporeLiteOptions& options);

// Its version is the family of its names, OH_AI or MS.
[[nodiscard]] Devices list_mindspore_lite_devices(const std::string& library);

}  // namespace pipeline
