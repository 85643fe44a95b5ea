#include "network.hpp"

#include <array>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

namespace standin {
namespace {

struct Type {
    std::string_view name;
    std::int32_t number;
    std::size_t size;
};

constexpr std::array<Type, 5> types = {
    {{"string", 12, 0}, {"int32", 34, 4}, {"int64", 35, 8}, {"uint8", 37, 1}, {"float32", 43, 4}}};

const Type* find_type(std::int32_t number) {
    for (const auto& type : types) {
        if (type.number == number) return &type;
    }
    return nullptr;
}

template <class T>
T load(const void* data, std::size_t index) {
    T value{};
    std::memcpy(&value, static_cast<const char*>(data) + index * sizeof(T), sizeof(T));
    return value;
}

template <class T>
void store(void* data, std::size_t index, T value) {
    std::memcpy(static_cast<char*>(data) + index * sizeof(T), &value, sizeof(T));
}

double element(std::int32_t type, const void* data, std::size_t index) {
    switch (type) {
        case 34:
            return load<std::int32_t>(data, index);
        case 35:
            return static_cast<double>(load<std::int64_t>(data, index));
        case 37:
            return load<std::uint8_t>(data, index);
        default:
            return static_cast<double>(load<float>(data, index));
    }
}

void set_element(std::int32_t type, void* data, std::size_t index, double value) {
    switch (type) {
        case 34:
            return store(data, index, static_cast<std::int32_t>(static_cast<std::int64_t>(value)));
        case 35:
            return store(data, index, static_cast<std::int64_t>(value));
        case 37:
            return store(data, index, static_cast<std::uint8_t>(static_cast<std::int64_t>(value)));
        default:
            return store(data, index, static_cast<float>(value));
    }
}

std::optional<TensorInfo> read_tensor(std::istringstream& words) {
    TensorInfo tensor;
    std::string type;
    std::string format;
    if (!(words >> tensor.name >> type >> format)) return std::nullopt;
    for (const auto& known : types) {
        if (known.name == type) tensor.type = known.number;
    }
    if (tensor.type == 0) return std::nullopt;
    tensor.format = format == "NHWC" ? 1 : 0;
    for (std::int64_t extent = 0; words >> extent;) tensor.shape.push_back(extent);
    return tensor;
}

}  // namespace

std::size_t TensorInfo::elements() const {
    std::size_t count = 1;
    for (const auto extent : shape) count *= extent > 0 ? static_cast<std::size_t>(extent) : 0;
    return count;
}

std::size_t TensorInfo::bytes() const {
    const Type* known = find_type(type);
    return known != nullptr ? elements() * known->size : 0;
}

std::optional<Network> read_network(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    if (!std::getline(file, line) || line != "mindspore-lite-standin") return std::nullopt;
    Network network;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string side;
        if (!(words >> side)) continue;
        const auto tensor = read_tensor(words);
        if (!tensor || (side != "input" && side != "output")) return std::nullopt;
        (side == "input" ? network.inputs : network.outputs).push_back(*tensor);
    }
    return network;
}

void compute(const Network& network, const std::vector<const void*>& inputs,
             const std::vector<void*>& outputs) {
    std::vector<std::vector<double>> sums;
    for (std::size_t j = 0; j < outputs.size(); ++j) {
        const std::size_t count = network.outputs[j].elements();
        std::vector<double> sum(count, static_cast<double>(j + 1));
        for (std::size_t t = 0; t < inputs.size(); ++t) {
            const auto& info = network.inputs[t];
            for (std::size_t i = 0, k = 0; i < info.elements(); ++i, k = k + 1 == count ? 0 : k + 1) {
                sum[k] += static_cast<double>(t + 1) * element(info.type, inputs[t], i);
            }
        }
        sums.push_back(std::move(sum));
    }
    // Only now: a runtime may not write before it has read, wherever the memory is.
    for (std::size_t j = 0; j < outputs.size(); ++j) {
        for (std::size_t k = 0; k < sums[j].size(); ++k) {
            set_element(network.outputs[j].type, outputs[j], k, sums[j][k]);
        }
    }
}

}  // namespace standin
