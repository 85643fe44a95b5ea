// The one place where errors of the core become Python exceptions.
#include <exception>
#include <string>
#include <string_view>

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

// As one line that does nothing to a terminal.
py::str to_line(std::string_view text) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string line;
    for (const char each : text) {
        const auto byte = static_cast<unsigned char>(each);
        if (byte >= 0x20 && byte != 0x7F) {
            line += each;
        } else {
            line += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
        }
    }
    return to_text(line);
}

}  // namespace

py::str to_text(std::string_view text) {
    auto* const decoded = PyUnicode_DecodeUTF8(text.data(), static_cast<py::ssize_t>(text.size()), "replace");
    if (decoded == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::str>(decoded);
}

py::object to_python(const Error& error) {
    py::object made = python_class(error.code())(to_line(error.what()));
    if (!error.key().empty()) made.attr("path") = py::tuple(to_text(error.key()).attr("split")("."));
    return made;
}

void bind_errors() {
    py::register_local_exception_translator([](std::exception_ptr raised) {
        try {
            if (raised) std::rethrow_exception(raised);
        } catch (const Error& error) {
            const py::object made = to_python(error);
            PyErr_SetObject(py::type::of(made).ptr(), made.ptr());
        }
    });
}

}  // namespace pipeline::bind
