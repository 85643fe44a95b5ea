// Devices by the option's name, and the context that a model is built with.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engines/mindspore_lite/api.hpp"
#include "engines/mindspore_lite/engine.hpp"

namespace pipeline::mindspore_lite {

// One NNRT device as the library lists it.
struct NnrtDevice {
    std::size_t id = 0;
    std::string name;
    std::int32_t type = 0;
};

// Empty where the library knows no NNRT or finds no device.
[[nodiscard]] std::vector<NnrtDevice> nnrt_devices(const Api& api);
[[nodiscard]] std::string nnrt_full_name(const NnrtDevice& device);

// A context serves one build only. Throws Errc::device (absent) or Errc::config.
[[nodiscard]] Owned make_context(const Api& api, const MindSporeLiteOptions& options);

// The device's full name, where it has another one than the option.
[[nodiscard]] std::string describe_device(const Api& api, const std::string& device);

}  // namespace pipeline::mindspore_lite
