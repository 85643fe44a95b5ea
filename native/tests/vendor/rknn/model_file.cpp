// Reads a model file: a head of 64 bytes, lines of text, weights. make_model.py writes them.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <sstream>
#include <stdexcept>

#include "model.hpp"

namespace standin {

namespace {

constexpr std::size_t head_bytes = 64;

using Fields = std::map<std::string, std::string>;

[[noreturn]] void bad(const std::string& reason) { throw std::runtime_error(reason); }

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
    return parts;
}

template <class T>
T number(const std::string& text) {
    T value{};
    const auto* end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value);
    if (result.ec != std::errc{} || result.ptr != end) bad("'" + text + "' is no number here");
    return value;
}

template <class T>
T field(const Fields& fields, const char* name, T otherwise) {
    const auto found = fields.find(name);
    return found == fields.end() ? otherwise : number<T>(found->second);
}

std::int32_t choice(const Fields& fields, const char* name,
                    const std::map<std::string, std::int32_t>& known) {
    const auto found = fields.find(name);
    const auto value = found == fields.end() ? known.end() : known.find(found->second);
    if (value == known.end()) bad(std::string("the field ") + name + " is missing or unknown");
    return value->second;
}

std::vector<double> doubles(const Fields& fields, const char* name, std::size_t count, double otherwise) {
    std::vector<double> values;
    const auto found = fields.find(name);
    if (found == fields.end()) return std::vector<double>(count, otherwise);
    for (const auto& part : split(found->second, ',')) values.push_back(number<double>(part));
    if (values.size() != count) bad(std::string(name) + " needs one value for each channel");
    return values;
}

void read_shapes(Tensor& tensor, const Fields& fields) {
    const auto dims = fields.find("dims");
    if (dims == fields.end()) bad("a tensor without dims");
    for (const auto& shape : split(dims->second, '|')) {
        auto& values = tensor.shapes.emplace_back();
        for (const auto& value : split(shape, ',')) values.push_back(number<std::uint32_t>(value));
        if (values.empty() || values.size() > rknn::max_dims) bad(tensor.name + ": 1 to 16 dimensions");
        if (std::any_of(values.begin(), values.end(), [](auto v) { return v == 0 || v > 1U << 20U; })) {
            bad(tensor.name + ": a dimension out of range");
        }
        if (tensor.extent(tensor.shapes.size() - 1).elements() > std::size_t{1} << 28U) {
            bad(tensor.name + ": too large");
        }
    }
    if (tensor.shapes.size() > rknn::max_dynamic_shapes) bad(tensor.name + ": too many shapes");
}

Tensor read_tensor(const Fields& fields, bool is_input, std::size_t index) {
    namespace type = rknn::tensor_type;
    namespace fmt = rknn::tensor_format;
    Tensor tensor;
    tensor.is_input = is_input;
    tensor.index = static_cast<std::uint32_t>(index);
    const auto name = fields.find("name");
    if (name == fields.end() || name->second.size() >= rknn::max_name) bad("a tensor without a name");
    tensor.name = name->second;
    tensor.type = choice(fields, "type",
                         {{"int8", type::int8},
                          {"uint8", type::uint8},
                          {"float16", type::float16},
                          {"float32", type::float32}});
    tensor.qnt = choice(fields, "qnt",
                        {{"none", rknn::quantisation::none},
                         {"dfp", rknn::quantisation::dfp},
                         {"affine", rknn::quantisation::affine}});
    tensor.native = choice(
        fields, "native",
        {{"nchw", fmt::nchw}, {"nhwc", fmt::nhwc}, {"nc1hwc2", fmt::nc1hwc2}, {"undefined", fmt::undefined}});
    tensor.scale = field<float>(fields, "scale", 1.0F);
    tensor.zp = field<std::int32_t>(fields, "zp", 0);
    tensor.fl = field<std::int8_t>(fields, "fl", 0);
    tensor.mult = field<double>(fields, "mult", 1.0);
    tensor.c2 = std::max<std::size_t>(field<std::size_t>(fields, "c2", 16), 1);
    tensor.w_align = std::max<std::size_t>(field<std::size_t>(fields, "w_align", 1), 1);
    tensor.h_align = std::max<std::size_t>(field<std::size_t>(fields, "h_align", 1), 1);
    tensor.extra = field<std::size_t>(fields, "extra", 0);
    read_shapes(tensor, fields);
    if ((tensor.native == fmt::undefined) == (tensor.shapes.front().size() == 4)) {
        bad(tensor.name + ": 'undefined' is the layout of tensors that are not 4-D, and of no other");
    }
    tensor.mean = doubles(fields, "mean", tensor.extent(0).c, 0.0);
    tensor.std = doubles(fields, "std", tensor.extent(0).c, 1.0);
    return tensor;
}

