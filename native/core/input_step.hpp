// What fills a slot's first input on the thread of its context, right before the run.
#pragma once

#include <cstddef>

#include "core/tensor_spec.hpp"

namespace pipeline {

// One for each run; the ring owns it until the run has ended.
class InputStep {
public:
    InputStep() = default;
    InputStep(const InputStep&) = delete;
    InputStep& operator=(const InputStep&) = delete;
    virtual ~InputStep() = default;

    // Called once, by whoever submits, before anything is changed. Throws Errc::binding where the
    // step does not suit this input.
    virtual void check(const TensorSpec& input) = 0;
    // Called at most once, with the slot's block of that input; not after the ring was closed, whose
    // `close` waits for it. What it throws fails the run.
    virtual void run(std::byte* input) = 0;
};

}  // namespace pipeline
