// Reads a model's attributes and works out shapes, types and where values lie in NPU memory.
#include "engines/rknn/model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>

namespace pipeline::rknn {
namespace {

constexpr std::array<std::optional<DType>, 12> types = {
    DType::f32, DType::f16, DType::i8,  DType::u8,      DType::i16,   DType::u16,
    DType::i32, DType::u32, DType::i64, DType::boolean, std::nullopt, std::nullopt};  // int4, bfloat16

constexpr std::array<std::string_view, 4> formats = {"NCHW", "NHWC", "NC1HWC2", ""};

std::string_view format_name(std::int32_t format) {
    return format >= 0 && format < 4 ? formats[static_cast<std::size_t>(format)] : "";
}

std::span<const std::uint32_t> dims(const TensorAttr& attr) {
    return std::span(attr.dims).first(std::min<std::size_t>(attr.n_dims, max_dims));
}

template <class Values>
std::string shape_text(const Values& shape) {
    std::string text = "[";
    for (const auto extent : shape) text += (text.size() > 1 ? "," : "") + std::to_string(extent);
    return text + "]";
}

std::vector<std::int64_t> nhwc(const TensorAttr& attr) {
    const auto& d = attr.dims;
    if (attr.fmt == tensor_format::nchw) return {d[0], d[2], d[3], d[1]};
    return {d[0], d[1], d[2], d[3]};
}

TensorAttr query_attr(const Api& api, Context context, std::int32_t command, std::size_t index,
                      const std::string& what) {
    TensorAttr attr{};
    attr.index = static_cast<std::uint32_t>(index);
    api.check(api.query(context, command, attr), Errc::model, "the runtime does not describe " + what);
    if (attr.n_dims > max_dims) {
        throw Error(Errc::model, what + " has " + std::to_string(attr.n_dims) + " dimensions");
    }
    return attr;
}

DType element_type(const TensorAttr& attr, const std::string& label) {
    const auto type = static_cast<std::size_t>(attr.type);
    if (attr.type >= 0 && type < types.size() && types[type]) return *types[type];
    const std::string_view name = attr.type == tensor_type::int4       ? "int4"
                                  : attr.type == tensor_type::bfloat16 ? "bfloat16"
                                                                       : "unknown";
    throw Error(Errc::model, label + " has an element type that is not supported: " + std::string(name) +
                                 " (" + std::to_string(attr.type) + ")");
}

std::optional<Quantization> quantization(const TensorAttr& attr) {
    if (attr.qnt_type == quantisation::affine) return Quantization{attr.scale, attr.zp};
    if (attr.qnt_type == quantisation::dfp) return Quantization{std::ldexp(1.0F, -attr.fl), 0};
    return std::nullopt;
}

Tensor start(const TensorAttr& logical, Direction direction, std::size_t index) {
    Tensor tensor;
    auto& name = tensor.spec.name;
    name.assign(logical.name, ::strnlen(logical.name, max_name));
    if (name.empty()) name = std::string(direction_name(direction)) + "_" + std::to_string(index);
    tensor.label = std::string(direction_name(direction)) + " " + std::to_string(index) + " '" + name + "'";
    for (const auto extent : dims(logical)) tensor.spec.shape.push_back(extent);
    if (tensor.spec.shape.empty() || std::ranges::count(tensor.spec.shape, 0) > 0) {
        throw Error(Errc::model, tensor.label + " is empty: its shape is " + shape_text(tensor.spec.shape));
    }
    tensor.spec.dtype = element_type(logical, tensor.label);
    if (logical.n_dims == 4) tensor.spec.layout = format_name(logical.fmt);
    return tensor;
}

std::string native_text(const Tensor& tensor, const TensorAttr& attr) {
    std::string text(dtype_name(element_type(attr, tensor.label)));
    if (const auto format = format_name(attr.fmt); !format.empty()) text += " " + std::string(format);
    return text + " " + shape_text(dims(attr));
}

// Images are taken as u8 NHWC; the NPU itself normalises and quantises them.
bool is_image(const TensorAttr& logical) {
    if (logical.n_dims != 4) return false;
    const auto channels = nhwc(logical)[3];
    return channels == 1 || channels == 3 || channels == 4;
}

Tensor make_input(const TensorAttr& logical, const TensorAttr& native, std::size_t index,
                  const RknnOptions& options) {
    Tensor tensor = start(logical, Direction::input, index);
    TensorSpec& spec = tensor.spec;
    const bool zero_copy = options.mode == RknnMode::zero_copy;
    tensor.attr = zero_copy ? native : logical;
    tensor.native = native_text(tensor, tensor.attr);
    const bool image = options.image_input && is_image(logical);
    // The runtime takes NHWC for what the NPU wants in blocks of channels, and reorders it.
    if (image || (zero_copy && native.fmt == tensor_format::nc1hwc2 && logical.n_dims == 4)) {
        spec.shape = nhwc(logical);
        spec.layout = "NHWC";
        tensor.by_runtime = zero_copy && native.fmt != tensor_format::nhwc;
        tensor.attr.fmt = tensor_format::nhwc;
        tensor.attr.n_dims = 4;
        std::ranges::transform(spec.shape, tensor.attr.dims,
                               [](std::int64_t extent) { return static_cast<std::uint32_t>(extent); });
    }
    if (image) {
        spec.dtype = DType::u8;
        tensor.attr.type = tensor_type::uint8;
    } else if (!zero_copy && (quantization(logical) || spec.dtype == DType::f16)) {
        // What rknn_inputs_set is given stands for real values, which it quantises.
        spec.dtype = DType::f32;
        tensor.attr.type = tensor_type::float32;
    } else {
        spec.dtype = element_type(tensor.attr, tensor.label);
        spec.quantization = quantization(tensor.attr);
    }
    tensor.attr.pass_through = 0;
    if (!zero_copy) return tensor;
    const auto width = spec.shape.size() == 4 ? static_cast<std::uint32_t>(spec.shape[2]) : 0;
    if (spec.layout == "NHWC" && native.fmt == tensor_format::nhwc && native.w_stride > width) {
        spec.row_stride = native.w_stride * static_cast<std::size_t>(spec.shape[3]) * item_size(spec.dtype);
    }
    tensor.native_bytes = std::max<std::size_t>({spec.driver_size(), native.size_with_stride, native.size});
    spec.block_bytes = tensor.native_bytes;
    return tensor;
}

// Where the values of an output are in NPU memory; nothing where its layout is not known.
std::optional<Placement> place(const TensorAttr& logical, const TensorAttr& native) {
    Placement p;
    const auto& d = native.dims;
    if (logical.n_dims != 4 || native.fmt == tensor_format::undefined) {
        if (native.fmt == tensor_format::nc1hwc2) return std::nullopt;
        for (const auto extent : dims(logical)) p.columns *= extent;
        p.image = p.block_stride = p.channel = p.row = p.columns;
        return p;
    }
    const auto shape = nhwc(logical);
    p.images = static_cast<std::size_t>(shape[0]);
    p.rows = static_cast<std::size_t>(shape[1]);
    p.columns = static_cast<std::size_t>(shape[2]);
    p.channels = static_cast<std::size_t>(shape[3]);
    const auto stride = [&](std::size_t width) { return std::max<std::size_t>(width, native.w_stride); };
    if (native.fmt == tensor_format::nc1hwc2 && native.n_dims == 5) {
        p.block = d[4];
        p.column = d[4];
        p.channel = 1;
        p.row = stride(d[3]) * p.block;
        p.block_stride = d[2] * p.row;
        p.image = d[1] * p.block_stride;
        return p.block > 0 && d[1] * p.block >= p.channels && d[2] >= p.rows ? std::optional(p)
                                                                             : std::nullopt;
    }
    if (native.n_dims != 4) return std::nullopt;
    p.block = p.channels;
    if (native.fmt == tensor_format::nhwc) {
        p.channel = 1;
        p.column = p.channels;
        p.row = stride(p.columns) * p.channels;
        p.image = p.rows * p.row;
    } else if (native.fmt == tensor_format::nchw) {
        p.row = stride(p.columns);
        p.channel = p.rows * p.row;
        p.image = p.channels * p.channel;
    } else {
        return std::nullopt;
    }
    return p;
}

// The same as strides, where each dimension has one.
void view_through(TensorSpec& spec, const Placement& p) {
    const bool last = spec.layout == "NHWC";
    const auto bytes = [&](std::size_t values) {
        return static_cast<std::int64_t>(values * item_size(spec.dtype));
    };
    if (spec.shape.size() != 4 || spec.layout.empty()) return;  // dense
    std::vector<std::int64_t> strides = {bytes(p.image), bytes(p.row), bytes(p.column), bytes(p.channel)};
    if (!last) strides = {bytes(p.image), bytes(p.channel), bytes(p.row), bytes(p.column)};
    if (strides != spec.strides()) spec.explicit_strides = std::move(strides);
}

Tensor make_output(const TensorAttr& logical, const TensorAttr& native, std::size_t index,
                   const RknnOptions& options) {
    Tensor tensor = start(logical, Direction::output, index);
    TensorSpec& spec = tensor.spec;
    const bool zero_copy = options.mode == RknnMode::zero_copy;
    tensor.attr = zero_copy ? native : logical;
    tensor.native = native_text(tensor, tensor.attr);
    spec.dtype = element_type(tensor.attr, tensor.label);
    const auto quantized = quantization(tensor.attr);
    const bool integer = spec.dtype == DType::i8 || spec.dtype == DType::u8 || spec.dtype == DType::i16;
    const bool dequantize = options.dequantize && quantized && integer;
    if (!zero_copy) {
        tensor.want_float = dequantize;
        spec.quantization = dequantize ? std::nullopt : quantized;
        if (dequantize) spec.dtype = DType::f32;
        return tensor;
    }
    std::optional<Placement> placement = place(logical, native);
    if (!placement) {  // let the runtime reorder it, which costs CPU inside of the run
        tensor.by_runtime = true;
        tensor.attr.fmt = logical.fmt;
        tensor.attr.n_dims = logical.n_dims;
        std::ranges::copy(logical.dims, tensor.attr.dims);
        placement.emplace();
        placement->columns = spec.byte_size() / item_size(spec.dtype);
    }
    const std::size_t needed = placement->span() * item_size(spec.dtype);
    tensor.native_bytes = std::max(native.size_with_stride, native.size);
    if (needed > tensor.native_bytes && tensor.attr.fmt == native.fmt) {
        throw Error(Errc::model, tensor.label + ": its values as " + tensor.native + " span " +
                                     std::to_string(needed) + " bytes, but the runtime tells a size of " +
                                     std::to_string(tensor.native_bytes));
    }
    tensor.native_bytes = std::max(tensor.native_bytes, needed);
    const bool strided = placement->channels <= placement->block;
    if (dequantize || !strided) {
        tensor.conversion = Conversion{*placement, spec.layout == "NHWC", spec.dtype, dequantize,
                                       quantized.value_or(Quantization{})};
        if (dequantize) spec.dtype = DType::f32;
    } else {
        view_through(spec, *placement);
        spec.block_bytes = tensor.native_bytes;
    }
    if (!dequantize) spec.quantization = quantized;
    return tensor;
}

}  // namespace

const std::string& checked_file(const std::string& path) {
    if (path.empty()) throw Error(Errc::model, "no model file was named");
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) throw Error(Errc::model, path + ": no such file");
    if (std::filesystem::is_directory(status))
        throw Error(Errc::model, path + ": a folder, not a model file");
    std::array<char, 4> magic{};
    std::ifstream file(path, std::ios::binary);
    if (!file) throw Error(Errc::model, path + ": cannot be opened for reading");
    file.read(magic.data(), magic.size());
    const std::string_view head(magic.data(), static_cast<std::size_t>(file.gcount()));
    if (head == "RKNX") {
        throw Error(Errc::model, path +
                                     ": a model for RKNPU3, which librknnrt.so does not run; convert it "
                                     "with rknn-toolkit2 for this chip");
    }
    if (head != "RKNN") {
        throw Error(Errc::model, path + ": not an RKNN model" +
                                     (head.empty() ? ", the file is empty"
                                                   : "; rknn-toolkit2 makes one from ONNX or TFLite"));
    }
    return path;
}

