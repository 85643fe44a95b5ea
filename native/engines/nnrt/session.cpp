// Finds the device, compiles or restores the model, and opens executors.
#include "engines/nnrt/session.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

namespace pipeline::nnrt {
namespace {

const char* type_name(OH_NN_DeviceType type) {
    switch (type) {
        case OH_NN_CPU:
            return "cpu";
        case OH_NN_GPU:
            return "gpu";
        case OH_NN_ACCELERATOR:
            return "accelerator";
        case OH_NN_OTHERS:
            break;
    }
    return "others";
}

std::string lower(std::string text) {
    std::ranges::transform(text, text.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

std::string source_of(const NnrtOptions& options) {
    return options.model.empty() ? options.cache_dir : options.model;
}

}  // namespace

std::string Device::describe() const { return name + " (" + type_name(type) + ")"; }

std::vector<Device> all_devices(const Api& api) {
    const std::size_t* ids = nullptr;  // the runtime's own
    std::uint32_t count = 0;
    Api::check(api.OH_NNDevice_GetAllDevicesID(&ids, &count), Errc::engine, "NNRT cannot list its devices");
    std::vector<Device> devices;
    for (std::uint32_t i = 0; i < count; ++i) {
        Device device{ids[i], "", OH_NN_OTHERS};
        const char* name = nullptr;
        if (api.OH_NNDevice_GetName(device.id, &name) == OH_NN_SUCCESS && name != nullptr) device.name = name;
        static_cast<void>(api.OH_NNDevice_GetType(device.id, &device.type));
        devices.push_back(std::move(device));
    }
    return devices;
}

Device find_device(const Api& api, const std::string& wanted) {
    const auto devices = all_devices(api);
    const std::string folded = lower(wanted);
    const auto pick = [&](auto&& matches) -> const Device* {
        const auto found = std::ranges::find_if(devices, matches);
        return found == devices.end() ? nullptr : &*found;
    };
    const Device* found = pick([&](const Device& d) { return std::to_string(d.id) == wanted; });
    if (found == nullptr) found = pick([&](const Device& d) { return lower(d.name) == folded; });
    if (found == nullptr) {
        const std::string type = folded == "npu" ? "accelerator" : folded;
        found = pick([&](const Device& d) { return type_name(d.type) == type; });
    }
    if (found != nullptr) return *found;
    std::string list;
    for (const auto& device : devices) {
        list += (list.empty() ? "" : ", ") + std::to_string(device.id) + " " + device.describe();
    }
    throw Error(Errc::device,
                "device '" + wanted + "' is absent; NNRT finds here: " + (list.empty() ? "none" : list));
}

Session::Session(const NnrtOptions& o) : options(o), api(o.library), device(find_device(api, o.device)) {
    first_ = open_executor();
    tensors = read_tensors(api, options, first_.get());
}

OwnedExecutor Session::take_executor() {
    {
        const std::lock_guard lock(mutex_);
        if (first_) return std::exchange(first_, OwnedExecutor(nullptr, {api.OH_NNExecutor_Destroy}));
    }
    return open_executor();
}

OwnedExecutor Session::open_executor() const {
    const auto compilation = compile();
    // It keeps what it needs, so the compilation may go.
    OwnedExecutor executor(api.OH_NNExecutor_Construct(compilation.get()), {api.OH_NNExecutor_Destroy});
    if (!executor) {
        throw Error(Errc::model,
                    source_of(options) + ": device '" + device.name + "' cannot make an executor for it");
    }
    return executor;
}

OwnedExecutor Session::reopen_executor() const {
    const std::string what = "device '" + device.name + "' was lost and cannot be reopened: ";
    try {
        auto executor = open_executor();
        const auto found = read_tensors(api, options, executor.get());
        const auto same = [](const TensorSpec& a, const TensorSpec& b) {
            return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape;
        };
        if (!std::ranges::equal(found.inputs, tensors.inputs, same) ||
            !std::ranges::equal(found.outputs, tensors.outputs, same)) {
            throw Error(Errc::device, "the model has other tensors now");
        }
        return executor;
    } catch (const Error& error) {
        throw Error(Errc::device, what + error.key() + (error.key().empty() ? "" : ": ") + error.what());
    }
}

OH_NNCompilation* Session::construct() const {
    if (options.model.empty()) {
        return api.need(api.OH_NNCompilation_ConstructForCache, "OH_NNCompilation_ConstructForCache",
                        "so it cannot load a compiled model (API 11 can)")();
    }
    return api.need(api.OH_NNCompilation_ConstructWithOfflineModelFile,
                    "OH_NNCompilation_ConstructWithOfflineModelFile",
                    "so it cannot load a model file (API 11 can)")(options.model.c_str());
}

void Session::configure(OH_NNCompilation* compilation) const {
    Api::check(api.OH_NNCompilation_SetDevice(compilation, device.id), Errc::device,
               "device '" + device.name + "' cannot be set");
    const auto set = [&](const char* option, OH_NN_ReturnCode status) {
        const std::string name = option;
        Api::check(status, Errc::config, name + " is refused by device '" + device.name + "'",
                   "options." + name);
    };
    if (!options.cache_dir.empty()) {
        set("cache_dir", api.need(api.OH_NNCompilation_SetCache, "OH_NNCompilation_SetCache",
                                  "which options.cache_dir needs")(compilation, options.cache_dir.c_str(),
                                                                   options.cache_version));
    }
    if (options.performance) {
        set("performance",
            api.need(api.OH_NNCompilation_SetPerformanceMode, "OH_NNCompilation_SetPerformanceMode",
                     "which options.performance needs")(compilation, *options.performance));
    }
    if (options.priority) {
        set("priority", api.need(api.OH_NNCompilation_SetPriority, "OH_NNCompilation_SetPriority",
                                 "which options.priority needs")(compilation, *options.priority));
    }
    if (options.float16) {
        set("float16", api.need(api.OH_NNCompilation_EnableFloat16, "OH_NNCompilation_EnableFloat16",
                                "which options.float16 needs")(compilation, *options.float16));
    }
}

OwnedCompilation Session::compile() const {
    const std::string source = source_of(options);
    const std::string key = options.model.empty() ? "options.cache_dir" : "";
    std::error_code ignored;
    if (!std::filesystem::exists(source, ignored)) throw Error(Errc::model, source + ": no such file", key);
    const OwnedCompilation::deleter_type destroyer{api.OH_NNCompilation_Destroy};
    OwnedCompilation compilation(construct(), destroyer);
    if (!compilation) throw Error(Errc::model, source + ": NNRT cannot take it in", key);
    configure(compilation.get());
    const auto status = api.OH_NNCompilation_Build(compilation.get());
    if (status == OH_NN_SUCCESS) return compilation;
    if (is_lost(status) || options.model.empty()) {
        Api::check(status, Errc::model,
                   source + ": no compiled model of version " + std::to_string(options.cache_version) +
                       " that device '" + device.name + "' takes",
                   key);
    }
    throw Error(Errc::model, source + ": device '" + device.name +
                                 "' refuses this model file: " + code_text(status) +
                                 "; it has to be the offline model of that device's vendor (NNRT's built-in "
                                 "backend takes none, only a compiled cache: options.cache_dir)");
}

}  // namespace pipeline::nnrt
