// For tests: the C names of MindSpore Lite over the C++ interface that its Python wheel carries, so
// that the engine meets the real runtime. It adds nothing: what the runtime does is what is seen.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engines/mindspore_lite/abi.hpp"
#include "include/api/allocator.h"
#include "include/api/context.h"
#include "include/api/model.h"
#include "include/api/status.h"
#include "include/api/types.h"

namespace abi = pipeline::mindspore_lite;

namespace {

using abi::Handle;
using abi::Status;
using abi::TensorHandleArray;

constexpr Status null_pointer = 0xFFFFFFFE;
constexpr Status invalid = 0xFFFFFFFD;

struct Tensor {
    mindspore::MSTensor value;
    std::string name;
    std::vector<std::int64_t> shape;
};

struct Model {
    mindspore::Model model;
    std::shared_ptr<mindspore::Context> context;
    std::vector<std::unique_ptr<Tensor>> inputs;
    std::vector<std::unique_ptr<Tensor>> outputs;
    std::vector<Handle> input_handles;
    std::vector<Handle> output_handles;

    static void take(const std::vector<mindspore::MSTensor>& from, std::vector<std::unique_ptr<Tensor>>& to,
                     std::vector<Handle>& handles) {
        to.resize(from.size());
        handles.resize(from.size());
        for (std::size_t i = 0; i < from.size(); ++i) {
            if (!to[i]) to[i] = std::make_unique<Tensor>();
            to[i]->value = from[i];
            handles[i] = to[i].get();
        }
    }
    void read() {
        take(model.GetInputs(), inputs, input_handles);
        take(model.GetOutputs(), outputs, output_handles);
    }
};

struct DeviceInfo {
    std::shared_ptr<mindspore::DeviceInfoContext> value;
};

struct Context {
    std::shared_ptr<mindspore::Context> value = std::make_shared<mindspore::Context>();
};

// Allocators by the pointer that was handed out, as long as the runtime keeps them.
std::mutex allocators_mutex;
std::map<Handle, std::weak_ptr<mindspore::Allocator>> allocators;

mindspore::MSTensor& tensor_of(Handle handle) { return static_cast<Tensor*>(handle)->value; }

Status status_of(const mindspore::Status& status) { return static_cast<Status>(status.StatusCode()); }

mindspore::MSKernelCallBack callback(abi::KernelCallBack function) {
    if (function == nullptr) return nullptr;
    return [function](const std::vector<mindspore::MSTensor>& inputs, const std::vector<mindspore::MSTensor>&,
                      const mindspore::MSCallBackParam&) {
        std::vector<Tensor> tensors;
        for (const auto& input : inputs) tensors.push_back({input, {}, {}});
        std::vector<Handle> handles;
        for (auto& tensor : tensors) handles.push_back(&tensor);
        char nothing[] = "";
        return function({handles.size(), handles.data()}, {0, nullptr}, {nothing, nothing});
    };
}

}  // namespace

#define SHIM(result, name) extern "C" __attribute__((visibility("default"))) result OH_AI_##name

SHIM(Handle, ContextCreate)() { return new Context; }
SHIM(void, ContextDestroy)(Handle* handle) {
    delete static_cast<Context*>(*handle);
    *handle = nullptr;
}
SHIM(void, ContextSetThreadNum)(Handle handle, std::int32_t threads) {
    static_cast<Context*>(handle)->value->SetThreadNum(threads);
}
SHIM(void, ContextSetThreadAffinityMode)(Handle handle, std::int32_t mode) {
    static_cast<Context*>(handle)->value->SetThreadAffinity(mode);
}
SHIM(void, ContextAddDeviceInfo)(Handle handle, Handle info) {
    auto* const given = static_cast<DeviceInfo*>(info);
    static_cast<Context*>(handle)->value->MutableDeviceInfo().push_back(given->value);
    delete given;
}

SHIM(Handle, DeviceInfoCreate)(std::int32_t type) {
    if (type != abi::device_cpu) return nullptr;
    return new DeviceInfo{std::make_shared<mindspore::CPUDeviceInfo>()};
}
SHIM(void, DeviceInfoDestroy)(Handle* handle) {
    delete static_cast<DeviceInfo*>(*handle);
    *handle = nullptr;
}
SHIM(void, DeviceInfoSetEnableFP16)(Handle handle, bool enabled) {
    std::static_pointer_cast<mindspore::CPUDeviceInfo>(static_cast<DeviceInfo*>(handle)->value)
        ->SetEnableFP16(enabled);
}

