// An executor context: driver memory of the model's own allocators, the routes, the runs.
#pragma once

#include <memory>

#include "core/engine.hpp"
#include "engines/mindspore_lite.hpp"
#include "engines/mindspore_lite/model.hpp"

namespace pipeline::mindspore_lite {

// By input, in the model's order: how a u8 picture gets into it, or nothing.
using Pictures = std::vector<std::optional<Picture>>;

[[nodiscard]] Pictures make_pictures(const std::vector<TensorSpec>& inputs,
                                     const std::optional<PictureOptions>& options);

[[nodiscard]] std::unique_ptr<EngineContext> open_context(std::unique_ptr<Model> model, Pictures pictures);

}  // namespace pipeline::mindspore_lite