std::vector<TensorAttr> input_shapes(const Api& api, Context context,
                                     const std::vector<std::int64_t>& wanted) {
    InputOutputNum count{};
    api.check(api.query(context, query::in_out_num, count), Errc::model,
              "the runtime does not count the model's tensors");
    const auto range = std::make_unique<InputRange>();
    const auto fits = [&](const auto& shape, std::int32_t format) {
        if (std::ranges::equal(shape, wanted)) return true;
        if (shape.size() != 4 || wanted.size() != 4 || format != tensor_format::nhwc) return false;
        return std::ranges::equal(shape, std::array{wanted[0], wanted[2], wanted[3], wanted[1]});
    };
    std::size_t chosen = 0;
    std::vector<TensorAttr> attrs;
    for (std::size_t i = 0; i < count.n_input; ++i) {
        const std::string what = "input " + std::to_string(i);
        *range = {};
        range->index = static_cast<std::uint32_t>(i);
        TensorAttr attr = query_attr(api, context, query::input_attr, i, what);
        const bool dynamic = api.query(context, query::input_dynamic_range, *range) == status::success;
        const auto shapes = dynamic ? std::min<std::size_t>(range->shape_number, max_dynamic_shapes) : 0;
        const auto shape = [&](std::size_t k) {
            return std::span(range->dyn_range[k]).first(std::min<std::size_t>(range->n_dims, max_dims));
        };
        if (i == 0) {
            std::string known;
            while (chosen < shapes && !fits(shape(chosen), range->fmt)) {
                known += (known.empty() ? "" : ", ") + shape_text(shape(chosen++));
            }
            if (!dynamic && fits(dims(attr), attr.fmt)) return {};
            if (chosen == shapes) {
                throw Error(Errc::model,
                            what + ": " + shape_text(wanted) + " is none that the model was converted for: " +
                                (dynamic ? known : shape_text(dims(attr))),
                            "input_shape");
            }
        }
        if (chosen >= shapes) throw Error(Errc::model, what + ": it has fewer shapes than input 0");
        attr.fmt = range->fmt;
        attr.n_dims = range->n_dims;
        std::ranges::copy(range->dyn_range[chosen], attr.dims);
        attrs.push_back(attr);
    }
    api.require(api.set_input_shapes != nullptr, "rknn_set_input_shapes", "models with several input shapes");
    return attrs;
}

