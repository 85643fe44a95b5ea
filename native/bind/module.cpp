// The Python module: what is bound, in which order, and that only the main interpreter has it.
#include <cxxabi.h>
#include <unistd.h>

#include "bind/bind.hpp"

pipeline::bind::GilReleased::~GilReleased() {
    try {
        PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {  // Python before 3.14 ends the thread instead
        while (true) pause();
    }
}

PYBIND11_MODULE(_native_main, module) {
    module.doc() = "Driver memory, slots and engine contexts of the pipeline.";
    module.attr("__version__") = PIPELINE_VERSION;
    // Before what engines have registered since they were opened.
    pipeline::bind::py::module_::import("atexit").attr("register")(
        pipeline::bind::py::cpp_function(&pipeline::guard_process_end));
    pipeline::bind::bind_errors();
    pipeline::bind::bind_tensor_spec(module);
    pipeline::bind::bind_resizer(module);
    pipeline::bind::bind_engines(module);
    pipeline::bind::bind_executor(module);
    pipeline::bind::bind_ring(module);
}

// Before anything of pybind11, whose state another interpreter would wait for without end.
extern "C" PYBIND11_EXPORT PyObject* PyInit__native() {
    if (PyInterpreterState_Get() == PyInterpreterState_Main()) return PyInit__native_main();
    PyErr_SetString(PyExc_ImportError, "pipeline._native works in the main interpreter only");
    return nullptr;
}
