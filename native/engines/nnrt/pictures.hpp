// Inputs that are pictures as captured, where the model wants another type or order.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/engine.hpp"
#include "engines/picture.hpp"

namespace pipeline::nnrt {

// By input, in the model's order: how a u8 picture gets into it, or nothing.
using Pictures = std::vector<std::optional<Picture>>;

[[nodiscard]] Pictures make_pictures(const std::vector<TensorSpec>& inputs,
                                     const std::optional<PictureOptions>& options);

// `inner`, or around it a context whose slots hold the pictures and that converts them for each run.
// `pictures` must outlive it.
[[nodiscard]] std::unique_ptr<EngineContext> with_pictures(std::unique_ptr<EngineContext> inner,
                                                           const Pictures& pictures,
                                                           const std::vector<TensorSpec>& model_inputs);

}  // namespace pipeline::nnrt
