// Loads and resizes a model, reads its tensors, and makes tensors on its allocators.
#include "engines/mindspore_lite/model.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "engines/mindspore_lite/device.hpp"

namespace pipeline::mindspore_lite {
namespace {

constexpr std::size_t most_tensors = 1024;
constexpr std::size_t most_dimensions = 32;

std::optional<DType> known_type(std::int32_t type) {
    static constexpr std::array<std::pair<std::int32_t, DType>, 12> types = {{
        {type_bool, DType::boolean},
        {type_i8, DType::i8},
        {type_i16, DType::i16},
        {type_i32, DType::i32},
        {type_i64, DType::i64},
        {type_u8, DType::u8},
        {type_u16, DType::u16},
        {type_u32, DType::u32},
        {type_u64, DType::u64},
        {type_f16, DType::f16},
        {type_f32, DType::f32},
        {type_f64, DType::f64},
    }};
    const auto* found = std::ranges::find(types, type, [](const auto& entry) { return entry.first; });
    if (found == types.end()) return std::nullopt;
    return found->second;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
    std::string text = "[";
    for (const auto extent : shape) {
        if (text.size() > 1) text += ",";
        text += extent > 0 ? std::to_string(extent) : "?";
    }
    return text + "]";
}

std::vector<std::int64_t> read_shape(const Api& api, Handle tensor) {
    std::size_t count = 0;
    const std::int64_t* shape = api.TensorGetShape(tensor, &count);
    if (shape == nullptr || count > most_dimensions) return {};
    return {shape, shape + count};
}

bool is_open(const std::vector<std::int64_t>& shape) {
    return std::ranges::any_of(shape, [](std::int64_t extent) { return extent <= 0; });
}

void check_file(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error))
        throw Error(Errc::model, path + ": no such model file");
    if (path.ends_with(".mindir")) {
        throw Error(Errc::model, path + ": a .mindir file is for another library; convert the model to .ms");
    }
}

std::vector<Handle> take_handles(const std::string& path, TensorHandleArray array, const char* what) {
    if (array.handle_num == 0 || array.handle_num > most_tensors || array.handle_list == nullptr) {
        throw Error(Errc::model, path + ": the model has no " + what);
    }
    std::vector<Handle> result(array.handle_list, array.handle_list + array.handle_num);
    if (std::ranges::find(result, nullptr) != result.end()) {
        throw Error(Errc::model, path + ": the library lists a null tensor among the " + what);
    }
    return result;
}

}  // namespace

Model::Model(std::shared_ptr<const Api> api, const MindSporeLiteOptions& options)
    : api_(std::move(api)), path_(options.model) {
    check_file(path_);
    build(options);
    read_tensors();
    if (options.input_shape) resize(options);
    for (std::size_t i = 0; i < inputs_.size(); ++i) input_specs_.push_back(read_spec(Direction::input, i));
    if (options.input_shape) settle();
    for (std::size_t i = 0; i < outputs_.size(); ++i)
        output_specs_.push_back(read_spec(Direction::output, i));
}

void Model::build(const MindSporeLiteOptions& options) {
    Owned context = make_context(*api_, options);
    model_ = std::make_shared<const OwnedModel>(api_);
    if (handle() == nullptr) throw Error(Errc::engine, "MindSpore Lite cannot make a model");
    // From here on the context is the model's, whether building works or not.
    const Handle given = context.release();
    const Status status = api_->ModelBuildFromFile(handle(), path_.c_str(), model_type_mindir, given);
    api_->check(status, Errc::model, path_ + ": cannot be built for " + options.device);
}

void Model::read_tensors() {
    inputs_ = take_handles(path_, api_->ModelGetInputs(handle()), "inputs");
    outputs_ = take_handles(path_, api_->ModelGetOutputs(handle()), "outputs");
    allocators_.clear();
    input_allocators_ = register_allocators(inputs_);
    output_allocators_ = register_allocators(outputs_);
}

std::vector<Handle> Model::register_allocators(const std::vector<Handle>& tensors) {
    std::vector<Handle> found;
    for (const Handle tensor : tensors) {
        found.push_back(api_->allocator_of(tensor));
        if (found.back() != nullptr) allocators_.add(found.back(), model_);
    }
    return found;
}

void Model::resize(const MindSporeLiteOptions& options) {
    api_->need(api_->ModelResize, "ModelResize", "input_shape");
    std::vector<ShapeInfo> shapes(inputs_.size());
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
        const auto shape = i == 0 ? *options.input_shape : read_shape(*api_, inputs_[i]);
        if (shape.size() > most_dimensions) {
            throw Error(Errc::config, "more than " + std::to_string(most_dimensions) + " dimensions",
                        "input_shape");
        }
        shapes[i].shape_num = shape.size();
        std::ranges::copy(shape, shapes[i].shape);
    }
    const Status status =
        api_->ModelResize(handle(), {inputs_.size(), inputs_.data()}, shapes.data(), shapes.size());
    api_->check(status, Errc::model,
                path_ + ": input 0 cannot have the shape " + shape_text(*options.input_shape), "input_shape");
    read_tensors();  // the old ones are gone
}

