// A stand-in for MindSpore Lite's C library, for tests: the documented behaviour, and none of its
// patience. Built twice: with STANDIN_OH the OH_AI family, else the MS family, which has neither
// allocators nor user data nor NNRT, and always answers with outputs of its own.
//
// Switches, read from the environment (STANDIN_MSLITE_...):
//   OUTPUTS      what is made of the caller's outputs: honour (default of OH_AI), replace (the array
//                gets the model's own tensors; default of MS), drop (success, but they are neither
//                replaced nor written), refuse (an error), half (an error after the
//                first was bound, which stays so, as in the original); null, hole or short: the array comes
//                back null, with a null tensor in it, or with one tensor too few, with success
//   NO_ALLOCATOR names of the model's tensors that have no allocator, or all
//   RENEWED      names of those whose allocator is another one each time it is asked for
//   LOST         names of those whose allocator is there once and gone when it is asked for again
//   EXPIRED      1: TensorSetAllocator sets none, with success, as the original does
//   FORGETFUL    1: every allocator is forgotten when any model ends, as the original does
//   EAGER        1: a new tensor has memory at once
//   NO_MEMORY    this driver allocation, from 0, and later ones fail
//   USER_DATA    refuse: no external memory for tensors; or numbers of the calls that fail, from 1
//   FAIL_RUNS    numbers of runs that fail, from 1, over all models
//   HANG_RUN     a run that begins while this file exists waits until it is gone
//   HANG_BUILD   so does loading a model
//   DEVICES      NNRT devices as id:name:type, comma-separated
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engines/mindspore_lite/abi.hpp"
#include "memory.hpp"
#include "network.hpp"

#ifdef STANDIN_OH
#define STANDIN(result, name) extern "C" __attribute__((visibility("default"))) result OH_AI_##name
#else
#define STANDIN(result, name) extern "C" __attribute__((visibility("default"))) result MS##name
#endif

namespace abi = pipeline::mindspore_lite;

namespace standin {
namespace {

using abi::Handle;
using abi::Status;
using abi::TensorHandleArray;

void hang(const char* name) {
    const std::string file = setting(name);
    while (!file.empty() && ::access(file.c_str(), F_OK) == 0) ::usleep(1000);
}

constexpr Status ok = 0;
constexpr Status lite_error = 0xFFFFFFFF;
constexpr Status null_pointer = 0xFFFFFFFE;
constexpr Status param_invalid = 0xFFFFFFFD;
constexpr Status not_support = 0xFFFFFFF9;
constexpr Status input_tensor_error = 0xFFFFFF9B;
constexpr Status graph_file_error = 0xFFFFFF38;
constexpr Status execute_failure = 0xFFFFFED1;

// Handles by kind, so that a wrong one, a dead one and one freed twice are told apart from good ones.
std::mutex handles_mutex;
std::unordered_map<Handle, const char*>& handles() {
    static auto* const all = new std::unordered_map<Handle, const char*>;
    return *all;
}

template <class T>
T* track(T* object, const char* kind) {
    const std::lock_guard lock(handles_mutex);
    handles()[object] = kind;
    count(std::string(kind) + "s_live");
    return object;
}

// The object of a handle, or null and a violation.
template <class T>
T* as(Handle handle, const char* kind, const char* caller) {
    const std::lock_guard lock(handles_mutex);
    const auto found = handles().find(handle);
    if (found != handles().end() && std::strcmp(found->second, kind) == 0) return static_cast<T*>(handle);
    violation(std::string(caller) + " got " + (handle == nullptr ? "null" : "a dead or wrong handle") +
              " for a " + kind);
    return nullptr;
}

template <class T>
T* untrack(Handle* handle, const char* kind, const char* caller) {
    T* const object = handle != nullptr ? as<T>(*handle, kind, caller) : nullptr;
    if (object == nullptr) return nullptr;
    const std::lock_guard lock(handles_mutex);
    handles().erase(object);
    count(std::string(kind) + "s_live", -1);
    *handle = nullptr;
    return object;
}

struct DeviceInfo {
    std::int32_t type = 0;
    std::size_t id = 0;
};

struct Context {
    std::vector<DeviceInfo*> devices;

