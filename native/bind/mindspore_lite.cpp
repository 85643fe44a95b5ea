#include "engines/mindspore_lite.hpp"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "bind/bind.hpp"

namespace pipeline::bind {

void bind_mindspore_lite(py::module_& module) {
    module.def(
        "mindspore_lite",
        [](std::string library, std::string model, std::string device, std::size_t contexts,
           std::optional<std::vector<std::int64_t>> input_shape, bool image_input, bool swap_rb,
           std::vector<float> mean, std::vector<float> scale, std::int32_t threads, std::int32_t affinity,
           std::vector<std::int32_t> cores, bool fp16, std::int32_t performance, std::int32_t priority,
           std::int32_t frequency, bool cpu_fallback, std::map<std::string, std::string> extensions) {
            MindSporeLiteOptions options;
            options.library = std::move(library);
            options.model = std::move(model);
            options.device = std::move(device);
            options.contexts = contexts;
            options.input_shape = std::move(input_shape);
            if (image_input) options.image = ImageOptions{swap_rb, std::move(mean), std::move(scale)};
            options.threads = threads;
            options.affinity = affinity;
            options.cores = std::move(cores);
            options.fp16 = fp16;
            options.performance = performance;
            options.priority = priority;
            options.frequency = frequency;
            options.cpu_fallback = cpu_fallback;
            options.extensions.assign(extensions.begin(), extensions.end());
            const EngineCall call;
            return open_mindspore_lite(options);
        },
        py::arg("library"), py::arg("model"), py::arg("device"), py::kw_only(), py::arg("contexts") = 1,
        py::arg("input_shape") = py::none(), py::arg("image_input") = true, py::arg("swap_rb") = false,
        py::arg("mean") = std::vector<float>{}, py::arg("scale") = std::vector<float>{},
        py::arg("threads") = 0, py::arg("affinity") = 0, py::arg("cores") = std::vector<std::int32_t>{},
        py::arg("fp16") = false, py::arg("performance") = 0, py::arg("priority") = 0,
        py::arg("frequency") = 0, py::arg("cpu_fallback") = true,
        py::arg("extensions") = std::map<std::string, std::string>{});
    module.def(
        "mindspore_lite_devices",
        [](const std::string& library) {
            MindSporeLiteDevices found;
            {
                const EngineCall call;
                found = list_mindspore_lite_devices(library);
            }
            return to_devices(found.family, found.devices);
        },
        py::arg("library"));
}

}  // namespace pipeline::bind
