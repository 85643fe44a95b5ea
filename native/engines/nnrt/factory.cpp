// The options of engine "nnrt".
#include <chrono>
#include <string>
#include <vector>

#include "engines/nnrt/engine.hpp"
#include "engines/registry.hpp"

namespace pipeline::nnrt {

std::shared_ptr<Engine> open(Options& options) {
    NnrtOptions read;
    read.library = options.require<std::string>("library");
    read.model = options.take<std::string>("model", "");
    read.device = options.require<std::string>("device");
    read.contexts = options.take("contexts", read.contexts);
    read.input_shape = options.take<std::vector<std::int64_t>>("input_shape");
    read.image = take_image(options);
    read.inputs = options.take("inputs", read.inputs);
    read.outputs = options.take("outputs", read.outputs);
    read.cache_dir = options.take("cache_dir", read.cache_dir);
    read.cache_version = options.take("cache_version", read.cache_version);
    read.performance = options.choose<std::int32_t>(
        "performance", {{"none", 0}, {"low", 1}, {"medium", 2}, {"high", 3}, {"extreme", 4}});
    read.priority =
        options.choose<std::int32_t>("priority", {{"none", 0}, {"low", 1}, {"medium", 2}, {"high", 3}});
    read.float16 = options.take<bool>("float16");
    if (const auto seconds = options.take<double>("idle_seconds")) {
        read.idle =
            std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(*seconds));
    }
    options.finish();
    return open_nnrt(read);
}

Devices find_devices(const std::string& library) { return list_nnrt_devices(library); }

}  // namespace pipeline::nnrt