    ~Context() {
        for (auto* const device : devices) delete device;
    }
};

struct Tensor {
    TensorInfo info;
    void* data = nullptr;
    bool own = true;  // frees data, through the allocator where there is one
    std::shared_ptr<Allocator> allocator;
    bool of_model = false;
    int asked = 0;  // times for its allocator

    ~Tensor() { drop(); }

    void drop() {
        void* const old = std::exchange(data, nullptr);
        if (old == nullptr || !own) return;
        if (allocator) {
            allocator->free(old);
        } else {
            std::free(old);
        }
    }
    void* provide() {
        if (data == nullptr && info.bytes() > 0) {
            data = allocator ? allocator->allocate(info.bytes()) : std::malloc(info.bytes());
            own = true;
        }
        return data;
    }
};

struct Model {
    Context* context = nullptr;
    Network network;
    std::vector<Tensor*> inputs;
    std::vector<Tensor*> outputs;
    std::vector<Handle> input_handles;
    std::vector<Handle> output_handles;
    std::vector<Handle> holed;
    std::atomic<bool> in_use{false};
    std::thread::id caller;

    ~Model();
    void make_tensors();
    void drop_tensors();

    // Open extents of outputs are as many as the first input has rows, but known in a run only.
    void settle() {
        for (std::size_t j = 0; j < outputs.size(); ++j) {
            for (auto& extent : network.outputs[j].shape) {
                if (extent < 0) extent = network.inputs[0].shape[1];
            }
            outputs[j]->info = network.outputs[j];
        }
    }
};

// By the pointer handed out, weakly, as the original does; the strong references are the tensors'.
// The original's list has no lock, so two threads that are in it at once break a rule.
std::mutex allocators_mutex;

class Listing {
public:
    Listing() : lock_(allocators_mutex, std::try_to_lock) {
        if (!lock_) {
            violation("two threads are in the list of allocators, which has no lock");
            lock_.lock();
        }
        for (int i = 0; i < 4; ++i) std::this_thread::yield();  // time for another to come
    }

private:
    std::unique_lock<std::mutex> lock_;
};

std::unordered_map<Handle, std::weak_ptr<Allocator>>& allocators() {
    static auto* const all = new std::unordered_map<Handle, std::weak_ptr<Allocator>>;
    return *all;
}

void Model::drop_tensors() {
    for (auto* list : {&inputs, &outputs}) {
        for (auto* tensor : *list) {
            const std::size_t mine = tensor->own && tensor->data != nullptr ? 1 : 0;
            if (tensor->allocator && tensor->allocator->live() > mine) {
                violation("a model ends while memory of its allocators is in use");
            }
            const std::lock_guard lock(handles_mutex);
            handles().erase(tensor);
            delete tensor;
        }
        list->clear();
    }
}

Model::~Model() {
    drop_tensors();
    delete context;
    const Listing listing;
    if (setting("FORGETFUL") == "1") allocators().clear();
    std::erase_if(allocators(), [](const auto& entry) { return entry.second.expired(); });
}

void Model::make_tensors() {
    drop_tensors();
    const auto make = [](const std::vector<TensorInfo>& infos, std::vector<Tensor*>& tensors,
                         std::vector<Handle>& list) {
        list.clear();
        for (const auto& info : infos) {
            auto* const tensor = new Tensor;
            tensor->info = info;
            tensor->of_model = true;
#ifdef STANDIN_OH
            if (!listed("NO_ALLOCATOR", info.name)) tensor->allocator = std::make_shared<Allocator>();
#endif
            tensors.push_back(tensor);
            const std::lock_guard lock(handles_mutex);
            handles()[tensor] = "tensor";
            list.push_back(tensor);
        }
    };
    make(network.inputs, inputs, input_handles);
    make(network.outputs, outputs, output_handles);
}

// Everything of a model in one run; whatever was bound is undone at the end.
class Run {
public:
    Run(Model& model, TensorHandleArray given, TensorHandleArray* results)
        : model_(model), given_(given), results_(results) {}