// After a resize, a library may tell the outputs' old shapes until the model has run.
void Model::settle() {
    std::vector<Tensor> tensors;
    std::vector<Handle> handles;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
        tensors.push_back(make_own_tensor(Direction::input, i));
        handles.push_back(tensors.back().handle.get());
    }
    TensorHandleArray outputs{0, nullptr};
    const Status status =
        api_->ModelPredict(handle(), {handles.size(), handles.data()}, &outputs, nullptr, nullptr);
    api_->check(status, Errc::model,
                path_ + ": cannot run with input 0 of shape " + shape_text(input_specs_[0].shape));
    has_run_ = true;
    read_tensors();
}

std::string Model::label(Direction direction, std::size_t index) const {
    const char* name = api_->TensorGetName(tensors(direction).at(index));
    return std::string(direction_name(direction)) + " " + std::to_string(index) + " '" +
           (name != nullptr ? name : "") + "'";
}

TensorSpec Model::read_spec(Direction direction, std::size_t index) const {
    const Handle tensor = tensors(direction)[index];
    const std::string place = path_ + ": " + label(direction, index);
    TensorSpec spec;
    const char* name = api_->TensorGetName(tensor);
    spec.name = name != nullptr ? name : "";
    const std::int32_t type = api_->TensorGetDataType(tensor);
    const auto dtype = known_type(type);
    if (!dtype) {
        throw Error(Errc::model, place + " has an element type that is not supported: " +
                                     (type == type_string ? "string" : "number " + std::to_string(type)));
    }
    spec.dtype = *dtype;
    spec.shape = read_shape(*api_, tensor);
    if (is_open(spec.shape)) {
        throw Error(Errc::model, place + " has the open shape " + shape_text(spec.shape) +
                                     "; buffers need a fixed one: set input_shape");
    }
    if (spec.shape.size() == 4) {
        const std::int32_t format = api_->TensorGetFormat(tensor);
        spec.layout = format == format_nhwc ? "NHWC" : format == format_nchw ? "NCHW" : "";
    }
    const std::size_t size = api_->TensorGetDataSize(tensor);
    if (size != spec.byte_size()) {
        throw Error(Errc::model, place + " has " + std::to_string(size) + " bytes, but its shape " +
                                     shape_text(spec.shape) + " needs " + std::to_string(spec.byte_size()));
    }
    return spec;
}

bool Model::same_allocator(Handle tensor, Direction direction, std::size_t index) const {
    const Handle known = known_allocator(direction, index);
    return known != nullptr && api_->allocator_of(tensors(direction)[index]) == known &&
           api_->allocator_of(tensor) == known;
}

// The model's tensor is asked once more, as a library may forget its allocators when another model
// ends, and asking makes it remember. The answer must be one that it gave when it was loaded.
AllocatorRegistry::Owner Model::give_allocator(Handle tensor, Handle like, Handle known) const {
    const Handle own = api_->allocator_of(like);
    if (own == nullptr && known == nullptr) return nullptr;  // it has none, so what it gets is copied
    AllocatorRegistry::Owner owner;
    try {
        owner = allocators_.require(own);
    } catch (const Error& error) {
        throw Error(Errc::allocation, error.what());
    }
    api_->check(api_->set_allocator(tensor, own), Errc::allocation, "the model's allocator is refused");
    if (api_->allocator_of(tensor) != own) {
        throw Error(Errc::allocation, "MindSpore Lite did not take the model's allocator, with success");
    }
    return owner;
}

Tensor Model::make_tensor(Direction direction, std::size_t index) {
    const TensorSpec& spec = specs(direction)[index];
    const Handle like = tensors(direction)[index];
    Tensor tensor;
    tensor.handle = Owned(api_->TensorCreate(spec.name.c_str(), api_->TensorGetDataType(like),
                                             spec.shape.data(), spec.shape.size(), nullptr, 0),
                          api_->TensorDestroy);
    const Handle handle = tensor.handle.get();
    if (handle == nullptr) throw Error(Errc::allocation, "MindSpore Lite cannot make a tensor");
    api_->TensorSetFormat(handle, api_->TensorGetFormat(like));
    // A tensor that came with memory keeps it: an allocator must never free what it did not give.
    if (api_->TensorGetData(handle) == nullptr) {
        tensor.owner = give_allocator(handle, like, known_allocator(direction, index));
    }
    tensor.data = provide(handle, spec.byte_size());
    return tensor;
}

Tensor Model::make_own_tensor(Direction direction, std::size_t index) {
    try {
        return make_tensor(direction, index);
    } catch (const Error& error) {
        throw Error(error.code(), label(direction, index) + ": " + error.what());
    }
}

std::byte* Model::provide(Handle tensor, std::size_t bytes) const {
    const std::string needed = std::to_string(bytes) + " bytes needed, MindSpore Lite gives ";
    void* const data = api_->TensorGetMutableData(tensor);
    if (data == nullptr) throw Error(Errc::allocation, needed + "none");
    const std::size_t size = api_->TensorGetDataSize(tensor);
    if (size != bytes) throw Error(Errc::allocation, needed + std::to_string(size));
    std::memset(data, 0, bytes);
    return static_cast<std::byte*>(data);
}

}  // namespace pipeline::mindspore_lite
