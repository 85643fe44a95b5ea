// The one place where errors of the core become Python exceptions.
#include <exception>

#include "bind/bind.hpp"

namespace pipeline::bind {
namespace {

const char* class_name(Errc code) {
    switch (code) {
        case Errc::allocation:
            return "AllocationError";
        case Errc::binding:
            return "BindingError";
        case Errc::closed:
            return "ClosedError";
        case Errc::config:
            return "ConfigError";
        case Errc::device:
            return "DeviceError";
        case Errc::engine:
            return "EngineError";
        case Errc::model:
            return "ModelError";
        case Errc::not_installed:
            return "EngineNotInstalledError";
        case Errc::run:
            return "RunError";
        case Errc::slot_state:
            return "SlotStateError";
    }
    return "PipelineError";
}

py::object python_class(Errc code) { return py::module_::import("pipeline.errors").attr(class_name(code)); }

}  // namespace

py::object to_python(const Error& error) { return python_class(error.code())(error.what()); }

void bind_errors() {
    py::register_local_exception_translator([](std::exception_ptr raised) {
        try {
            if (raised) std::rethrow_exception(raised);
        } catch (const Error& error) {
            py::set_error(python_class(error.code()), error.what());
        }
    });
}

}  // namespace pipeline::bind
