// What a new engine implements: one Engine, and one EngineContext for each executor context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/tensor_spec.hpp"

namespace pipeline {

enum class Direction { input, output };

[[nodiscard]] constexpr std::string_view direction_name(Direction direction) noexcept {
    return direction == Direction::input ? "input" : "output";
}

// One piece of driver memory. `base` is what the driver knows it by; `handle` is the engine's own
// descriptor, prepared once so that nothing is allocated when the block is bound for a run.
struct DriverBlock {
    std::byte* base = nullptr;
    std::size_t length = 0;
    void* handle = nullptr;
};

// A slot of a ring; no two of an executor ever have the same.
enum class SlotKey : std::uint64_t {};

// Memory of somebody else, such as a camera's: `offset` bytes into a dma-buf. The descriptor is lent.
struct DmaBuf {
    int fd = -1;
    std::size_t offset = 0;
};

// Blocks to bind for one run, in tensor order, one for each tensor of the model.
struct RunRequest {
    std::span<const DriverBlock> inputs;
    std::span<const DriverBlock> outputs;
    bool probe = false;  // the start-up run on empty input; not one of the user's
};

struct TensorSpecs {
    std::vector<TensorSpec> inputs;
    std::vector<TensorSpec> outputs;
};

// One executor context. Constructed, called and destroyed on the one thread that owns it, so an
// implementation needs no lock of its own; every block is released before it is destroyed.
class EngineContext {
public:
    EngineContext() = default;
    EngineContext(const EngineContext&) = delete;
    EngineContext& operator=(const EngineContext&) = delete;
    virtual ~EngineContext() = default;

    // Driver memory for tensor `index`, at least `bytes` long. Throws Errc::allocation. An engine that
    // does not rebind never gets it for a run.
    virtual DriverBlock allocate(Direction direction, std::size_t index, std::size_t bytes) = 0;
    virtual void release(Direction direction, std::size_t index, DriverBlock block) noexcept = 0;

    // The same for a slot, which has one block of each tensor, or none while its block is replaced.
    virtual DriverBlock allocate_slot(SlotKey /*slot*/, Direction direction, std::size_t index,
                                      std::size_t bytes) {
        return allocate(direction, index, bytes);
    }
    // The same as `allocate` in a dma-buf, which `release` lets go of. Throws Errc::config where the engine
    // cannot.
    virtual DriverBlock import(Direction /*direction*/, std::size_t /*index*/, std::size_t /*bytes*/,
                               DmaBuf /*buffer*/) {
        throw Error(Errc::config, "this engine takes no dma-buf");
    }

    // Another shape of the first input, from the next run on, on the blocks that are large enough for
    // it. Throws Errc::config where shapes are fixed, Errc::model where the model has not this one.
    virtual TensorSpecs reshape(std::span<const std::int64_t> /*shape*/) {
        throw Error(Errc::config, "this engine's models have one shape; open another executor");
    }

    // Bind, run, wait, undo the binding, on every path. Throws Errc::run or Errc::device.
    virtual void run(const RunRequest& request) = 0;

    // Whether the engine works on a bound block in place, as known after the first run; false
    // means that it copies behind our back.
    [[nodiscard]] virtual bool zero_copy(Direction /*direction*/, std::size_t /*index*/) const {
        return true;
    }
    // The same in words for the summary: how the tensor's block and the engine come together.
    [[nodiscard]] virtual std::string route(Direction direction, std::size_t index) const {
        return zero_copy(direction, index) ? "zero-copy" : "copied by the engine";
    }
};

// A loaded model on one device. Shared by its contexts; destroyed after the last of them.
class Engine {
public:
    Engine() = default;
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;
    virtual ~Engine() = default;

    [[nodiscard]] virtual std::string_view name() const noexcept = 0;
    [[nodiscard]] virtual std::string device() const = 0;  // the device's full name
    [[nodiscard]] virtual std::size_t context_count() const noexcept = 0;
    [[nodiscard]] virtual const std::vector<TensorSpec>& inputs() const noexcept = 0;
    [[nodiscard]] virtual const std::vector<TensorSpec>& outputs() const noexcept = 0;
    // True if any block may be bound for any run of its context. False: a slot runs on the blocks that
    // were allocated for it only, and a caller's memory is copied through them.
    [[nodiscard]] virtual bool rebinds() const noexcept { return true; }
    // What the user should know, by name: how the engine works on this model and what that costs.
    // Safe from any thread, at any time.
    [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> notes() const { return {}; }
    // Called once for each context, on the thread that will own it.
    [[nodiscard]] virtual std::unique_ptr<EngineContext> open_context(std::size_t index) = 0;
};

}  // namespace pipeline
