// The blocks of a context: tensors of the model's own allocators, or images in host memory.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>

#include "core/engine.hpp"
#include "core/error.hpp"
#include "engines/mindspore_lite/model.hpp"

namespace pipeline::mindspore_lite {

using HostMemory = std::unique_ptr<std::byte, void (*)(void*)>;

// Zeroed, at the start of a cache line. Throws Errc::allocation.
[[nodiscard]] inline HostMemory host_memory(std::size_t bytes) {
    constexpr std::size_t alignment = 64;
    const std::size_t length = (bytes + alignment - 1) / alignment * alignment;
    HostMemory memory(static_cast<std::byte*>(std::aligned_alloc(alignment, length)), std::free);
    if (!memory) throw Error(Errc::allocation, std::to_string(bytes) + " bytes: out of memory");
    std::memset(memory.get(), 0, length);
    return memory;
}

struct Block {
    Direction direction = Direction::input;
    std::size_t index = 0;
    Tensor tensor;                        // none for an image that is converted for each run
    HostMemory host{nullptr, std::free};  // only for such an image
};

// By base: only memory that is found here is ever given to the library.
using Blocks = std::unordered_map<const std::byte*, std::unique_ptr<Block>>;

// The tensor of a block that a run was given.
[[nodiscard]] inline Handle tensor_of(const DriverBlock& block) noexcept {
    return static_cast<const Block*>(block.handle)->tensor.handle.get();
}

}  // namespace pipeline::mindspore_lite
