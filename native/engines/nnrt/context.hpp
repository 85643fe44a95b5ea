// One executor of the runtime, by the calls of API 11 or by those before them.
#pragma once

#include <memory>

#include "core/engine.hpp"
#include "engines/nnrt/session.hpp"

namespace pipeline::nnrt {

[[nodiscard]] std::unique_ptr<EngineContext> open_context(Session& session);

}  // namespace pipeline::nnrt