void read_text(Model& model, const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string kind;
        if (!(words >> kind)) continue;
        if (kind == "custom") {
            std::getline(words >> std::ws, model.custom);
            continue;
        }
        if (kind == "platform") {
            for (std::string name; words >> name;) model.platforms.push_back(name);
            continue;
        }
        Fields fields;
        for (std::string word; words >> word;) {
            const auto equals = word.find('=');
            if (equals == std::string::npos) bad("'" + word + "' is no field");
            fields[word.substr(0, equals)] = word.substr(equals + 1);
        }
        if (kind == "model") {
            model.run_us = field<std::uint32_t>(fields, "run_us", 0);
        } else if (kind == "input") {
            model.inputs.push_back(read_tensor(fields, true, model.inputs.size()));
        } else if (kind == "output") {
            model.outputs.push_back(read_tensor(fields, false, model.outputs.size()));
        } else {
            bad("'" + kind + "' begins no line");
        }
    }
}

// An output's plane is a whole fraction of each input's, or the input is one value for each channel.
void check_planes(const Model& model, std::size_t shape) {
    for (const auto& output : model.outputs) {
        const auto out = output.extent(shape);
        for (const auto& input : model.inputs) {
            const auto in = input.extent(shape);
            const bool one = in.h == 1 && in.w == 1;
            if (in.n != out.n || (!one && (in.h % out.h != 0 || in.w % out.w != 0))) {
                bad(output.name + ": its plane is no whole fraction of that of " + input.name);
            }
            if (in.c != input.extent(0).c) bad(input.name + ": the channels change with the shape");
        }
        if (out.c != output.extent(0).c) bad(output.name + ": the channels change with the shape");
    }
}

void check(const Model& model) {
    if (model.inputs.empty() || model.outputs.empty()) bad("it needs an input and an output");
    std::vector<std::string> names;
    for (const auto* tensors : {&model.inputs, &model.outputs}) {
        for (const auto& tensor : *tensors) {
            names.push_back(tensor.name);
            if (tensor.shapes.size() != model.shapes()) bad(tensor.name + ": another number of shapes");
        }
    }
    std::sort(names.begin(), names.end());
    if (std::adjacent_find(names.begin(), names.end()) != names.end()) bad("two tensors of one name");
    for (std::size_t shape = 0; shape < model.shapes(); ++shape) check_planes(model, shape);
}

void read_weights(Model& model, const std::uint8_t* data, std::size_t size) {
    std::size_t channels = 0;
    for (const auto& input : model.inputs) channels += input.extent(0).c;
    std::size_t at = 0;
    for (const auto& output : model.outputs) {
        const std::size_t count = output.extent(0).c;
        auto& weights = model.weights.emplace_back();
        weights.factors.resize(count * channels);
        weights.bias.resize(count);
        if (size - at < weights.factors.size() + count * 4) bad("the weights are cut short");
        std::memcpy(weights.factors.data(), data + at, weights.factors.size());
        at += weights.factors.size();
        std::memcpy(weights.bias.data(), data + at, count * 4);
        at += count * 4;
    }
    if (at != size) bad("there are more weights than the outputs have");
}

}  // namespace

std::uint32_t model_version(const void* data, std::size_t size) noexcept {
    std::uint32_t version = 0;
    if (size < head_bytes || std::memcmp(data, "RKNN", 4) != 0) return 0;
    std::memcpy(&version, static_cast<const std::uint8_t*>(data) + 8, sizeof version);
    return version;
}

std::shared_ptr<const Model> parse_model(const void* data, std::size_t size) {
    auto model = std::make_shared<Model>();
    model->version = model_version(data, size);
    if (model->version == 0) bad("it does not begin as a model file");
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    std::uint64_t text = 0;
    std::uint64_t weights = 0;
    std::memcpy(&text, bytes + 16, sizeof text);
    std::memcpy(&weights, bytes + 24, sizeof weights);
    if (text > size || weights > size || head_bytes + text + weights != size) {
        bad("its length is not that which its head tells");
    }
    read_text(*model, std::string(reinterpret_cast<const char*>(bytes) + head_bytes, text));
    check(*model);
    read_weights(*model, bytes + head_bytes + text, weights);
    return model;
}

}  // namespace standin
