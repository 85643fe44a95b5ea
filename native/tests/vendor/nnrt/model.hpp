// The stand-in's offline models and the network that they define; see README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engines/nnrt/abi.hpp"

namespace standin {

struct Tensor {
    std::string name;
    OH_NN_DataType type = OH_NN_UNKNOWN;
    OH_NN_Format format = OH_NN_FORMAT_NONE;
    std::vector<std::int32_t> shape;  // -1: left open
    std::size_t smallest = 1;
    std::size_t largest = 4096;

    // Whether `given` is this shape with what is open filled in.
    [[nodiscard]] bool takes(const std::vector<std::int32_t>& given) const;
};

struct Model {
    std::vector<std::uint32_t> weights;
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
    std::string text;
};

[[nodiscard]] std::size_t item_size(OH_NN_DataType type);
// Bytes of a tensor; 0 when its shape is open.
[[nodiscard]] std::size_t byte_size(OH_NN_DataType type, const std::vector<std::int32_t>& shape);
// Nothing when the file is no such model.
[[nodiscard]] std::shared_ptr<const Model> read_model(const std::string& path);

using Bytes = std::pair<const std::byte*, std::size_t>;
void run_network(const Model& model, const std::vector<Bytes>& inputs, std::size_t output, std::byte* target,
                 std::size_t bytes);

}  // namespace standin