    Status execute(abi::KernelCallBack before) {
        if (const Status status = check_inputs(); status != ok) return status;
        if (const Status status = check_outputs(); status != ok) return status;
        count("runs");
        if (listed("FAIL_RUNS", std::to_string(counted("runs")))) return execute_failure;
        model_.settle();
        bind_inputs();
        bind_outputs();
        if (before != nullptr && !call(before)) return lite_error;
        compute(model_.network, sources_, targets_);
        finish();
        return ok;
    }

private:
    static Tensor* user(Handle handle) { return as<Tensor>(handle, "tensor", "ModelPredict"); }

    Status check_inputs() {
        if (given_.handle_list == nullptr || given_.handle_num != model_.inputs.size()) {
            violation("ModelPredict got " + std::to_string(given_.handle_num) + " inputs");
            return lite_error;
        }
        for (std::size_t i = 0; i < given_.handle_num; ++i) {
            Tensor* const tensor = user(given_.handle_list[i]);
            if (tensor == nullptr) return null_pointer;
            const TensorInfo& wanted = model_.network.inputs[i];
            if (tensor->info.bytes() != wanted.bytes() || tensor->info.type != wanted.type ||
                tensor->info.shape != wanted.shape) {
                violation("input " + wanted.name + " has another size, type or shape");
                return input_tensor_error;
            }
            if (tensor->data == nullptr) {
                violation("input " + wanted.name + " has no data");
                return null_pointer;
            }
            if (const Status status = check_memory(*tensor, wanted.bytes()); status != ok) return status;
        }
        return ok;
    }

    // Memory that is said to be an allocator's has to be one of its blocks.
    static Status check_memory(const Tensor& tensor, std::size_t bytes) {
        if (!tensor.allocator) return ok;
        const std::string trouble = tensor.allocator->trouble(tensor.data, bytes);
        if (trouble.empty()) return ok;
        violation("tensor " + tensor.info.name + " is bound to " + trouble);
        return param_invalid;
    }

    Status check_outputs() {
        if (results_ == nullptr) {
            violation("ModelPredict got no array for the outputs");
            return null_pointer;
        }
        if (results_->handle_num == 0) return ok;
        if (mode() == "refuse" && results_->handle_num == model_.outputs.size()) return not_support;
        if (mode() == "half" && results_->handle_num == model_.outputs.size()) {
            Tensor& first = *model_.outputs[0];
            first.drop();
            first.data = user(results_->handle_list[0])->data;
            first.own = false;
            return not_support;
        }
        if (results_->handle_num != model_.outputs.size() || results_->handle_list == nullptr) {
            violation("the output array was not initialised: it says " +
                      std::to_string(results_->handle_num) + " tensors");
            return param_invalid;
        }
        for (std::size_t i = 0; i < results_->handle_num; ++i) {
            if (results_->handle_list[i] == nullptr) {
                violation("the output array is filled partly");
                return null_pointer;
            }
            Tensor* const tensor = user(results_->handle_list[i]);
            if (tensor == nullptr) return null_pointer;
            if (tensor->data == nullptr) {
                violation("output " + tensor->info.name + " has no data, so all of the caller's are dropped");
                return ok;
            }
            if (tensor->info.bytes() < model_.network.outputs[i].bytes()) {
                violation("output " + tensor->info.name + " is too small");
                return param_invalid;
            }
            if (const Status status = check_memory(*tensor, model_.network.outputs[i].bytes()); status != ok)
                return status;
        }
        users_ = mode() == "honour";
        return ok;
    }

    static std::string mode() {
        const std::string set = setting("OUTPUTS");
#ifdef STANDIN_OH
        return set.empty() ? "honour" : set;
#else
        return set.empty() ? "replace" : set;
#endif
    }

    void bind_inputs() {
        for (std::size_t i = 0; i < model_.inputs.size(); ++i) {
            const Tensor& tensor = *user(given_.handle_list[i]);
            Tensor& own = *model_.inputs[i];
#ifdef STANDIN_OH
            const bool bound = tensor.allocator != nullptr && tensor.allocator == own.allocator;
#else
            const bool bound = true;
#endif
            if (!bound && tensor.data != own.data) std::memcpy(own.provide(), tensor.data, own.info.bytes());
            count(bound ? "inputs_bound" : "inputs_copied");
            sources_.push_back(bound ? tensor.data : own.data);
        }
    }

