// Reads the device option and the options that a context is configured with.
#include "engines/mindspore_lite/device.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>

namespace pipeline::mindspore_lite {
namespace {

constexpr std::array<std::string_view, 4> nnrt_types = {"others", "CPU", "GPU", "accelerator"};
constexpr std::string_view nnrt_prefix = "NNRT:";

bool is_nnrt(std::string_view device) { return device == "NNRT" || device.starts_with(nnrt_prefix); }

bool same_word(std::string_view one, std::string_view other) {
    return std::ranges::equal(one, other, [](char a, char b) {
        return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
    });
}

std::optional<std::size_t> as_number(std::string_view text) {
    std::size_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || stop != end || text.empty()) return std::nullopt;
    return value;
}

[[noreturn]] void fail_absent(const Api& api, const std::string& device) {
    std::string list = "CPU";
    for (const auto& found : nnrt_devices(api)) list += ", NNRT:" + nnrt_full_name(found);
    throw Error(Errc::device, "device '" + device + "' is absent; MindSpore Lite finds here: " + list);
}

// The device that the option means: by id, type or name; "NNRT" alone prefers an accelerator.
NnrtDevice choose_nnrt(const Api& api, const std::string& device) {
    const auto found = nnrt_devices(api);
    const auto pick = [&](const auto& matches) {
        const auto at = std::ranges::find_if(found, matches);
        if (at == found.end()) fail_absent(api, device);
        return *at;
    };
    if (found.empty()) fail_absent(api, device);
    if (device == "NNRT") {
        const auto accelerator = std::ranges::find(found, std::int32_t{nnrt_accelerator}, &NnrtDevice::type);
        return accelerator != found.end() ? *accelerator : found.front();
    }
    const std::string wanted = device.substr(nnrt_prefix.size());
    if (const auto id = as_number(wanted)) return pick([&](const auto& each) { return each.id == *id; });
    // A name as the library has it, else in other letters, else a type; as in engine nnrt.
    for (const bool exactly : {true, false}) {
        const auto at = std::ranges::find_if(found, [&](const auto& each) {
            return exactly ? each.name == wanted : same_word(each.name, wanted);
        });
        if (at != found.end()) return *at;
    }
    for (std::size_t type = 0; type < nnrt_types.size(); ++type) {
        if (!same_word(wanted, nnrt_types[type])) continue;
        return pick([&](const auto& each) { return each.type == static_cast<std::int32_t>(type); });
    }
    fail_absent(api, device);
}

void set_nnrt(const Api& api, Handle info, const MindSporeLiteOptions& options) {
    api.need(api.DeviceInfoSetDeviceId, "DeviceInfoSetDeviceId", "device");
    api.DeviceInfoSetDeviceId(info, choose_nnrt(api, options.device).id);
    if (options.performance != 0) {
        api.need(api.DeviceInfoSetPerformanceMode, "DeviceInfoSetPerformanceMode", "options.performance");
        api.DeviceInfoSetPerformanceMode(info, options.performance);
    }
    if (options.priority != 0) {
        api.need(api.DeviceInfoSetPriority, "DeviceInfoSetPriority", "options.priority");
        api.DeviceInfoSetPriority(info, options.priority);
    }
    for (const auto& [name, value] : options.extensions) {
        api.need(api.DeviceInfoAddExtension, "DeviceInfoAddExtension", "options.extensions");
        api.check(api.DeviceInfoAddExtension(info, name.c_str(), value.c_str(), value.size()), Errc::config,
                  name + " = '" + value + "' is refused", "options.extensions");
    }
}

Owned make_info(const Api& api, const MindSporeLiteOptions& options, std::int32_t type) {
    Owned info(api.DeviceInfoCreate(type), api.DeviceInfoDestroy);
    if (!info) fail_absent(api, options.device);
    if (options.fp16) {
        api.need(api.DeviceInfoSetEnableFP16, "DeviceInfoSetEnableFP16", "options.fp16");
        api.DeviceInfoSetEnableFP16(info.get(), true);
    }
    return info;
}

std::int32_t device_type(const Api& api, const std::string& device) {
    if (device == "CPU") return device_cpu;
    if (device == "GPU") return device_gpu;
    if (device == "NPU") return device_kirin_npu;
    if (is_nnrt(device)) return device_nnrt;
    fail_absent(api, device);
}

void check_options(const MindSporeLiteOptions& options) {
    const auto only_for = [&](bool given, const std::string& name, const char* devices) {
        if (given) throw Error(Errc::config, std::string("only for device ") + devices, "options." + name);
    };
    if (!is_nnrt(options.device)) {
        only_for(options.performance != 0, "performance", "NNRT");
        only_for(options.priority != 0, "priority", "NNRT");
        only_for(!options.extensions.empty(), "extensions", "NNRT");
    }
    if (options.device != "NPU") only_for(options.frequency != 0, "frequency", "NPU");
}

void set_threads(const Api& api, Handle context, const MindSporeLiteOptions& options) {
    if (options.threads > 0) api.ContextSetThreadNum(context, options.threads);
    if (!options.cores.empty()) {
        api.need(api.ContextSetThreadAffinityCoreList, "ContextSetThreadAffinityCoreList", "options.cores");
        api.ContextSetThreadAffinityCoreList(context, options.cores.data(), options.cores.size());
    } else if (options.affinity != 0) {
        api.need(api.ContextSetThreadAffinityMode, "ContextSetThreadAffinityMode", "options.affinity");
        api.ContextSetThreadAffinityMode(context, options.affinity);
    }
}

}  // namespace

