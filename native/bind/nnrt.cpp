#include "engines/nnrt.hpp"

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "bind/bind.hpp"

namespace pipeline::bind {

void bind_nnrt(py::module_& module) {
    module.def(
        "nnrt",
        [](std::string library, std::string model, std::string device, std::size_t contexts,
           std::optional<std::vector<std::int64_t>> input_shape, bool image_input, bool swap_rb,
           std::vector<float> mean, std::vector<float> scale, std::vector<TensorSpec> inputs,
           std::vector<TensorSpec> outputs, std::string cache_dir, std::uint32_t cache_version,
           std::optional<std::int32_t> performance, std::optional<std::int32_t> priority,
           std::optional<bool> float16, double idle_seconds) {
            NnrtOptions options;
            options.library = std::move(library);
            options.model = std::move(model);
            options.device = std::move(device);
            options.contexts = contexts;
            options.input_shape = std::move(input_shape);
            if (image_input) options.image = ImageOptions{swap_rb, std::move(mean), std::move(scale)};
            options.inputs = std::move(inputs);
            options.outputs = std::move(outputs);
            options.cache_dir = std::move(cache_dir);
            options.cache_version = cache_version;
            options.performance = performance;
            options.priority = priority;
            options.float16 = float16;
            options.idle = std::chrono::duration_cast<std::chrono::nanoseconds>(
                std::chrono::duration<double>(idle_seconds));
            const EngineCall call;
            return open_nnrt(options);
        },
        py::arg("library"), py::arg("model"), py::arg("device"), py::kw_only(), py::arg("contexts") = 1,
        py::arg("input_shape") = py::none(), py::arg("image_input") = true, py::arg("swap_rb") = false,
        py::arg("mean") = std::vector<float>{}, py::arg("scale") = std::vector<float>{},
        py::arg("inputs") = std::vector<TensorSpec>{}, py::arg("outputs") = std::vector<TensorSpec>{},
        py::arg("cache_dir") = "", py::arg("cache_version") = 0, py::arg("performance") = py::none(),
        py::arg("priority") = py::none(), py::arg("float16") = py::none(), py::arg("idle_seconds") = 600.0);
    module.def(
        "nnrt_devices",
        [](const std::string& library) {
            NnrtDevices found;
            {
                const EngineCall call;
                found = list_nnrt_devices(library);
            }
            return to_devices(found.version, found.devices);
        },
        py::arg("library"));
}

}  // namespace pipeline::bind
