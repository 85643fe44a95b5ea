// A frame resized into a slot's first input before its run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "core/input_step.hpp"
#include "core/resizer.hpp"

namespace pipeline {

// The input is uint8 (1, height, width, 3) with dense rows. The frame is kept by whoever submits, until
// the run has ended or the ring is closed.
class ResizeStep final : public InputStep {
public:
    // `top` and `left`: where in the input the first pixel goes. The input is filled with `pad` before,
    // unless whoever submits knows that it was.
    ResizeStep(std::shared_ptr<const Resizer> resizer, Frame frame, std::size_t top, std::size_t left,
               std::optional<std::uint8_t> pad)
        : resizer_(std::move(resizer)), frame_(frame), top_(top), left_(left), pad_(pad) {}

    void check(const TensorSpec& input) override;
    void run(std::byte* input) override;

private:
    std::shared_ptr<const Resizer> resizer_;
    Frame frame_;
    std::size_t top_;
    std::size_t left_;
    std::optional<std::uint8_t> pad_;
    std::ptrdiff_t stride_ = 0;  // of the input, as checked
    std::size_t rows_ = 0;
    std::size_t columns_ = 0;
};

}  // namespace pipeline
