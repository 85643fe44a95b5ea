// Engine "nnrt": OpenHarmony's Neural Network Runtime, opened at run time.
#pragma once

#include <chrono>
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

struct NnrtOptions {
    std::string library;  // path or name of libneural_network_runtime
    std::string model;    // offline model file of the device's vendor; empty: the cache alone
    std::string device;   // id, name or type (cpu, gpu, accelerator or npu, others)
    std::size_t contexts = 1;
    std::string cache_dir;  // folder of compiled models; empty: none
    std::uint32_t cache_version = 0;
    // What the runtime does not tell: all of it with v1 calls, sizes that a model leaves open with v2.
    std::vector<TensorSpec> inputs;
    std::vector<TensorSpec> outputs;
    std::optional<std::vector<std::int64_t>> input_shape;  // of the first input, in the model's own layout
    // Take each image input (rank 4; 1, 3 or 4 channels) as u8 NHWC whatever the model declares.
    std::optional<ImageOptions> image;
    std::optional<std::int32_t> performance;  // 0 to 4: none, low, medium, high, extreme
    std::optional<std::int32_t> priority;     // 0 to 3: none, low, medium, high
    std::optional<bool> float16;
    // The runtime unloads a model that rested this long; a run that fails then is tried once more.
    std::chrono::nanoseconds idle = std::chrono::minutes(10);
};

// Throws Errc::not_installed (library, or a call that it has not), model (file, cache, tensor),
// device (absent or lost) or config (an option that is wrong or does not fit the model).
[[nodiscard]] std::shared_ptr<Engine> open_nnrt(const NnrtOptions& options);

[[nodiscard]] Devices list_nnrt_devices(const std::string& library);

}  // namespace pipeline
