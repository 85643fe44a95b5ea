#include "bind/bind.hpp"

PYBIND11_MODULE(_native, module) {
    module.doc() = "Driver memory, slots and engine contexts of the pipeline.";
    module.attr("__version__") = PIPELINE_VERSION;
    pipeline::bind::bind_errors();
    pipeline::bind::bind_tensor_spec(module);
    pipeline::bind::bind_drawing(module);
    pipeline::bind::bind_engines(module);
    pipeline::bind::bind_executor(module);
    pipeline::bind::bind_ring(module);
}