Model describe(const Api& api, Context context, const RknnOptions& options, bool current) {
    InputOutputNum count{};
    api.check(api.query(context, query::in_out_num, count), Errc::model,
              "the runtime does not count the model's tensors");
    if (count.n_input == 0 || count.n_output == 0) {
        throw Error(Errc::model, "the model has " + std::to_string(count.n_input) + " inputs and " +
                                     std::to_string(count.n_output) + " outputs");
    }
    const auto of = [&](std::size_t i, Direction direction, std::int32_t logical, std::int32_t native,
                        auto make) {
        const std::string what = std::string(direction_name(direction)) + " " + std::to_string(i);
        const TensorAttr told = query_attr(api, context, logical, i, what);
        const bool zero_copy = options.mode == RknnMode::zero_copy;
        return make(told, zero_copy ? query_attr(api, context, native, i, what) : told, i, options);
    };
    Model model;
    for (std::size_t i = 0; i < count.n_input; ++i) {
        model.inputs.push_back(
            of(i, Direction::input, current ? query::current_input_attr : query::input_attr,
               current ? query::current_native_input_attr : query::native_input_attr, make_input));
    }
    for (std::size_t i = 0; i < count.n_output; ++i) {
        model.outputs.push_back(
            of(i, Direction::output, current ? query::current_output_attr : query::output_attr,
               current ? query::current_native_output_attr : query::native_output_attr, make_output));
    }
    return model;
}

}  // namespace pipeline::rknn
