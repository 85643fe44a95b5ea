#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "bind/bind.hpp"
#include "core/engine.hpp"
#include "engines/openvino.hpp"
#include "engines/rknn.hpp"
#include "engines/simulated.hpp"

namespace pipeline::bind {
namespace {

LatencyDistribution parse_distribution(const std::string& text) {
    if (text == "fixed") return LatencyDistribution::fixed;
    if (text == "uniform") return LatencyDistribution::uniform;
    if (text == "normal") return LatencyDistribution::normal;
    if (text == "exponential") return LatencyDistribution::exponential;
    throw Error(Errc::config,
                "distribution: '" + text + "' is not one of fixed, uniform, normal, exponential");
}

void bind_simulated(py::module_& module) {
    module.def(
        "simulated",
        [](std::vector<TensorSpec> inputs, std::vector<TensorSpec> outputs, std::size_t contexts,
           std::size_t cores, double latency_us, double jitter_us, const std::string& distribution,
           std::uint64_t seed, std::vector<std::uint64_t> fail_runs, std::vector<std::uint64_t> hang_runs,
           double hang_seconds, std::int64_t refuse_allocation) {
            SimulatedOptions options;
            options.inputs = std::move(inputs);
            options.outputs = std::move(outputs);
            options.contexts = contexts;
            options.cores = cores;
            options.latency_us = latency_us;
            options.jitter_us = jitter_us;
            options.distribution = parse_distribution(distribution);
            options.seed = seed;
            options.fail_runs = std::move(fail_runs);
            options.hang_runs = std::move(hang_runs);
            options.hang_seconds = hang_seconds;
            if (refuse_allocation >= 0) {
                options.refuse_allocation = static_cast<std::uint64_t>(refuse_allocation);
            }
            return open_simulated(std::move(options));
        },
        py::arg("inputs"), py::arg("outputs"), py::kw_only(), py::arg("contexts") = 1, py::arg("cores") = 0,
        py::arg("latency_us") = 0.0, py::arg("jitter_us") = 0.0, py::arg("distribution") = "fixed",
        py::arg("seed") = 0, py::arg("fail_runs") = std::vector<std::uint64_t>{},
        py::arg("hang_runs") = std::vector<std::uint64_t>{}, py::arg("hang_seconds") = 1e9,
        py::arg("refuse_allocation") = -1);
}

void bind_openvino(py::module_& module) {
    module.def(
        "openvino",
        [](std::string library, std::string model, std::string device, std::size_t contexts,
           std::optional<std::vector<std::int64_t>> input_shape, bool image_input, bool swap_rb,
           std::vector<float> mean, std::vector<float> scale, std::map<std::string, std::string> properties) {
            OpenVinoOptions options;
            options.library = std::move(library);
            options.model = std::move(model);
            options.device = std::move(device);
            options.contexts = contexts;
            options.input_shape = std::move(input_shape);
            options.image_input = image_input;
            options.swap_rb = swap_rb;
            options.mean = std::move(mean);
            options.scale = std::move(scale);
            options.properties.assign(properties.begin(), properties.end());
            const EngineCall call;
            return open_openvino(options);
        },
        py::arg("library"), py::arg("model"), py::arg("device"), py::kw_only(), py::arg("contexts") = 1,
        py::arg("input_shape") = py::none(), py::arg("image_input") = true, py::arg("swap_rb") = false,
        py::arg("mean") = std::vector<float>{}, py::arg("scale") = std::vector<float>{},
        py::arg("properties") = std::map<std::string, std::string>{});
    module.def(
        "openvino_devices",
        [](const std::string& library) {
            OpenVinoDevices found;
            {
                const EngineCall call;
                found = list_openvino_devices(library);
            }
            return to_devices(found.version, found.devices);
        },
        py::arg("library"));
}

template <class Value>
Value parse(const std::string& text, const char* option,
            const std::vector<std::pair<std::string, Value>>& known) {
    std::string names;
    for (const auto& [name, value] : known) {
        if (name == text) return value;
        names += (names.empty() ? "" : ", ") + name;
    }
    throw Error(Errc::config, std::string(option) + ": '" + text + "' is not one of " + names);
}

void bind_rknn(py::module_& module) {
    module.def(
        "rknn",
        [](std::string library, std::string model, std::optional<std::size_t> contexts,
           std::vector<unsigned> cores, const std::string& mode, const std::string& binding,
           const std::string& priority, bool raise_priority, bool image_input, bool dequantize,
           bool explicit_sync, std::optional<std::vector<std::int64_t>> input_shape) {
            RknnOptions options;
            options.library = std::move(library);
            options.model = std::move(model);
            options.contexts = contexts;
            options.cores = std::move(cores);
            options.mode = parse<RknnMode>(
                mode, "mode", {{"zero_copy", RknnMode::zero_copy}, {"general", RknnMode::general}});
            options.binding = parse<RknnBinding>(binding, "binding",
                                                 {{"context_per_slot", RknnBinding::context_per_slot},
                                                  {"rebind", RknnBinding::rebind},
                                                  {"auto", RknnBinding::automatic}});
            options.priority = parse<RknnPriority>(
                priority, "priority",
                {{"high", RknnPriority::high}, {"medium", RknnPriority::medium}, {"low", RknnPriority::low}});
            options.raise_priority = raise_priority;
            options.image_input = image_input;
            options.dequantize = dequantize;
            options.explicit_sync = explicit_sync;
            options.input_shape = std::move(input_shape);
            const EngineCall call;
            return open_rknn(options);
        },
        py::arg("library"), py::arg("model"), py::kw_only(), py::arg("contexts") = py::none(),
        py::arg("cores") = std::vector<unsigned>{}, py::arg("mode") = "zero_copy",
        py::arg("binding") = "context_per_slot", py::arg("priority") = "high",
        py::arg("raise_priority") = false, py::arg("image_input") = true, py::arg("dequantize") = true,
        py::arg("explicit_sync") = false, py::arg("input_shape") = py::none());
    module.def("rknn_check_library", &check_rknn_library, py::arg("library"), py::call_guard<EngineCall>());
}

}  // namespace

void bind_engines(py::module_& module) {
    py::class_<Engine, std::shared_ptr<Engine>>(module, "Engine", "A loaded model on one device.")
        .def_property_readonly("name", [](const Engine& engine) { return to_text(engine.name()); })
        .def_property_readonly("device", [](const Engine& engine) { return to_text(engine.device()); })
        .def_property_readonly("contexts", &Engine::context_count)
        .def_property_readonly("rebinds", &Engine::rebinds)
        .def_property_readonly("notes", [](const Engine& engine) {
            py::dict notes;
            for (const auto& [name, text] : engine.notes()) notes[to_text(name)] = to_text(text);
            return notes;
        });
    bind_simulated(module);
    bind_openvino(module);
    bind_rknn(module);
    bind_nnrt(module);
    bind_mindspore_lite(module);
}

}  // namespace pipeline::bind
