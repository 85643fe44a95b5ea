#include "tests/vendor/nnrt/model.hpp"

#include <bit>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

namespace standin {
namespace {

const std::map<std::string, OH_NN_DataType> types = {
    {"bool", OH_NN_BOOL},       {"int8", OH_NN_INT8},       {"int16", OH_NN_INT16},
    {"int32", OH_NN_INT32},     {"int64", OH_NN_INT64},     {"uint8", OH_NN_UINT8},
    {"uint16", OH_NN_UINT16},   {"uint32", OH_NN_UINT32},   {"uint64", OH_NN_UINT64},
    {"float16", OH_NN_FLOAT16}, {"float32", OH_NN_FLOAT32}, {"float64", OH_NN_FLOAT64},
    {"unknown", OH_NN_UNKNOWN}};
const std::map<std::string, OH_NN_Format> formats = {{"NONE", OH_NN_FORMAT_NONE},
                                                     {"NCHW", OH_NN_FORMAT_NCHW},
                                                     {"NHWC", OH_NN_FORMAT_NHWC},
                                                     {"ND", OH_NN_FORMAT_ND}};

bool read_tensor(std::istringstream& line, std::vector<Tensor>& tensors) {
    Tensor tensor;
    std::string type;
    std::string format;
    if (!(line >> tensor.name >> type >> format)) return false;
    if (!types.contains(type) || !formats.contains(format)) return false;
    tensor.type = types.at(type);
    tensor.format = formats.at(format);
    for (std::int32_t size = 0; line >> size;) {
        if (size == 0 || size < -1) return false;
        tensor.shape.push_back(size);
    }
    tensors.push_back(std::move(tensor));
    return line.eof();
}

std::uint16_t half_bits(std::uint32_t value) {
    if (value == 0) return 0;
    const auto exponent = static_cast<std::uint32_t>(std::bit_width(value)) - 1;
    const std::uint32_t fraction = (value << (10 - exponent)) & 0x3FFU;
    return static_cast<std::uint16_t>(((exponent + 15) << 10) | fraction);
}

template <class T>
void store(std::byte* target, std::size_t index, T value) {
    std::memcpy(target + index * sizeof(T), &value, sizeof(T));
}

void store_value(OH_NN_DataType type, std::byte* target, std::size_t index, std::uint32_t value) {
    switch (type) {
        case OH_NN_FLOAT16:
            return store(target, index, half_bits(value % 2048));
        case OH_NN_FLOAT32:
            return store(target, index, static_cast<float>(value));
        case OH_NN_FLOAT64:
            return store(target, index, static_cast<double>(value));
        case OH_NN_BOOL:
            return store(target, index, static_cast<std::uint8_t>(value & 1U));
        default:
            break;
    }
    const std::uint64_t wide = value;  // little endian, so the low bytes come first
    std::memcpy(target + index * item_size(type), &wide, item_size(type));
}

}  // namespace

bool Tensor::takes(const std::vector<std::int32_t>& given) const {
    if (given.size() != shape.size()) return false;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        const auto size = static_cast<std::size_t>(given[i]);
        if (shape[i] == -1 ? (given[i] <= 0 || size < smallest || size > largest) : given[i] != shape[i])
            return false;
    }
    return true;
}

std::size_t item_size(OH_NN_DataType type) {
    switch (type) {
        case OH_NN_BOOL:
        case OH_NN_INT8:
        case OH_NN_UINT8:
            return 1;
        case OH_NN_INT16:
        case OH_NN_UINT16:
        case OH_NN_FLOAT16:
            return 2;
        case OH_NN_INT32:
        case OH_NN_UINT32:
        case OH_NN_FLOAT32:
            return 4;
        case OH_NN_INT64:
        case OH_NN_UINT64:
        case OH_NN_FLOAT64:
            return 8;
        case OH_NN_UNKNOWN:
            break;
    }
    return 0;
}

std::size_t byte_size(OH_NN_DataType type, const std::vector<std::int32_t>& shape) {
    std::size_t bytes = item_size(type);
    for (const auto size : shape) bytes *= size > 0 ? static_cast<std::size_t>(size) : 0;
    return bytes;
}

std::shared_ptr<const Model> read_model(const std::string& path) {
    std::ifstream file(path);
    std::stringstream whole;
    whole << file.rdbuf();
    auto model = std::make_shared<Model>();
    model->text = whole.str();
    std::string line;
    if (!std::getline(whole, line) || line != "standin-nnrt 1") return nullptr;
    while (std::getline(whole, line)) {
        std::istringstream words(line);
        std::string kind;
        if (!(words >> kind)) continue;
        bool good = false;
        if (kind == "weights") {
            for (std::uint32_t weight = 0; words >> weight;) model->weights.push_back(weight);
            good = words.eof();
        } else if (kind == "input" || kind == "output") {
            good = read_tensor(words, kind == "input" ? model->inputs : model->outputs);
        } else if (kind == "range" && !model->inputs.empty()) {
            good = static_cast<bool>(words >> model->inputs.back().smallest >> model->inputs.back().largest);
        }
        if (!good) return nullptr;
    }
    if (model->weights.empty() || model->inputs.empty() || model->outputs.empty()) return nullptr;
    return model;
}

void run_network(const Model& model, const std::vector<Bytes>& inputs, std::size_t output, std::byte* target,
                 std::size_t bytes) {
    const OH_NN_DataType type = model.outputs[output].type;
    const std::size_t count = bytes / item_size(type);
    std::vector<std::uint32_t> sums(count, static_cast<std::uint32_t>(output));
    std::size_t element = 0;
    std::size_t weight = 0;
    for (const auto& [data, length] : inputs) {
        for (std::size_t i = 0; i < length; ++i) {
            sums[element] += std::to_integer<std::uint32_t>(data[i]) * model.weights[weight];
            if (++element == count) {
                element = 0;
                weight = (weight + 1) % model.weights.size();
            }
        }
    }
    for (std::size_t k = 0; k < count; ++k) store_value(type, target, k, sums[k]);
}

}  // namespace standin
