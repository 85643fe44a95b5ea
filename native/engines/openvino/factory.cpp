// The options of engine "openvino".
#include <string>
#include <utility>
#include <vector>

#include "engines/image_input.hpp"
#include "engines/openvino/engine.hpp"
#include "engines/registry.hpp"

namespace pipeline::openvino {

std::shared_ptr<Engine> open(Options& options) {
    OpenVinoOptions read;
    read.library = options.require<std::string>("library");
    read.model = options.require<std::string>("model");
    read.device = options.require<std::string>("device");
    read.contexts = options.take("contexts", read.contexts);
    read.input_shape = options.take<std::vector<std::int64_t>>("input_shape");
    auto image = take_image(options);
    read.image_input = image.has_value();
    if (image) {
        read.swap_rb = image->swap_rb;
        read.mean = std::move(image->mean);
        read.scale = std::move(image->scale);
    }
    read.properties = options.take("properties", read.properties);
    options.finish();
    return open_openvino(read);
}

Devices find_devices(const std::string& library) { return list_openvino_devices(library); }

}  // namespace pipeline::openvino
