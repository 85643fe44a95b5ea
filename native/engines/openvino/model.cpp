// Tells other files from models before OpenVINO does, reads, reshapes, and describes the ports.
#ifdef PIPELINE_WITH_OPENVINO

#include "engines/openvino/model.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <istream>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

namespace pipeline::openvino {
namespace {

constexpr std::pair<ov_element_type_e, DType> element_types[] = {
    {BOOLEAN, DType::boolean}, {U8, DType::u8},   {I8, DType::i8},   {U16, DType::u16},
    {I16, DType::i16},         {U32, DType::u32}, {I32, DType::i32}, {U64, DType::u64},
    {I64, DType::i64},         {F16, DType::f16}, {F32, DType::f32}, {F64, DType::f64},
};

std::string_view unsupported_name(ov_element_type_e type) {
    switch (type) {
        case DYNAMIC:
            return "dynamic";
        case STRING:
            return "string";
        case BF16:
            return "bfloat16";
        case U1:
        case U2:
        case U3:
        case U4:
        case U6:
        case I4:
        case NF4:
        case F4E2M1:
            return "narrower than a byte";
        default:
            return "an 8-bit float";
    }
}

std::string shape_text(std::span<const std::int64_t> shape) {
    std::string text = "[";
    for (const auto extent : shape) text += (text.size() > 1 ? "," : "") + std::to_string(extent);
    return text + "]";
}

// [?,3,32..64,32]; [...] when even the rank is open.
std::string shape_text(const ov_partial_shape_t& shape) {
    if (shape.rank.min != shape.rank.max) return "[...]";
    std::string text = "[";
    for (const auto& dim : std::span(shape.dims, static_cast<std::size_t>(shape.rank.max))) {
        if (text.size() > 1) text += ",";
        if (dim.min == dim.max) {
            text += std::to_string(dim.max);
        } else if (dim.min <= 0 && dim.max < 0) {
            text += "?";
        } else {
            text += std::to_string(dim.min) + ".." + (dim.max < 0 ? "" : std::to_string(dim.max));
        }
    }
    return text + "]";
}

std::vector<Port> model_ports(const Api& api, const ov_model_t* model, Direction direction) {
    const bool input = direction == Direction::input;
    const auto count = input ? api.ov_model_inputs_size : api.ov_model_outputs_size;
    const auto get = input ? api.ov_model_const_input_by_index : api.ov_model_const_output_by_index;
    std::size_t size = 0;
    api.check(count(model, &size), Errc::model, "cannot count the model's tensors");
    std::vector<Port> ports;
    for (std::size_t i = 0; i < size; ++i) {
        const auto port =
            api.own(api.ov_output_const_port_free, Errc::model, "cannot look at a tensor of the model",
                    [&](ov_output_const_port_t** out) { return get(model, i, out); });
        ports.push_back(read_port(api, port.get(), direction, i));
    }
    return ports;
}

std::optional<std::uint64_t> read_varint(std::istream& file) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const int byte = file.get();
        if (byte < 0) return std::nullopt;
        value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
        if (byte < 0x80) return value;
    }
    return std::nullopt;
}

// Whether the fields of an ONNX ModelProto reach to the file's end, a graph among them. Fields that
// later versions of ONNX add are taken as they are.
bool is_whole_onnx(std::istream& file, std::uint64_t bytes) {
    constexpr std::uint64_t graph_field = 7;
    bool graph = false;
    file.clear();
    file.seekg(0);
    while (static_cast<std::uint64_t>(file.tellg()) < bytes) {
        const auto tag = read_varint(file);
        if (!tag || *tag >> 3 == 0) return false;
        const auto kind = *tag & 7;
        std::optional<std::uint64_t> skipped = kind == 1 ? 8 : 4;
        if (kind == 0) {
            if (!read_varint(file)) return false;
            continue;
        }
        if (kind == 2) {
            skipped = read_varint(file);
        } else if (kind != 1 && kind != 5) {
            return false;
        }
        if (!skipped || *skipped > bytes - static_cast<std::uint64_t>(file.tellg())) return false;
        graph = graph || (kind == 2 && *tag >> 3 == graph_field && *skipped > 0);
        file.seekg(static_cast<std::streamoff>(*skipped), std::ios::cur);
    }
    return graph;
}

// Takes `text` up to and with `end` off; false where there is no such end.
bool skip_to(std::string_view& text, std::string_view end) {
    const auto at = text.find(end);
    if (at == text.npos) return false;
    text.remove_prefix(at + end.size());
    return true;
}