    void bind_outputs() {
        for (std::size_t i = 0; i < model_.outputs.size(); ++i) {
            Tensor& own = *model_.outputs[i];
            if (!own.own && own.data != nullptr) count("outputs_external");
            Tensor* const given = users_ ? user(results_->handle_list[i]) : nullptr;
            const bool bound =
                given != nullptr && given->allocator != nullptr && given->allocator == own.allocator;
            if (given != nullptr) count(bound ? "outputs_bound" : "outputs_copied");
            targets_.push_back(bound ? given->data : own.provide());
        }
    }

    [[nodiscard]] bool call(abi::KernelCallBack before) {
        std::vector<Tensor> views(sources_.size());
        std::vector<Handle> list;
        for (std::size_t i = 0; i < sources_.size(); ++i) {
            views[i].info = model_.network.inputs[i];
            views[i].data = const_cast<void*>(sources_[i]);
            views[i].own = false;
            const std::lock_guard lock(handles_mutex);
            handles()[&views[i]] = "tensor";
            list.push_back(&views[i]);
        }
        char name[] = "standin";
        const bool go_on = before({list.size(), list.data()}, {0, nullptr}, {name, name});
        const std::lock_guard lock(handles_mutex);
        for (const Handle view : list) handles().erase(view);
        return go_on;
    }

    void finish() {
        for (std::size_t i = 0; users_ && i < targets_.size(); ++i) {
            Tensor& given = *user(results_->handle_list[i]);
            if (given.data != targets_[i])
                std::memcpy(given.data, targets_[i], model_.outputs[i]->info.bytes());
        }
        if (users_ || (results_->handle_num != 0 && mode() == "drop")) return;
        *results_ = {model_.output_handles.size(), model_.output_handles.data()};
        if (mode() == "null") results_->handle_list = nullptr;
        if (mode() == "short") --results_->handle_num;
        if (mode() == "hole") {
            model_.holed = model_.output_handles;
            model_.holed.back() = nullptr;
            results_->handle_list = model_.holed.data();
        }
    }

    Model& model_;
    const TensorHandleArray given_;
    TensorHandleArray* const results_;
    bool users_ = false;
    std::vector<const void*> sources_;
    std::vector<void*> targets_;
};

#ifdef STANDIN_OH
struct Device {
    std::size_t id = 0;
    std::string name;
    std::int32_t type = 0;
};

std::vector<Device> devices() {
    std::vector<Device> result;
    std::istringstream list(setting("DEVICES"));
    for (std::string each; std::getline(list, each, ',');) {
        std::istringstream parts(each);
        std::string id;
        std::string name;
        std::string type;
        std::getline(parts, id, ':');
        std::getline(parts, name, ':');
        std::getline(parts, type, ':');
        result.push_back({std::stoul(id), name, std::stoi(type)});
    }
    return result;
}
#endif

// Memory must not go while an output of a model still points to it: the next run would write there.
void check_unreferenced(const Tensor& tensor) {
    const std::lock_guard lock(handles_mutex);
    for (const auto& [other, kind] : handles()) {
        if (tensor.data == nullptr || std::strcmp(kind, "tensor") != 0) continue;
        const auto& holder = *static_cast<Tensor*>(other);
        if (holder.of_model && !holder.own && holder.data == tensor.data) {
            violation("memory is freed that output " + holder.info.name + " of a model points to");
        }
    }
}

Tensor* tensor_of(Handle handle, const char* caller) { return as<Tensor>(handle, "tensor", caller); }

}  // namespace
}  // namespace standin

using namespace standin;

