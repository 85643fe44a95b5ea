// Tensors as the runtime reports them, completed by what the user declared.
#include <array>
#include <utility>

#include "engines/nnrt/session.hpp"

namespace pipeline::nnrt {
namespace {

struct Reported {
    TensorSpec spec;  // sizes that the model leaves open are 0
    bool open = false;
};

DType dtype_of(OH_NN_DataType type, const std::string& place) {
    static constexpr std::array known = {DType::boolean, DType::i8,  DType::i16, DType::i32,
                                         DType::i64,     DType::u8,  DType::u16, DType::u32,
                                         DType::u64,     DType::f16, DType::f32, DType::f64};
    const auto at = static_cast<std::size_t>(type) - OH_NN_BOOL;
    if (type < OH_NN_BOOL || at >= known.size())
        throw Error(Errc::model, place + "element type " + std::to_string(type) + " is unknown");
    return known[at];
}

std::string layout_of(OH_NN_Format format, std::size_t dimensions) {
    if (dimensions != 4) return "";
    if (format == OH_NN_FORMAT_NHWC) return "NHWC";
    return format == OH_NN_FORMAT_NCHW ? "NCHW" : "";
}

Reported report(const Api& api, const OH_NNExecutor* executor, Direction direction, std::size_t index) {
    const auto create = direction == Direction::input ? api.OH_NNExecutor_CreateInputTensorDesc
                                                      : api.OH_NNExecutor_CreateOutputTensorDesc;
    const OwnedDescription owner(create(executor, index), {api.OH_NNTensorDesc_Destroy});
    Reported result;
    result.spec.name = std::string(direction_name(direction)) + std::to_string(index);
    const auto check = [&](OH_NN_ReturnCode status) {
        Api::check(status, Errc::model,
                   tensor_place(result.spec, direction, index) + "NNRT does not describe it");
    };
    if (!owner) check(OH_NN_NULL_PTR);
    const char* name = nullptr;
    check(api.OH_NNTensorDesc_GetName(owner.get(), &name));
    if (name != nullptr && *name != '\0') result.spec.name = name;
    OH_NN_DataType type = OH_NN_UNKNOWN;
    check(api.OH_NNTensorDesc_GetDataType(owner.get(), &type));
    result.spec.dtype = dtype_of(type, tensor_place(result.spec, direction, index));
    std::int32_t* shape = nullptr;  // the description's own
    std::size_t dimensions = 0;
    check(api.OH_NNTensorDesc_GetShape(owner.get(), &shape, &dimensions));
    for (std::size_t i = 0; i < dimensions; ++i) {
        result.spec.shape.push_back(shape[i] > 0 ? shape[i] : 0);
        result.open = result.open || shape[i] <= 0;
    }
    OH_NN_Format format = OH_NN_FORMAT_NONE;
    check(api.OH_NNTensorDesc_GetFormat(owner.get(), &format));
    result.spec.layout = layout_of(format, dimensions);
    return result;
}

// Whether the device takes the sizes chosen for what the model leaves open.
void check_range(const Api& api, const OH_NNExecutor* executor, const TensorSpec& spec, std::size_t index,
                 const std::string& key) {
    if (api.OH_NNExecutor_GetInputDimRange == nullptr) return;
    std::size_t* smallest = nullptr;
    std::size_t* largest = nullptr;
    std::size_t count = 0;
    const auto status = api.OH_NNExecutor_GetInputDimRange(executor, index, &smallest, &largest, &count);
    if (status != OH_NN_SUCCESS || count != spec.shape.size()) return;  // it does not tell
    for (std::size_t i = 0; i < count; ++i) {
        const auto given = static_cast<std::size_t>(spec.shape[i]);
        if (given >= smallest[i] && given <= largest[i]) continue;
        throw Error(Errc::model,
                    tensor_place(spec, Direction::input, index) + "size " + std::to_string(given) +
                        " of dimension " + std::to_string(i) + " is not between " +
                        std::to_string(smallest[i]) + " and " + std::to_string(largest[i]),
                    key);
    }
}

// Fill in what the model leaves open, and see that the rest is as it was declared by setting `key`.
void settle(TensorSpec& spec, bool open, Direction direction, std::size_t index,
            const std::vector<std::int64_t>* shape, const std::string& key) {
    const std::string place = tensor_place(spec, direction, index);
    if (shape == nullptr) {
        if (!open) return;
        throw Error(Errc::model, place + "the model leaves its size open: set " +
                                     (direction == Direction::input ? "input_shape or options.inputs"
                                                                    : "options.outputs"));
    }
    if (shape->size() != spec.shape.size()) {
        throw Error(Errc::model,
                    place + std::to_string(shape->size()) + " dimensions were given, the model has " +
                        std::to_string(spec.shape.size()),
                    key);
    }
    for (std::size_t i = 0; i < shape->size(); ++i) {
        if (spec.shape[i] == 0) spec.shape[i] = (*shape)[i];
        if (spec.shape[i] == (*shape)[i]) continue;
        throw Error(Errc::model,
                    place + std::to_string((*shape)[i]) + " was given for dimension " + std::to_string(i) +
                        ", the model has " + std::to_string(spec.shape[i]),
                    key);
    }
}

const std::vector<TensorSpec>& declared_of(const NnrtOptions& options, Direction direction) {
    return direction == Direction::input ? options.inputs : options.outputs;
}

const std::vector<std::int64_t>* given_shape(const NnrtOptions& options, Direction direction,
                                             std::size_t index) {
    if (direction == Direction::input && index == 0 && options.input_shape) return &*options.input_shape;
    const auto& declared = declared_of(options, direction);
    return declared.empty() ? nullptr : &declared[index].shape;
}

std::string option_of(Direction direction) {
    return "options." + std::string(direction_name(direction)) + "s";
}

std::vector<TensorSpec> reported_specs(const Api& api, const NnrtOptions& options,
                                       const OH_NNExecutor* executor, Direction direction,
                                       std::vector<bool>& open) {
    const auto count =
        direction == Direction::input ? api.OH_NNExecutor_GetInputCount : api.OH_NNExecutor_GetOutputCount;
    std::size_t size = 0;
    Api::check(count(executor, &size), Errc::model, "NNRT cannot count the model's tensors");
    const auto& declared = declared_of(options, direction);
    if (!declared.empty() && declared.size() != size) {
        throw Error(Errc::config,
                    std::to_string(declared.size()) + " declared, the model has " + std::to_string(size),
                    option_of(direction));
    }
    std::vector<TensorSpec> specs;
    for (std::size_t i = 0; i < size; ++i) {
        auto [spec, is_open] = report(api, executor, direction, i);
        if (!declared.empty() && declared[i].dtype != spec.dtype) {
            throw Error(Errc::config,
                        tensor_place(spec, direction, i) + std::string(dtype_name(declared[i].dtype)) +
                            " declared, the model has " + std::string(dtype_name(spec.dtype)),
                        option_of(direction));
        }
        const auto* shape = given_shape(options, direction, i);
        const bool forced = options.input_shape && shape == &*options.input_shape;
        const std::string key = forced ? "input_shape" : option_of(direction);
        settle(spec, is_open, direction, i, shape, key);
        if (is_open && direction == Direction::input) check_range(api, executor, spec, i, key);
        specs.push_back(std::move(spec));
        open.push_back(is_open);
    }
    return specs;
}

// With the calls of API 9 nobody tells what the tensors are; a wrong declaration fails the first run.
std::vector<TensorSpec> declared_specs(const NnrtOptions& options, Direction direction) {
    auto specs = declared_of(options, direction);
    if (specs.empty()) {
        throw Error(Errc::config, "needed, for this NNRT (API 9 or 10) does not tell a model's tensors",
                    option_of(direction));
    }
    if (direction == Direction::input && options.input_shape) specs[0].shape = *options.input_shape;
    return specs;
}

}  // namespace

std::string tensor_place(const TensorSpec& spec, Direction direction, std::size_t index) {
    return std::string(direction_name(direction)) + " " + std::to_string(index) + " '" + spec.name + "': ";
}

Tensors read_tensors(const Api& api, const NnrtOptions& options, const OH_NNExecutor* executor) {
    Tensors result;
    if (!api.v2()) {
        result.inputs = declared_specs(options, Direction::input);
        result.outputs = declared_specs(options, Direction::output);
        result.open_outputs.assign(result.outputs.size(), false);
        return result;
    }
    std::vector<bool> ignored;
    result.inputs = reported_specs(api, options, executor, Direction::input, ignored);
    result.outputs = reported_specs(api, options, executor, Direction::output, result.open_outputs);
    return result;
}

}  // namespace pipeline::nnrt