void skip_blanks(std::string_view& text) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

// Whether XML begins with the element of an IR of a version from 10 on, as OpenVINO looks for it: behind
// a declaration and comments, whole, its attributes in quotes of either kind.
bool begins_as_ir(std::string_view head) {
    if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
    for (skip_blanks(head); head.starts_with("<?") || head.starts_with("<!--"); skip_blanks(head)) {
        if (!skip_to(head, head[1] == '?' ? "?>" : "-->")) return false;
    }
    if (!head.starts_with("<net")) return false;
    head.remove_prefix(4);
    bool known = false;
    while (!head.empty() && std::isspace(static_cast<unsigned char>(head[0])) != 0) {
        skip_blanks(head);
        if (head.starts_with(">") || head.starts_with("/>")) break;
        const auto name = head.substr(0, head.find_first_of("= \t\r\n>"));
        head.remove_prefix(name.size());
        skip_blanks(head);
        if (name.empty() || !head.starts_with("=")) return false;
        head.remove_prefix(1);
        skip_blanks(head);
        if (head.empty() || (head[0] != '"' && head[0] != '\'')) return false;
        const std::string_view quote = head.substr(0, 1);
        head.remove_prefix(1);
        const auto value = head.substr(0, head.find(quote));
        if (!skip_to(head, quote)) return false;
        known = known || (name == "version" && value.size() == 2 && value[0] == '1');
    }
    return known && (head.starts_with(">") || head.starts_with("/>"));
}

// What a file is not, by its ending and first bytes. OpenVINO would find out, too, but only after
// other frontends printed what they think of it on the user's terminal.
void refuse_other_formats(const std::string& path) {
    std::array<char, 4096> bytes{};
    std::ifstream file(path, std::ios::binary);
    if (!file) throw Error(Errc::model, path + ": cannot be opened for reading");
    file.read(bytes.data(), bytes.size());
    const std::string_view head(bytes.data(), static_cast<std::size_t>(file.gcount()));
    std::string ending = std::filesystem::path(path).extension().string();
    std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
    const auto refuse = [&](const std::string& what) {
        throw Error(Errc::model, path + ": not " + what + (head.empty() ? ", the file is empty" : ""));
    };
    std::error_code error;
    const bool other = ending == ".tflite" || ending == ".xml" || ending == ".pb" || ending == ".pdmodel";
    if (!other && !is_whole_onnx(file, std::filesystem::file_size(path, error))) {
        refuse(head.empty() ? "an ONNX model" : "an ONNX model, or not all of one");
    }
    if (ending == ".tflite" && (head.size() < 8 || head.substr(4, 4) != "TFL3")) refuse("a TFLite model");
    if (ending == ".xml" && !begins_as_ir(head)) refuse("an OpenVINO IR (XML)");
}

Owned<ov_model_t> read_file(const Api& api, const ov_core_t* core, const std::string& path) {
    if (path.empty()) throw Error(Errc::model, "no model file was named");
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) throw Error(Errc::model, path + ": no such file");
    if (std::filesystem::is_directory(status))
        throw Error(Errc::model, path + ": a folder, not a model file");
    refuse_other_formats(path);
    return api.own(
        api.ov_model_free, Errc::model, path + ": OpenVINO cannot read the model",
        [&](ov_model_t** out) { return api.ov_core_read_model(core, path.c_str(), nullptr, out); });
}

// The order of an image's dimensions, as the number of channels tells it.
std::string image_order(const std::vector<std::int64_t>& shape) {
    const auto is_channels = [](auto size) { return size == 1 || size == 3 || size == 4; };
    if (shape.size() != 4 || is_channels(shape[1]) == is_channels(shape[3])) return "";
    return is_channels(shape[1]) ? " NCHW" : " NHWC";
}

void reshape(const Api& api, const ov_model_t* model, const OpenVinoOptions& options) {
    const auto& wanted = *options.input_shape;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        if (wanted[i] > 0) continue;
        throw Error(Errc::config, std::to_string(wanted[i]) + " is not above 0",
                    "input_shape." + std::to_string(i));
    }
    const Port input = model_ports(api, model, Direction::input).at(0);
    if (input.rank && *input.rank != wanted.size()) {
        throw Error(Errc::model,
                    options.model + ": " + input.label() + " has rank " + std::to_string(*input.rank) + " " +
                        input.shape_text + ", but input_shape has rank " + std::to_string(wanted.size()) +
                        " " + shape_text(wanted),
                    "input_shape");
    }
    if (!input.dynamic && input.shape == wanted) return;
    const std::string what = options.model + ": " + input.label() + ": input_shape " + shape_text(wanted) +
                             " does not fit: the model declares " + input.shape_text +
                             image_order(input.shape);
    ov_partial_shape_t shape{};
    api.check(
        api.ov_partial_shape_create_static(static_cast<std::int64_t>(wanted.size()), wanted.data(), &shape),
        Errc::model, what, "input_shape");
    const std::size_t index = 0;
    const auto status = api.ov_model_reshape_by_port_indexes(model, &index, &shape, 1);
    api.ov_partial_shape_free(&shape);
    api.check(status, Errc::model, what, "input_shape");
}

}  // namespace