STANDIN(Handle, ContextCreate)() { return track(new Context, "context"); }
STANDIN(void, ContextDestroy)(Handle* handle) {
    delete untrack<Context>(handle, "context", "ContextDestroy");
}
STANDIN(void, ContextSetThreadNum)(Handle handle, std::int32_t threads) {
    if (as<Context>(handle, "context", "ContextSetThreadNum") != nullptr) count("threads_set", threads);
}
STANDIN(void, ContextAddDeviceInfo)(Handle handle, Handle info) {
    auto* const context = as<Context>(handle, "context", "ContextAddDeviceInfo");
    auto* const device = untrack<DeviceInfo>(&info, "device", "ContextAddDeviceInfo");
    if (context != nullptr && device != nullptr) context->devices.push_back(device);
}
STANDIN(Handle, DeviceInfoCreate)(std::int32_t type) {
    if (type == abi::device_gpu) return nullptr;
#ifndef STANDIN_OH
    if (type == abi::device_nnrt) return nullptr;
#endif
    return track(new DeviceInfo{type, 0}, "device");
}
STANDIN(void, DeviceInfoDestroy)(Handle* handle) {
    delete untrack<DeviceInfo>(handle, "device", "DeviceInfoDestroy");
}

STANDIN(Handle, ModelCreate)() { return track(new Model, "model"); }
STANDIN(void, ModelDestroy)(Handle* handle) { delete untrack<Model>(handle, "model", "ModelDestroy"); }
STANDIN(Status, ModelBuildFromFile)(Handle handle, const char* path, std::uint32_t, Handle given) {
    auto* const model = as<Model>(handle, "model", "ModelBuildFromFile");
    auto* const context = as<Context>(given, "context", "ModelBuildFromFile");
    if (model == nullptr || context == nullptr) return null_pointer;
    // From now on it is the model's, so a second build finds a dead handle.
    model->context = untrack<Context>(&given, "context", "ModelBuildFromFile");
    if (model->context->devices.empty()) return lite_error;
    count("devices_given", static_cast<std::int64_t>(model->context->devices.size()));
    hang("HANG_BUILD");
    const auto network = read_network(path);
    if (!network) return graph_file_error;
    model->network = *network;
    model->make_tensors();
    return ok;
}
STANDIN(Status, ModelResize)
(Handle handle, TensorHandleArray inputs, abi::ShapeInfo* shapes, std::size_t number) {
    auto* const model = as<Model>(handle, "model", "ModelResize");
    if (model == nullptr || shapes == nullptr) return null_pointer;
    if (inputs.handle_num != number || number != model->inputs.size()) return param_invalid;
    Network network = model->network;
    for (std::size_t i = 0; i < number; ++i) {
        const std::vector<std::int64_t> shape(shapes[i].shape, shapes[i].shape + shapes[i].shape_num);
        if (shape.size() != network.inputs[i].shape.size()) return param_invalid;
        network.inputs[i].shape = shape;
    }
    model->network = network;
    model->make_tensors();
    return ok;
}
STANDIN(TensorHandleArray, ModelGetInputs)(Handle handle) {
    auto* const model = as<Model>(handle, "model", "ModelGetInputs");
    if (model == nullptr) return {0, nullptr};
    return {model->input_handles.size(), model->input_handles.data()};
}
STANDIN(TensorHandleArray, ModelGetOutputs)(Handle handle) {
    auto* const model = as<Model>(handle, "model", "ModelGetOutputs");
    if (model == nullptr) return {0, nullptr};
    return {model->output_handles.size(), model->output_handles.data()};
}
STANDIN(Status, ModelPredict)
(Handle handle, TensorHandleArray inputs, TensorHandleArray* outputs, abi::KernelCallBack before,
 abi::KernelCallBack) {
    auto* const model = as<Model>(handle, "model", "ModelPredict");
    if (model == nullptr) return null_pointer;
    if (model->in_use.exchange(true)) {
        violation("two threads run one model at the same time");
        return lite_error;
    }
    struct Turn {
        std::atomic<bool>& in_use;
        ~Turn() { in_use = false; }
    } const turn{model->in_use};
    if (model->caller == std::thread::id()) model->caller = std::this_thread::get_id();
    if (model->caller != std::this_thread::get_id())
        violation("a model is run by another thread than before");
    hang("HANG_RUN");
    return Run(*model, inputs, outputs).execute(before);
}

