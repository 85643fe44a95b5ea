// The options of engine "mindspore_lite".
#include <string>
#include <vector>

#include "engines/mindspore_lite/engine.hpp"
#include "engines/registry.hpp"

namespace pipeline::mindspore_lite {

std::shared_ptr<Engine> open(Options& options) {
    using Words = std::vector<std::pair<std::string, std::int32_t>>;
    const auto level = [&](const char* name, const Words& words) {
        return options.choose<std::int32_t>(name, words).value_or(0);
    };
    MindSporeLiteOptions read;
    read.library = options.require<std::string>("library");
    read.model = options.require<std::string>("model");
    read.device = options.require<std::string>("device");
    read.contexts = options.take("contexts", read.contexts);
    read.input_shape = options.take<std::vector<std::int64_t>>("input_shape");
    read.image = take_image(options);
    read.threads = options.take("threads", read.threads);
    read.affinity = level("affinity", {{"none", 0}, {"big", 1}, {"little", 2}});
    read.cores = options.take("cores", read.cores);
    read.fp16 = options.take("fp16", read.fp16);
    read.performance =
        level("performance", {{"none", 0}, {"low", 1}, {"medium", 2}, {"high", 3}, {"extreme", 4}});
    read.priority = level("priority", {{"none", 0}, {"low", 1}, {"medium", 2}, {"high", 3}});
    read.frequency =
        level("frequency", {{"none", 0}, {"low", 1}, {"balanced", 2}, {"high", 3}, {"extreme", 4}});
    read.cpu_fallback = options.take("cpu_fallback", read.cpu_fallback);
    read.extensions = options.take("extensions", read.extensions);
    options.finish();
    return open_mindspore_lite(read);
}

Devices find_devices(const std::string& library) { return list_mindspore_lite_devices(library); }

}  // namespace pipeline::mindspore_lite
