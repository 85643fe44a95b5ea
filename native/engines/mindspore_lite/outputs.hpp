// How a model's outputs get into the slots, and what this library makes of it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engines/mindspore_lite/blocks.hpp"

namespace pipeline::mindspore_lite {

// Three routes, the best that works is kept:
//   user outputs  the run is given tensors of ours; in place where they share the model's allocator
//   external      the model's own tensors are given a slot's memory for the run
//   copied        out of wherever the model has the result
class Outputs {
public:
    explicit Outputs(Model& model);

    // Run the model on `inputs` and have its outputs in `blocks`. The first run finds the route, and
    // may be more than one run.
    void run(std::span<Handle> inputs, std::span<const DriverBlock> blocks);

    [[nodiscard]] bool chosen() const noexcept { return chosen_; }
    [[nodiscard]] bool user_outputs() const noexcept { return user_outputs_; }
    // Whether the library wrote the last run's output to the slot by itself.
    [[nodiscard]] bool in_place(std::size_t index) const { return in_place_.at(index); }

private:
    class Unbind;

    [[nodiscard]] std::size_t bytes(std::size_t index) const {
        return model_.specs(Direction::output)[index].byte_size();
    }
    void choose(std::span<Handle> inputs, std::span<const DriverBlock> blocks);
    [[nodiscard]] bool honoured(std::span<Handle> inputs, std::span<const DriverBlock> blocks);
    void try_external(std::size_t index);
    void check_own(std::size_t index, const DriverBlock& block) const;
    // Point the model's own outputs away from the slots; what went wrong, if something did.
    [[nodiscard]] std::optional<Error> unbind() const;
    [[nodiscard]] bool run_with_user_outputs(std::span<Handle> inputs, std::span<const DriverBlock> blocks);
    void run_with_own_outputs(std::span<Handle> inputs, std::span<const DriverBlock> blocks);
    void predict(std::span<Handle> inputs, TensorHandleArray& outputs) const;
    [[nodiscard]] Handle answer(const TensorHandleArray& outputs, std::size_t index) const;
    void take(Handle tensor, std::size_t index, const DriverBlock& block);

    Model& model_;
    const Api& api_;
    std::vector<Handle> handles_;      // of a run; prepared once, so that a run allocates nothing
    std::vector<HostMemory> parking_;  // where the model's own output points between external runs
    std::vector<bool> in_place_;
    bool chosen_ = false;
    bool user_outputs_ = false;
};

}  // namespace pipeline::mindspore_lite