STANDIN(Handle, TensorCreate)
(const char* name, std::int32_t type, const std::int64_t* shape, std::size_t rank, const void* data,
 std::size_t bytes) {
    auto* const tensor = new Tensor;
    tensor->info = {name, type, 0, {shape, shape + rank}};
    if (data != nullptr && bytes == tensor->info.bytes()) std::memcpy(tensor->provide(), data, bytes);
    if (setting("EAGER") == "1") tensor->provide();
    return track(tensor, "tensor");
}
STANDIN(void, TensorDestroy)(Handle* handle) {
    auto* const tensor = handle != nullptr ? tensor_of(*handle, "TensorDestroy") : nullptr;
    if (tensor == nullptr) return;
    if (tensor->of_model) {
        violation("a tensor of a model is destroyed by the caller");
        return;
    }
    check_unreferenced(*tensor);
    delete untrack<Tensor>(handle, "tensor", "TensorDestroy");
}
STANDIN(const char*, TensorGetName)(Handle handle) {
    auto* const tensor = tensor_of(handle, "TensorGetName");
    return tensor != nullptr ? tensor->info.name.c_str() : nullptr;
}
STANDIN(std::int32_t, TensorGetDataType)(Handle handle) {
    auto* const tensor = tensor_of(handle, "TensorGetDataType");
    return tensor != nullptr ? tensor->info.type : 0;
}
STANDIN(std::int32_t, TensorGetFormat)(Handle handle) {
    auto* const tensor = tensor_of(handle, "TensorGetFormat");
    return tensor != nullptr ? tensor->info.format : 0;
}
STANDIN(void, TensorSetFormat)(Handle handle, std::int32_t format) {
    if (auto* const tensor = tensor_of(handle, "TensorSetFormat")) tensor->info.format = format;
}
STANDIN(const std::int64_t*, TensorGetShape)(Handle handle, std::size_t* rank) {
    auto* const tensor = tensor_of(handle, "TensorGetShape");
    *rank = tensor != nullptr ? tensor->info.shape.size() : 0;
    return tensor != nullptr ? tensor->info.shape.data() : nullptr;
}
STANDIN(const void*, TensorGetData)(Handle handle) {
    auto* const tensor = tensor_of(handle, "TensorGetData");
    return tensor != nullptr ? tensor->data : nullptr;
}
STANDIN(void*, TensorGetMutableData)(Handle handle) {
    auto* const tensor = tensor_of(handle, "TensorGetMutableData");
    return tensor != nullptr ? tensor->provide() : nullptr;
}
STANDIN(std::size_t, TensorGetDataSize)(Handle handle) {
    auto* const tensor = tensor_of(handle, "TensorGetDataSize");
    return tensor != nullptr ? tensor->info.bytes() : 0;
}
STANDIN(void, TensorSetData)(Handle handle, void* data) {
    auto* const tensor = tensor_of(handle, "TensorSetData");
    if (tensor == nullptr) return;
    count("set_data");
    // It becomes the tensor's, which frees it; memory that another tensor frees would be freed twice.
    {
        const std::lock_guard lock(handles_mutex);
        for (const auto& [other, kind] : handles()) {
            if (std::strcmp(kind, "tensor") != 0 || other == handle) continue;
            const auto& holder = *static_cast<Tensor*>(other);
            if (holder.data == data && holder.own) {
                violation("TensorSetData takes memory that another tensor owns");
                return;
            }
        }
    }
    tensor->drop();
    tensor->data = data;
    tensor->own = true;
}