SHIM(Handle, ModelCreate)() { return new Model; }
SHIM(void, ModelDestroy)(Handle* handle) {
    delete static_cast<Model*>(*handle);
    *handle = nullptr;
}
SHIM(Status, ModelBuildFromFile)(Handle handle, const char* path, std::uint32_t, Handle context) {
    auto* const model = static_cast<Model*>(handle);
    const std::unique_ptr<Context> given(static_cast<Context*>(context));
    model->context = given->value;
    // What the C interface calls 0 is a file type of its own in C++.
    const auto status = model->model.Build(std::string(path), mindspore::kMindIR_Lite, model->context);
    if (status.IsOk()) model->read();
    return status_of(status);
}
SHIM(Status, ModelResize)(Handle handle, TensorHandleArray inputs, abi::ShapeInfo* shapes,
                          std::size_t count) {
    auto* const model = static_cast<Model*>(handle);
    std::vector<mindspore::MSTensor> tensors;
    std::vector<std::vector<std::int64_t>> wanted;
    for (std::size_t i = 0; i < inputs.handle_num; ++i) tensors.push_back(tensor_of(inputs.handle_list[i]));
    for (std::size_t i = 0; i < count; ++i)
        wanted.emplace_back(shapes[i].shape, shapes[i].shape + shapes[i].shape_num);
    const auto status = model->model.Resize(tensors, wanted);
    if (status.IsOk()) model->read();
    return status_of(status);
}
SHIM(TensorHandleArray, ModelGetInputs)(Handle handle) {
    auto* const model = static_cast<Model*>(handle);
    return {model->input_handles.size(), model->input_handles.data()};
}
SHIM(TensorHandleArray, ModelGetOutputs)(Handle handle) {
    auto* const model = static_cast<Model*>(handle);
    return {model->output_handles.size(), model->output_handles.data()};
}
SHIM(Status, ModelPredict)(Handle handle, TensorHandleArray inputs, TensorHandleArray* outputs,
                           abi::KernelCallBack before, abi::KernelCallBack after) {
    if (after != nullptr) return invalid;
    auto* const model = static_cast<Model*>(handle);
    std::vector<mindspore::MSTensor> given;
    for (std::size_t i = 0; i < inputs.handle_num; ++i) given.push_back(tensor_of(inputs.handle_list[i]));
    std::vector<mindspore::MSTensor> results;
    if (outputs->handle_num == model->outputs.size()) {
        for (std::size_t i = 0; i < outputs->handle_num; ++i)
            results.push_back(tensor_of(outputs->handle_list[i]));
    }
    const auto status = model->model.Predict(given, &results, callback(before));
    if (!status.IsOk()) return status_of(status);
    Model::take(results, model->outputs, model->output_handles);
    *outputs = {model->output_handles.size(), model->output_handles.data()};
    return abi::success;
}

SHIM(Handle, TensorCreate)(const char* name, std::int32_t type, const std::int64_t* shape, std::size_t rank,
                           const void* data, std::size_t bytes) {
    auto* const made =
        mindspore::MSTensor::CreateTensor(name, static_cast<mindspore::DataType>(type),
                                          std::vector<std::int64_t>(shape, shape + rank), data, bytes);
    if (made == nullptr) return nullptr;
    auto* const tensor = new Tensor{*made, {}, {}};
    mindspore::MSTensor::DestroyTensorPtr(made);  // the value shares what it points to
    return tensor;
}
SHIM(void, TensorDestroy)(Handle* handle) {
    delete static_cast<Tensor*>(*handle);
    *handle = nullptr;
}
SHIM(const char*, TensorGetName)(Handle handle) {
    auto* const tensor = static_cast<Tensor*>(handle);
    tensor->name = tensor->value.Name();
    return tensor->name.c_str();
}
SHIM(std::int32_t, TensorGetDataType)(Handle handle) {
    return static_cast<std::int32_t>(tensor_of(handle).DataType());
}
SHIM(std::int32_t, TensorGetFormat)(Handle handle) {
    return static_cast<std::int32_t>(tensor_of(handle).format());
}
SHIM(void, TensorSetFormat)(Handle handle, std::int32_t format) {
    tensor_of(handle).SetFormat(static_cast<mindspore::Format>(format));
}
SHIM(const std::int64_t*, TensorGetShape)(Handle handle, std::size_t* rank) {
    auto* const tensor = static_cast<Tensor*>(handle);
    tensor->shape = tensor->value.Shape();
    *rank = tensor->shape.size();
    return tensor->shape.data();
}
SHIM(const void*, TensorGetData)(Handle handle) { return tensor_of(handle).Data().get(); }
SHIM(void*, TensorGetMutableData)(Handle handle) { return tensor_of(handle).MutableData(); }
SHIM(std::size_t, TensorGetDataSize)(Handle handle) { return tensor_of(handle).DataSize(); }
SHIM(Status, TensorSetUserData)(Handle handle, void* data, std::size_t bytes) {
    if (handle == nullptr || data == nullptr) return null_pointer;
    auto& tensor = tensor_of(handle);
    if (tensor.DataSize() != 0 && tensor.DataSize() != bytes) return invalid;
    tensor.SetAllocator(nullptr);
    tensor.SetData(data, false);
    return abi::success;
}
SHIM(Handle, TensorGetAllocator)(Handle handle) {
    if (handle == nullptr) return nullptr;
    const auto allocator = tensor_of(handle).allocator();
    if (!allocator) return nullptr;
    const std::lock_guard lock(allocators_mutex);
    allocators[allocator.get()] = allocator;
    return allocator.get();
}
SHIM(Status, TensorSetAllocator)(Handle handle, Handle key) {
    if (handle == nullptr || key == nullptr) return null_pointer;
    const std::lock_guard lock(allocators_mutex);
    const auto found = allocators.find(key);
    if (found == allocators.end()) return invalid;
    const auto allocator = found->second.lock();
    if (!allocator) return null_pointer;
    tensor_of(handle).SetAllocator(allocator);
    return abi::success;
}
