// The stand-in's model: a text file that names tensors, and the one network it stands for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace standin {

struct TensorInfo {
    std::string name;
    std::int32_t type = 0;    // as MindSpore Lite numbers it
    std::int32_t format = 0;  // 0 NCHW, 1 NHWC
    std::vector<std::int64_t> shape;

    [[nodiscard]] std::size_t elements() const;  // 0 while the shape is open
    [[nodiscard]] std::size_t bytes() const;
};

struct Network {
    std::vector<TensorInfo> inputs;
    std::vector<TensorInfo> outputs;
};

// A first line "mindspore-lite-standin", then one tensor a line:
//     input|output NAME TYPE NHWC|NCHW EXTENT...
// with NumPy's name of the type and -1 for an open extent. Nothing when it is no such file.
[[nodiscard]] std::optional<Network> read_network(const std::string& path);

// Element k of output j, which has M of them, is j + 1 and, over all inputs t, (t + 1) times the sum
// of the input's elements k, k + M, k + 2M, ... Integers wrap.
void compute(const Network& network, const std::vector<const void*>& inputs,
             const std::vector<void*>& outputs);

}  // namespace standin
