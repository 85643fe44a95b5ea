// An executor context: driver memory of the model's own allocators, the routes, the runs.
#pragma once

#include <memory>

#include "core/engine.hpp"
#include "engines/mindspore_lite/engine.hpp"
#include "engines/mindspore_lite/model.hpp"

namespace pipeline::mindspore_lite {

[[nodiscard]] std::unique_ptr<EngineContext> open_context(std::unique_ptr<Model> model, ImageInputs images);

}  // namespace pipeline::mindspore_lite
