// Named errors of the core. The binding turns each code into one Python class.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace pipeline {

enum class Errc {
    allocation,     // the driver refused memory, or a limit was reached
    binding,        // a caller's array does not fit a tensor
    closed,         // used after close
    config,         // an argument is wrong
    device,         // the device is absent or lost
    engine,         // the engine broke in any other way
    model,          // the engine refused the model
    not_installed,  // the engine's library is not on this machine
    run,            // one inference failed
    slot_state,     // a slot was used in a state that does not allow it
};

class Error : public std::runtime_error {
public:
    // `key`: the setting to blame, as options.cores; empty if there is none.
    Error(Errc code, const std::string& what, std::string key = {})
        : std::runtime_error(what), code_(code), key_(std::move(key)) {}
    [[nodiscard]] Errc code() const noexcept { return code_; }
    [[nodiscard]] const std::string& key() const noexcept { return key_; }

private:
    Errc code_;
    std::string key_;
};

}  // namespace pipeline
