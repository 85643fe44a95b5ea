// A model's tensors: as the user sees them, and as the runtime is told about them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engines/rknn/api.hpp"
#include "engines/rknn/convert.hpp"
#include "engines/rknn/engine.hpp"

namespace pipeline::rknn {

struct Tensor {
    TensorSpec spec;
    std::string label;             // output 0 'scores'
    std::string native;            // int8 NC1HWC2 [1,6,80,80,16]
    TensorAttr attr{};             // zero-copy: what is bound; general: as the model declares it
    std::size_t native_bytes = 0;  // of NPU memory, at least
    std::optional<Conversion> conversion;
    bool by_runtime = false;  // zero-copy: the runtime converts it on the CPU, in the run
    bool want_float = false;  // general mode: the runtime makes f32 of it
};

struct Model {
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;

    [[nodiscard]] const std::vector<Tensor>& tensors(Direction direction) const noexcept {
        return direction == Direction::input ? inputs : outputs;
    }
};

// The path, after a look at the file that explains more than the runtime's status does.
[[nodiscard]] const std::string& checked_file(const std::string& path);

// For rknn_set_input_shapes: one attribute for each input, for the shape of the first that is wanted.
// Empty where the model is made for that shape only. Throws Errc::model with the shapes that there are.
[[nodiscard]] std::vector<TensorAttr> input_shapes(const Api& api, Context context,
                                                   const std::vector<std::int64_t>& wanted);

// `current`: input shapes were set. Throws Errc::model naming the tensor that cannot be used.
[[nodiscard]] Model describe(const Api& api, Context context, const RknnOptions& options, bool current);

}  // namespace pipeline::rknn
