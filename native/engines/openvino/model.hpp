// A model file made ready for compiling: read, reshaped, image inputs turned to u8 NHWC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor_spec.hpp"
#include "engines/openvino/api.hpp"
#include "engines/openvino/engine.hpp"

namespace pipeline::openvino {

// What a port tells about its tensor.
struct Port {
    Direction direction = Direction::input;
    std::size_t index = 0;
    std::string name;
    ov_element_type_e type = DYNAMIC;
    std::optional<std::size_t> rank;  // none: even the rank is open
    std::vector<std::int64_t> shape;  // empty while any dimension is open
    std::string shape_text;           // [?,3,32..64,32]
    bool dynamic = false;

    [[nodiscard]] std::string label() const;  // input 0 'images'
};

[[nodiscard]] Port read_port(const Api& api, const ov_output_const_port_t* port, Direction direction,
                             std::size_t index);

// Throws Errc::model naming the tensor when its shape is open or its element type has no DType.
// `inputs_open`: whether a forced input shape could help.
[[nodiscard]] TensorSpec make_spec(const std::string& path, const Port& port, bool inputs_open);

[[nodiscard]] ov_element_type_e element_type(DType dtype) noexcept;

struct Model {
    Owned<ov_model_t> model;
    std::vector<bool> image_inputs;  // by input: u8 NHWC by our doing
};

// Turns each image input of `model`, whose inputs these are, to u8 NHWC as the options say.
[[nodiscard]] Model fold_images(const Api& api, const OpenVinoOptions& options, Owned<ov_model_t> model,
                                const std::vector<Port>& inputs);

// Read, reshaped, checked and folded; ready for compiling.
[[nodiscard]] Model load_model(const Api& api, const ov_core_t* core, const OpenVinoOptions& options);

}  // namespace pipeline::openvino
