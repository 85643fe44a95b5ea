// The table of engines, and the two calls by name.
#include "engines/registry.hpp"

#include <utility>

namespace pipeline {
namespace {

struct Entry {
    std::string_view name;
    std::shared_ptr<Engine> (*open)(Options& options);
    Devices (*find_devices)(const std::string& library);
};

constexpr Entry entries[] = {
#define PIPELINE_ENGINE(name) {#name, &name::open, &name::find_devices},
#include "engines.inc"
#undef PIPELINE_ENGINE
};

const Entry& find(std::string_view name) {
    std::string known;
    for (const auto& entry : entries) {
        if (entry.name == name) return entry;
        known += (known.empty() ? "" : ", ") + std::string(entry.name);
    }
    throw Error(Errc::config, "'" + std::string(name) + "' is not one of " + known, "engine");
}

}  // namespace

std::shared_ptr<Engine> open_engine(std::string_view name, OptionMap options) {
    Options given(std::move(options));
    return find(name).open(given);
}

Devices list_devices(std::string_view name, const std::string& library) {
    return find(name).find_devices(library);
}

}  // namespace pipeline
