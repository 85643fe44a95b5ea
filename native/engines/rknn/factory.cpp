// The options of engine "rknn".
#include <string>
#include <vector>

#include "engines/registry.hpp"
#include "engines/rknn/engine.hpp"

namespace pipeline::rknn {

std::shared_ptr<Engine> open(Options& options) {
    RknnOptions read;
    read.library = options.require<std::string>("library");
    read.model = options.require<std::string>("model");
    read.contexts = options.take<std::size_t>("contexts");
    read.input_shape = options.take<std::vector<std::int64_t>>("input_shape");
    read.image_input = options.take("image_input", read.image_input);
    read.cores = options.take("cores", read.cores);
    read.mode =
        options.choose<RknnMode>("mode", {{"zero_copy", RknnMode::zero_copy}, {"general", RknnMode::general}})
            .value_or(read.mode);
    read.binding = options
                       .choose<RknnBinding>("binding", {{"context_per_slot", RknnBinding::context_per_slot},
                                                        {"rebind", RknnBinding::rebind},
                                                        {"auto", RknnBinding::automatic}})
                       .value_or(read.binding);
    read.priority = options
                        .choose<RknnPriority>("priority", {{"high", RknnPriority::high},
                                                           {"medium", RknnPriority::medium},
                                                           {"low", RknnPriority::low}})
                        .value_or(read.priority);
    read.raise_priority = options.take("raise_priority", read.raise_priority);
    read.dequantize = options.take("dequantize", read.dequantize);
    read.explicit_sync =
        options.choose<bool>("sync", {{"runtime", false}, {"explicit", true}}).value_or(false);
    options.finish();
    return open_rknn(read);
}

// The library tells nothing without a model; opening it shows that it is one.
Devices find_devices(const std::string& library) {
    check_rknn_library(library);
    return {};
}

}  // namespace pipeline::rknn