std::vector<NnrtDevice> nnrt_devices(const Api& api) {
    std::vector<NnrtDevice> result;
    if (api.GetAllNNRTDeviceDescs == nullptr || api.DestroyAllNNRTDeviceDescs == nullptr ||
        api.GetElementOfNNRTDeviceDescs == nullptr || api.GetDeviceIdFromNNRTDeviceDesc == nullptr ||
        api.GetNameFromNNRTDeviceDesc == nullptr || api.GetTypeFromNNRTDeviceDesc == nullptr) {
        return result;
    }
    std::size_t count = 0;
    void* all = api.GetAllNNRTDeviceDescs(&count);
    if (all == nullptr) return result;
    for (std::size_t i = 0; i < count; ++i) {
        const void* one = api.GetElementOfNNRTDeviceDescs(all, i);
        if (one == nullptr) continue;
        const char* name = api.GetNameFromNNRTDeviceDesc(one);
        result.push_back({api.GetDeviceIdFromNNRTDeviceDesc(one), name != nullptr ? name : "",
                          api.GetTypeFromNNRTDeviceDesc(one)});
    }
    api.DestroyAllNNRTDeviceDescs(&all);
    return result;
}

std::string nnrt_full_name(const NnrtDevice& device) {
    const auto type = static_cast<std::size_t>(device.type);
    return device.name + " (" + std::string(type < nnrt_types.size() ? nnrt_types[type] : "unknown type") +
           ", id " + std::to_string(device.id) + ")";
}

Owned make_context(const Api& api, const MindSporeLiteOptions& options) {
    check_options(options);
    const std::int32_t type = device_type(api, options.device);
    Owned context(api.ContextCreate(), api.ContextDestroy);
    if (!context) throw Error(Errc::engine, "MindSpore Lite cannot make a context");
    set_threads(api, context.get(), options);
    Owned info = make_info(api, options, type);
    if (type == device_nnrt) set_nnrt(api, info.get(), options);
    if (options.frequency != 0) {
        api.need(api.DeviceInfoSetFrequency, "DeviceInfoSetFrequency", "options.frequency");
        api.DeviceInfoSetFrequency(info.get(), options.frequency);
    }
    api.ContextAddDeviceInfo(context.get(), info.release());
    if (type != device_cpu && options.cpu_fallback) {
        api.ContextAddDeviceInfo(context.get(), make_info(api, options, device_cpu).release());
    }
    return context;
}

std::string describe_device(const Api& api, const std::string& device) {
    if (is_nnrt(device)) return "NNRT: " + nnrt_full_name(choose_nnrt(api, device));
    if (device == "NPU") return "Kirin NPU";
    return device;
}

}  // namespace pipeline::mindspore_lite
