// Devices, compilation, and making and destroying executors.
#include <filesystem>
#include <fstream>

#include "tests/vendor/nnrt/state.hpp"

namespace {

using standin::State;

struct KnownDevice {
    std::size_t id;
    const char* name;
    OH_NN_DeviceType type;
};
constexpr KnownDevice known_devices[] = {{0x51A0DE71CE0001, "stand-in NPU", OH_NN_ACCELERATOR},
                                         {7, "stand-in CPU", OH_NN_CPU}};

const KnownDevice* known_device(std::size_t id) {
    for (const auto& device : known_devices) {
        if (device.id == id) return &device;
    }
    return nullptr;
}

std::filesystem::path cache_file(const OH_NNCompilation& compilation) {
    return std::filesystem::path(compilation.cache_dir) /
           (std::to_string(compilation.device) + "-" + std::to_string(compilation.cache_version) + ".cache");
}

OH_NN_ReturnCode option(OH_NNCompilation* compilation, bool known) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (!state.usable(compilation, "compilation")) return OH_NN_INVALID_PARAMETER;
    if (!known) return OH_NN_INVALID_PARAMETER;
    return state.switches.refuse_options ? OH_NN_UNSUPPORTED : OH_NN_SUCCESS;
}

OH_NNCompilation* make_compilation(const char* path) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (path == nullptr) {
        state.misuse("no path of a model");
        return nullptr;
    }
    auto* compilation = new OH_NNCompilation;
    compilation->model_path = path;
    state.alive.insert(compilation);
    ++state.stats.live_compilations;
    return compilation;
}

}  // namespace

extern "C" {

OH_NN_ReturnCode OH_NNDevice_GetAllDevicesID(const std::size_t** ids, std::uint32_t* count) {
    static constexpr std::size_t all[] = {known_devices[0].id, known_devices[1].id};
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    state.read_switches();
    if (ids == nullptr || count == nullptr || *ids != nullptr)
        return state.misuse("GetAllDevicesID: the list is not null on entry");
    *ids = all;
    *count = state.switches.no_devices ? 0 : 2;
    return OH_NN_SUCCESS;
}

OH_NN_ReturnCode OH_NNDevice_GetName(std::size_t id, const char** name) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    const auto* device = known_device(id);
    if (name == nullptr || *name != nullptr) return state.misuse("GetName: the name is not null on entry");
    if (device == nullptr) return OH_NN_INVALID_PARAMETER;
    *name = device->name;
    return OH_NN_SUCCESS;
}

OH_NN_ReturnCode OH_NNDevice_GetType(std::size_t id, OH_NN_DeviceType* type) {
    const auto* device = known_device(id);
    if (device == nullptr || type == nullptr) return OH_NN_INVALID_PARAMETER;
    *type = device->type;
    return OH_NN_SUCCESS;
}

OH_NNCompilation* OH_NNCompilation_ConstructWithOfflineModelFile(const char* path) {
    return make_compilation(path);
}

OH_NNCompilation* OH_NNCompilation_ConstructForCache() { return make_compilation(""); }

OH_NN_ReturnCode OH_NNCompilation_SetDevice(OH_NNCompilation* compilation, std::size_t id) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (!state.usable(compilation, "compilation")) return OH_NN_INVALID_PARAMETER;
    if (known_device(id) == nullptr) return OH_NN_UNAVAILABLE_DEVICE;
    compilation->device = id;
    return OH_NN_SUCCESS;
}

OH_NN_ReturnCode OH_NNCompilation_SetCache(OH_NNCompilation* compilation, const char* folder,
                                           std::uint32_t version) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (!state.usable(compilation, "compilation") || folder == nullptr) return OH_NN_INVALID_PARAMETER;
    if (state.switches.refuse_cache) return OH_NN_OPERATION_FORBIDDEN;
    if (!std::filesystem::is_directory(folder)) return OH_NN_INVALID_PATH;
    compilation->cache_dir = folder;
    compilation->cache_version = version;
    return OH_NN_SUCCESS;
}

OH_NN_ReturnCode OH_NNCompilation_SetPerformanceMode(OH_NNCompilation* compilation, std::int32_t mode) {
    return option(compilation, mode >= 0 && mode <= 4);
}

OH_NN_ReturnCode OH_NNCompilation_SetPriority(OH_NNCompilation* compilation, std::int32_t priority) {
    return option(compilation, priority >= 0 && priority <= 3);
}

