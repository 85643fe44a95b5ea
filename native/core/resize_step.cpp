// Checks that a resized frame fits the input, pads the input and resizes into it.
#include "core/resize_step.hpp"

#include <cstring>
#include <string>

#include "core/error.hpp"

namespace pipeline {

void ResizeStep::check(const TensorSpec& input) {
    const auto refuse = [&](const std::string& what) {
        throw Error(Errc::binding, "input '" + input.name + "': " + what);
    };
    const auto strides = input.strides();
    if (input.dtype != DType::u8 || input.shape.size() != 4 || input.shape[0] != 1 || input.shape[3] != 3 ||
        strides[3] != 1 || strides[2] != 3) {
        refuse("frames can only be resized into uint8 (1, height, width, 3)");
    }
    stride_ = strides[1];
    rows_ = static_cast<std::size_t>(input.shape[1]);
    columns_ = static_cast<std::size_t>(input.shape[2]);
    const Area& area = resizer_->area();
    const auto inside = [](std::size_t at, std::size_t length, std::size_t all) {
        return at <= all && length <= all - at;
    };
    if (!inside(top_, area.height, rows_) || !inside(left_, area.width, columns_)) {
        refuse("the resized frame is larger than what is left of the input");
    }
    if (!resizer_->within(frame_)) refuse("the frame does not hold the area that is to be resized");
}

void ResizeStep::run(std::byte* input) {
    const Target pixels{reinterpret_cast<std::uint8_t*>(input), stride_};
    if (pad_) {
        for (std::size_t row = 0; row < rows_; ++row) std::memset(pixels.row(row), *pad_, columns_ * 3);
    }
    resizer_->resize(frame_, {pixels.row(top_) + left_ * 3, stride_});
}

}  // namespace pipeline
