// The engine: a core and a compiled model shared by its contexts, and the devices of a library.
#include "engines/openvino/engine.hpp"

#include "core/error.hpp"

#ifdef PIPELINE_WITH_OPENVINO

#include <algorithm>
#include <array>
#include <string_view>

#include "engines/openvino/api.hpp"
#include "engines/openvino/context.hpp"
#include "engines/openvino/model.hpp"

namespace pipeline {
namespace openvino {

namespace {

std::vector<std::string> available_devices(const Api& api, const ov_core_t* core) {
    ov_available_devices_t devices{};
    api.check(api.ov_core_get_available_devices(core, &devices), Errc::engine,
              "OpenVINO cannot list its devices");
    std::vector<std::string> names(devices.devices, devices.devices + devices.size);
    api.ov_available_devices_free(&devices);
    return names;
}

std::string full_name(const Api& api, const ov_core_t* core, const std::string& device) {
    char* name = nullptr;
    if (api.ov_core_get_property(core, device.c_str(), "FULL_DEVICE_NAME", &name) != OK) return device;
    return api.take(name);
}

// The plain devices that a device string names: of "AUTO:NPU,CPU" these are NPU and CPU.
std::vector<std::string> named_devices(const std::string& device) {
    static constexpr std::array<std::string_view, 4> compound = {"AUTO", "MULTI", "HETERO", "BATCH"};
    const std::size_t colon = device.find(':');
    if (std::ranges::find(compound, std::string_view(device).substr(0, colon)) == compound.end())
        return {device};
    std::vector<std::string> names;
    for (std::size_t begin = colon; begin < device.size();) {
        const std::size_t end = std::min(device.find(',', begin + 1), device.size());
        std::string name = device.substr(begin + 1, end - begin - 1);
        begin = end;
        if (name.starts_with('-')) continue;  // AUTO:-GPU leaves it out
        names.push_back(name.substr(0, name.find('(')));
    }
    return names;
}

// A property of the compiled model as text; empty where it has none.
std::string property(const Api& api, const ov_compiled_model_t* model, const char* name) {
    char* text = nullptr;
    return api.ov_compiled_model_get_property(model, name, &text) == OK ? api.take(text) : "";
}

void check_device(const Api& api, const ov_core_t* core, const std::string& device) {
    // Listing loads the plugin of every kind of device, which costs memory and time.
    char* text = nullptr;
    if (device.find_first_of(".:") == device.npos &&
        api.ov_core_get_property(core, device.c_str(), "FULL_DEVICE_NAME", &text) == OK) {
        static_cast<void>(api.take(text));
        return;
    }
    const auto available = available_devices(api, core);
    for (const auto& name : named_devices(device)) {
        const bool found = std::ranges::any_of(available, [&](const std::string& known) {
            return known == name || known.starts_with(name + ".") ||
                   (known != "CPU" && known + ".0" == name);  // the CPU has no numbers
        });
        if (found) continue;
        std::string list;
        for (const auto& known : available) list += (list.empty() ? "" : ", ") + known;
        throw Error(Errc::device, "device '" + name +
                                      "' is absent; OpenVINO finds here: " + (list.empty() ? "none" : list));
    }
}

std::string describe_device(const Api& api, const ov_core_t* core, const ov_compiled_model_t* model,
                            const std::string& device) {
    const auto named = named_devices(device);
    if (named.size() == 1 && named[0] == device) return full_name(api, core, device);
    const std::string used = property(api, model, "EXECUTION_DEVICES");
    if (used.empty()) return device;
    const auto available = available_devices(api, core);
    const bool plain = std::ranges::find(available, used) != available.end();
    return device + " on " + used + (plain ? " (" + full_name(api, core, used) + ")" : "");
}

// Throws Errc::config when compiling failed for a property. OpenVINO mostly names it; if not, a plain
// device can be asked about each. A compound one knows fewer by itself than it takes for compiling.
void blame_property(const Api& api, const ov_core_t* core, const OpenVinoOptions& options,
                    const std::string& reason) {
    const auto refused = [&](const auto& property) {
        return "property " + property.first + " = '" + property.second + "' is refused by " + options.device;
    };
    for (const auto& property : options.properties) {
        if (reason.find(property.first) != reason.npos)
            throw Error(Errc::config, refused(property) + ": " + reason, "options.properties");
    }
    if (named_devices(options.device) != std::vector{options.device}) return;
    for (const auto& property : options.properties) {
        const ov_property_t pair{property.first.c_str(), property.second.c_str()};
        api.check(api.ov_core_set_properties(core, options.device.c_str(), 1, &pair), Errc::config,
                  refused(property), "options.properties");
    }
}

Owned<ov_compiled_model_t> compile(const Api& api, const ov_core_t* core, const OpenVinoOptions& options,
                                   const ov_model_t* model) {
    std::vector<ov_property_t> properties;
    for (const auto& [key, value] : options.properties) properties.push_back({key.c_str(), value.c_str()});
    ov_compiled_model_t* compiled = nullptr;
    const auto status = api.ov_core_compile_model_props(core, model, options.device.c_str(),
                                                        properties.size(), properties.data(), &compiled);
    if (status != OK) {
        const std::string reason = api.reason(status);
        blame_property(api, core, options, reason);
        throw Error(Errc::model,
                    options.model + ": cannot be compiled for " + options.device + ": " + reason);
    }
    return {compiled, api.ov_compiled_model_free};
}

std::vector<TensorSpec> compiled_specs(const Api& api, const ov_compiled_model_t* model, Direction direction,
                                       const std::string& path) {
    const bool input = direction == Direction::input;
    const auto count = input ? api.ov_compiled_model_inputs_size : api.ov_compiled_model_outputs_size;
    const auto get = input ? api.ov_compiled_model_input_by_index : api.ov_compiled_model_output_by_index;
    std::size_t size = 0;
    api.check(count(model, &size), Errc::model, path + ": cannot count the compiled model's tensors");
    std::vector<TensorSpec> specs;
    for (std::size_t i = 0; i < size; ++i) {
        const auto port = api.own(api.ov_output_const_port_free, Errc::model,
                                  path + ": cannot look at a tensor of the compiled model",
                                  [&](ov_output_const_port_t** out) { return get(model, i, out); });
        specs.push_back(make_spec(path, read_port(api, port.get(), direction, i), false));
    }
    return specs;
}

std::unique_ptr<const Session> load(const OpenVinoOptions& options) {
    auto session = std::make_unique<Session>(options.library);
    const Api& api = session->api;
    check_device(api, session->core.get(), options.device);
    const Model source = load_model(api, session->core.get(), options);
    session->model = compile(api, session->core.get(), options, source.model.get());
    session->inputs = compiled_specs(api, session->model.get(), Direction::input, options.model);
    session->outputs = compiled_specs(api, session->model.get(), Direction::output, options.model);
    for (std::size_t i = 0; i < session->inputs.size(); ++i) {
        if (source.image_inputs.at(i)) session->inputs[i].layout = "NHWC";
    }
    session->device = describe_device(api, session->core.get(), session->model.get(), options.device);
    session->precision = property(api, session->model.get(), "INFERENCE_PRECISION_HINT");
    session->runs_on_cpu = property(api, session->model.get(), "EXECUTION_DEVICES") == "CPU";
    // The CPU has no remote context and answers with an error.
    ov_remote_context_t* context = nullptr;
    if (api.ov_compiled_model_get_context(session->model.get(), &context) == OK)
        session->remote.reset(context);
    return session;
}

class OpenVinoEngine final : public Engine {
public:
    explicit OpenVinoEngine(const OpenVinoOptions& options)
        : session_(load(options)), contexts_(options.contexts) {}

