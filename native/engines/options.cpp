// What is said of options that are wrong.
#include "engines/options.hpp"

namespace pipeline {

void Options::refuse(const std::string& place, std::string_view needed) {
    throw Error(Errc::config, "needs " + std::string(needed), place);
}

void Options::finish() const {
    for (const auto& [name, value] : given_) {
        if (std::holds_alternative<std::monostate>(value)) continue;
        throw Error(Errc::config, "the engine has no such option", place_ + name);
    }
}

}  // namespace pipeline
