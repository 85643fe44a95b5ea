// Inputs that are images as captured, where the model wants another type or order.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/engine.hpp"
#include "engines/image_input.hpp"

namespace pipeline::nnrt {

// `inner`, or around it a context whose slots hold the images and that converts them for each run.
// `images` must outlive it.
[[nodiscard]] std::unique_ptr<EngineContext> with_image_inputs(std::unique_ptr<EngineContext> inner,
                                                               const ImageInputs& images,
                                                               const std::vector<TensorSpec>& model_inputs);

}  // namespace pipeline::nnrt
