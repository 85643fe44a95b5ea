// The engines by name. The build finds them: each folder here that has a factory.cpp is one.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/engine.hpp"
#include "engines/devices.hpp"
#include "engines/options.hpp"

namespace pipeline {

// Throws Errc::config for an unknown name or a wrong option, and what the engine throws.
[[nodiscard]] std::shared_ptr<Engine> open_engine(std::string_view name, OptionMap options);
[[nodiscard]] Devices list_devices(std::string_view name, const std::string& library);

// What the factory.cpp of each folder defines: a model opened by its options, each read once, and the
// devices that a library finds.
#define PIPELINE_ENGINE(name)                         \
    namespace name {                                  \
    std::shared_ptr<Engine> open(Options& options);   \
    Devices find_devices(const std::string& library); \
    }
#include "engines.inc"
#undef PIPELINE_ENGINE

}  // namespace pipeline