#ifdef STANDIN_OH
STANDIN(Status, TensorSetUserData)(Handle handle, void* data, std::size_t bytes) {
    auto* const tensor = tensor_of(handle, "TensorSetUserData");
    if (tensor == nullptr || data == nullptr) return null_pointer;
    count("user_data_calls");
    if (setting("USER_DATA") == "refuse") return not_support;
    if (listed("USER_DATA", std::to_string(counted("user_data_calls")))) return not_support;
    if (tensor->info.bytes() != 0 && tensor->info.bytes() != bytes) {
        violation("TensorSetUserData got " + std::to_string(bytes) + " bytes");
        return param_invalid;
    }
    tensor->drop();
    tensor->allocator.reset();
    tensor->data = data;
    tensor->own = false;
    return ok;
}
STANDIN(Handle, TensorGetAllocator)(Handle handle) {
    auto* const tensor = tensor_of(handle, "TensorGetAllocator");
    if (tensor == nullptr || !tensor->allocator) return nullptr;
    const Listing listing;
    if (tensor->of_model && listed("LOST", tensor->info.name) && tensor->asked++ > 0) return nullptr;
    if (tensor->of_model && listed("RENEWED", tensor->info.name)) {
        static auto* const kept = new std::vector<std::shared_ptr<Allocator>>;  // others may hold blocks
        tensor->drop();
        kept->push_back(tensor->allocator);
        tensor->allocator = std::make_shared<Allocator>();
    }
    allocators()[tensor->allocator.get()] = tensor->allocator;
    return tensor->allocator.get();
}
STANDIN(Status, TensorSetAllocator)(Handle handle, Handle key) {
    auto* const tensor = tensor_of(handle, "TensorSetAllocator");
    if (tensor == nullptr) return null_pointer;
    if (key == nullptr) {
        violation("TensorSetAllocator got null");
        return null_pointer;
    }
    if (tensor->data != nullptr) {
        violation("TensorSetAllocator on a tensor that has data, which another allocator gave");
        return param_invalid;
    }
    const Listing listing;
    const auto found = allocators().find(key);
    if (found == allocators().end()) return param_invalid;
    const auto allocator = found->second.lock();
    if (!allocator) return null_pointer;
    if (setting("EXPIRED") == "1") return ok;
    tensor->allocator = allocator;
    tensor->own = true;
    return ok;
}

STANDIN(void, DeviceInfoSetDeviceId)(Handle handle, std::size_t id) {
    auto* const info = as<DeviceInfo>(handle, "device", "DeviceInfoSetDeviceId");
    if (info == nullptr) return;
    info->id = id;
    count("device_" + std::to_string(id));
}
STANDIN(void, DeviceInfoSetFrequency)(Handle handle, std::int32_t frequency) {
    const auto* const info = as<DeviceInfo>(handle, "device", "DeviceInfoSetFrequency");
    if (info != nullptr && info->type == abi::device_kirin_npu) count("frequency_set", frequency);
}
STANDIN(void, DeviceInfoSetEnableFP16)(Handle, bool enabled) { count("fp16_set", enabled ? 1 : 0); }
STANDIN(void, DeviceInfoSetPerformanceMode)(Handle, std::int32_t mode) { count("performance_set", mode); }
STANDIN(void, DeviceInfoSetPriority)(Handle, std::int32_t priority) { count("priority_set", priority); }
STANDIN(Status, DeviceInfoAddExtension)(Handle, const char* name, const char*, std::size_t) {
    if (std::strcmp(name, "CachePath") != 0) return param_invalid;
    count("extensions_set");
    return ok;
}
STANDIN(void*, GetAllNNRTDeviceDescs)(std::size_t* number) {
    auto* const all = new std::vector<Device>(devices());
    *number = all->size();
    if (!all->empty()) return track(all, "list");
    delete all;
    return nullptr;
}
STANDIN(void, DestroyAllNNRTDeviceDescs)(void** handle) {
    delete untrack<std::vector<Device>>(handle, "list", "DestroyAllNNRTDeviceDescs");
}
STANDIN(void*, GetElementOfNNRTDeviceDescs)(void* all, std::size_t index) {
    return &static_cast<std::vector<Device>*>(all)->at(index);
}
STANDIN(std::size_t, GetDeviceIdFromNNRTDeviceDesc)(const void* device) {
    return static_cast<const Device*>(device)->id;
}
STANDIN(const char*, GetNameFromNNRTDeviceDesc)(const void* device) {
    return static_cast<const Device*>(device)->name.c_str();
}
STANDIN(std::int32_t, GetTypeFromNNRTDeviceDesc)(const void* device) {
    return static_cast<const Device*>(device)->type;
}
#endif