OH_NN_ReturnCode OH_NNCompilation_EnableFloat16(OH_NNCompilation* compilation, bool /*enable*/) {
    return option(compilation, true);
}

OH_NN_ReturnCode OH_NNCompilation_Build(OH_NNCompilation* compilation) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (!state.usable(compilation, "compilation")) return OH_NN_INVALID_PARAMETER;
    if (compilation->built) return state.misuse("Build: a second time", OH_NN_OPERATION_FORBIDDEN);
    compilation->built = true;
    if (state.dead) return OH_NN_CONNECTION_EXCEPTION;
    if (compilation->device == 0) return state.misuse("Build: no device was set");
    const bool offline = !compilation->model_path.empty();
    if (offline && state.switches.refuse_offline) return OH_NN_FAILED;
    if (!offline && compilation->cache_dir.empty()) return state.misuse("Build: neither model nor cache");
    compilation->model =
        standin::read_model(offline ? compilation->model_path : cache_file(*compilation).string());
    if (!compilation->model) return OH_NN_INVALID_FILE;
#ifdef STANDIN_NNRT_V1
    for (const auto* tensors : {&compilation->model->inputs, &compilation->model->outputs}) {
        for (const auto& tensor : *tensors) {
            if (standin::byte_size(tensor.type, tensor.shape) == 0) return OH_NN_INVALID_PARAMETER;
        }
    }
#endif
    if (offline && !compilation->cache_dir.empty()) {
        std::ofstream file(cache_file(*compilation));
        file << compilation->model->text;
        if (!file.flush()) return OH_NN_SAVE_CACHE_EXCEPTION;
    }
    return OH_NN_SUCCESS;
}

void OH_NNCompilation_Destroy(OH_NNCompilation** compilation) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (compilation == nullptr || !state.usable(*compilation, "compilation")) return;
    state.alive.erase(*compilation);
    --state.stats.live_compilations;
    delete *compilation;
    *compilation = nullptr;
}

OH_NNExecutor* OH_NNExecutor_Construct(OH_NNCompilation* compilation) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (!state.usable(compilation, "compilation")) return nullptr;
    if (!compilation->model) {
        state.misuse("executor of a compilation that was not built");
        return nullptr;
    }
    if (state.switches.refuse_executor) return nullptr;
    auto* executor = new OH_NNExecutor;
    executor->model = compilation->model;
    executor->device = compilation->device;
    executor->generation = state.generation;
    executor->inputs.resize(executor->model->inputs.size());
    executor->outputs.resize(executor->model->outputs.size());
    state.alive.insert(executor);
    ++state.stats.live_executors;
    return executor;
}

void OH_NNExecutor_Destroy(OH_NNExecutor** executor) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (executor == nullptr || !state.usable(*executor, "executor")) return;
    if ((*executor)->running) {  // which would be the end of the process, so it is left alone
        state.misuse("executor destroyed while it runs");
        return;
    }
    std::uint64_t outstanding = 0;
    for (auto& entry : state.blocks) {
        if (entry.second.executor != *executor) continue;
        ++outstanding;
        entry.second.executor = nullptr;  // another may come to stand where this one did
    }
    if (outstanding > 0) {  // the runtime forgets them without freeing them
        state.stats.leaked_blocks += outstanding;
        state.misuse("executor destroyed before " + std::to_string(outstanding) + " pieces of its memory");
    }
    state.alive.erase(*executor);
    --state.stats.live_executors;
    delete *executor;
    *executor = nullptr;
}

OH_NN_ReturnCode OH_NNExecutor_GetOutputShape(OH_NNExecutor* executor, std::uint32_t index,
                                              std::int32_t** shape, std::uint32_t* dimensions) {
    State& state = State::get();
    const std::lock_guard lock(state.mutex);
    if (!state.usable(executor, "executor")) return OH_NN_INVALID_PARAMETER;
    if (shape == nullptr || *shape != nullptr || dimensions == nullptr)
        return state.misuse("GetOutputShape: the shape is not null on entry");
    if (index >= executor->made.size()) return state.misuse("GetOutputShape: no run, or no such output");
    *shape = executor->made[index].data();
    *dimensions = static_cast<std::uint32_t>(executor->made[index].size());
    return OH_NN_SUCCESS;
}

}  // extern "C"
