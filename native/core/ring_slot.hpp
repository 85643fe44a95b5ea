// A slot as the ring's own files know it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/context_thread.hpp"
#include "core/ring.hpp"

namespace pipeline {

inline std::string tensor_place(const TensorSpec& spec, Direction direction, std::size_t index) {
    return std::string(direction_name(direction)) + " " + std::to_string(index) + " '" + spec.name + "': ";
}

// The command is the run: submitting a slot links it into its context's queue and allocates nothing.
struct Ring::Slot final : Command {
    void execute(EngineContext& engine) noexcept override;
    [[nodiscard]] std::vector<BlockRef>& own(Direction direction) noexcept {
        return direction == Direction::input ? inputs : outputs;
    }
    [[nodiscard]] SlotId id() const noexcept { return {index, generation}; }

    Ring* ring = nullptr;
    std::size_t index = 0;
    SlotKey key{};
    std::size_t context = 0;
    std::vector<BlockRef> inputs;
    std::vector<BlockRef> outputs;

    SlotState state = SlotState::free;
    std::uint64_t generation = 0;
    std::size_t views = 0;
    bool released = false;  // free it as soon as neither the engine nor a view needs it
    std::optional<Error> error;
    RunTimes times;

    // What the engine is given for this run; capacity is reserved once.
    std::vector<DriverBlock> run_inputs;
    std::vector<DriverBlock> run_outputs;
    std::vector<BlockRef> bound;       // callers' blocks, referred to while the run lasts
    std::vector<Slot*> borrowed;       // slots whose blocks those are; each counts as viewed
    std::vector<bool> output_bound;    // outputs that went elsewhere
    std::vector<Route> routes;         // of all inputs, then of all outputs
    std::unique_ptr<InputStep> step;   // fills the first input before the run, if there is one
    std::shared_ptr<Ring> keep_alive;  // while submitted
};

}  // namespace pipeline