std::string Port::label() const {
    return std::string(direction_name(direction)) + " " + std::to_string(index) + " '" + name + "'";
}

Port read_port(const Api& api, const ov_output_const_port_t* port, Direction direction, std::size_t index) {
    Port result;
    result.direction = direction;
    result.index = index;
    char* name = nullptr;
    // A tensor may have no name at all; that is no failure.
    if (api.ov_port_get_any_name(port, &name) == OK) result.name = api.take(name);
    if (result.name.empty())
        result.name = std::string(direction_name(direction)) + "_" + std::to_string(index);
    const std::string what = "cannot look at " + result.label();
    api.check(api.ov_port_get_element_type(port, &result.type), Errc::model, what);
    ov_partial_shape_t shape{};
    api.check(api.ov_port_get_partial_shape(port, &shape), Errc::model, what);
    const std::unique_ptr<ov_partial_shape_t, void (*)(ov_partial_shape_t*)> guard(&shape,
                                                                                   api.ov_partial_shape_free);
    result.shape_text = shape_text(shape);
    result.dynamic = shape.rank.min != shape.rank.max;
    if (!result.dynamic) {
        const std::span dims(shape.dims, static_cast<std::size_t>(shape.rank.max));
        result.rank = dims.size();
        result.dynamic = std::ranges::any_of(dims, [](const auto& dim) { return dim.min != dim.max; });
        if (!result.dynamic)
            std::ranges::transform(dims, std::back_inserter(result.shape), &ov_dimension_t::max);
    }
    return result;
}

TensorSpec make_spec(const std::string& path, const Port& port, bool inputs_open) {
    const std::string place = path + ": " + port.label();
    if (port.dynamic) {
        throw Error(Errc::model, place + " has the open shape " + port.shape_text +
                                     (inputs_open ? ", but buffers need a fixed one: set input_shape"
                                                  : ", which depends on the data; buffers need a fixed one"));
    }
    const auto* known =
        std::ranges::find(element_types, port.type, [](const auto& entry) { return entry.first; });
    if (known == std::end(element_types)) {
        throw Error(Errc::model, place + " has an element type that is not supported: " +
                                     std::string(unsupported_name(port.type)));
    }
    if (std::ranges::any_of(port.shape, [](std::int64_t extent) { return extent <= 0; })) {
        throw Error(Errc::model, place + " is empty: its shape is " + port.shape_text);
    }
    TensorSpec spec;
    spec.name = port.name;
    spec.dtype = known->second;
    spec.shape = port.shape;
    return spec;
}

ov_element_type_e element_type(DType dtype) noexcept {
    return std::ranges::find(element_types, dtype, [](const auto& entry) { return entry.second; })->first;
}

Model load_model(const Api& api, const ov_core_t* core, const OpenVinoOptions& options) {
    auto model = read_file(api, core, options.model);
    auto inputs = model_ports(api, model.get(), Direction::input);
    if (inputs.empty()) throw Error(Errc::model, options.model + ": the model has no input");
    if (options.input_shape) {
        reshape(api, model.get(), options);
        inputs = model_ports(api, model.get(), Direction::input);
    }
    // Checked before compiling, which takes long and explains less.
    const bool inputs_open = std::ranges::any_of(inputs, &Port::dynamic);
    for (const auto& port : inputs) {
        if (port.dynamic) static_cast<void>(make_spec(options.model, port, true));
    }
    for (const auto& port : model_ports(api, model.get(), Direction::output)) {
        static_cast<void>(make_spec(options.model, port, inputs_open));
    }
    Model result = fold_images(api, options, std::move(model), inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (!result.image_inputs[i]) static_cast<void>(make_spec(options.model, inputs[i], true));
    }
    return result;
}

}  // namespace pipeline::openvino

#endif  // PIPELINE_WITH_OPENVINO
