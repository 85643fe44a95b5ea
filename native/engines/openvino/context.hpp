// A compiled model and its executor contexts: driver memory, binding, runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/engine.hpp"
#include "engines/openvino/api.hpp"

namespace pipeline::openvino {

// The opened library and, once loaded, a compiled model; freed from the last member to the first.
struct Session {
    explicit Session(const std::string& library)
        : api(library),
          core(api.own(api.ov_core_free, Errc::engine, "OpenVINO cannot start", api.ov_core_create)) {}

    [[nodiscard]] const std::vector<TensorSpec>& specs(Direction direction) const noexcept {
        return direction == Direction::input ? inputs : outputs;
    }

    Api api;
    Owned<ov_core_t> core;
    Owned<ov_compiled_model_t> model{nullptr, api.ov_compiled_model_free};
    Owned<ov_remote_context_t> remote{nullptr, api.ov_remote_context_free};  // none: host memory
    std::vector<TensorSpec> inputs;
    std::vector<TensorSpec> outputs;
    std::string device;
    std::string precision;  // that floating-point is computed in; empty: not told
    bool runs_on_cpu = false;
};

// `session` must outlive it.
[[nodiscard]] std::unique_ptr<EngineContext> open_context(const Session& session);

}  // namespace pipeline::openvino