    [[nodiscard]] std::string_view name() const noexcept override { return "openvino"; }
    [[nodiscard]] std::string device() const override { return session_->device; }
    [[nodiscard]] std::size_t context_count() const noexcept override { return contexts_; }
    [[nodiscard]] const std::vector<TensorSpec>& inputs() const noexcept override { return session_->inputs; }
    [[nodiscard]] const std::vector<TensorSpec>& outputs() const noexcept override {
        return session_->outputs;
    }
    [[nodiscard]] std::vector<std::pair<std::string, std::string>> notes() const override {
        if (session_->precision.empty()) return {};
        return {{"precision", session_->precision}};
    }
    [[nodiscard]] std::unique_ptr<EngineContext> open_context(std::size_t /*index*/) override {
        return openvino::open_context(*session_);
    }

private:
    const std::unique_ptr<const Session> session_;
    const std::size_t contexts_;
};

}  // namespace
}  // namespace openvino

std::shared_ptr<Engine> open_openvino(const OpenVinoOptions& options) {
    if (options.contexts == 0) throw Error(Errc::config, "contexts is 0, not above 0");
    return std::make_shared<openvino::OpenVinoEngine>(options);
}

Devices list_openvino_devices(const std::string& library) {
    const openvino::Session session(library);
    const auto& api = session.api;
    Devices result;
    ov_version_t version{};
    api.check(api.ov_get_openvino_version(&version), Errc::engine, "OpenVINO does not tell its version");
    result.version = version.buildNumber;
    api.ov_version_free(&version);
    for (auto& device : openvino::available_devices(api, session.core.get())) {
        std::string name = openvino::full_name(api, session.core.get(), device);
        char* precision = nullptr;
        if (api.ov_core_get_property(session.core.get(), device.c_str(), "INFERENCE_PRECISION_HINT",
                                     &precision) == OK) {
            name += ", computes in " + api.take(precision);
        }
        result.devices.emplace_back(std::move(device), std::move(name));
    }
    return result;
}

}  // namespace pipeline

#else

namespace pipeline {

namespace {
constexpr auto no_headers = "this build knows no engine 'openvino': it was built without OpenVINO headers";
}

std::shared_ptr<Engine> open_openvino(const OpenVinoOptions& /*options*/) {
    throw Error(Errc::not_installed, no_headers);
}

Devices list_openvino_devices(const std::string& /*library*/) {
    throw Error(Errc::not_installed, no_headers);
}

}  // namespace pipeline

#endif  // PIPELINE_WITH_OPENVINO
