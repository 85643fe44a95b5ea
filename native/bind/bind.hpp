// What the files of the binding share. One file for each bound type; module.cpp lists them.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/process_end.hpp"
#include "core/resizer.hpp"
#include "core/ring.hpp"
#include "core/tensor_spec.hpp"

namespace pipeline::bind {

namespace py = pybind11;

// Lets other Python threads run. Once the interpreter is being taken down a thread cannot have it
// back: it stays here until the process ends, as nothing of what it would go on with is left.
class GilReleased {
public:
    GilReleased() : state_(PyEval_SaveThread()) {}
    GilReleased(const GilReleased&) = delete;
    GilReleased& operator=(const GilReleased&) = delete;
    ~GilReleased();

private:
    PyThreadState* const state_;
};

// The same around a call of an engine, which the end of the process must not come under.
struct EngineCall {
    GilReleased released;
    EngineThread thread;
};

void bind_errors();
void bind_tensor_spec(py::module_& module);
void bind_resizer(py::module_& module);
void bind_engines(py::module_& module);
void bind_executor(py::module_& module);
void bind_ring(py::module_& module);

// A vendor's text, which may be no UTF-8 or end within a character.
[[nodiscard]] py::str to_text(std::string_view text);
// An instance of the Python class for this error.
[[nodiscard]] py::object to_python(const Error& error);
// A frame's buffer as its resizer takes it. Error(config) when it has another shape.
[[nodiscard]] Frame to_frame(const Resizer& resizer, const py::array& array);
[[nodiscard]] py::dtype to_numpy(DType dtype);
[[nodiscard]] Direction parse_direction(const std::string& text);
// An array over driver memory; `owner` lives as long as the array or any slice of it.
[[nodiscard]] py::array make_array(const TensorSpec& spec, std::byte* data, const py::object& owner,
                                   bool writeable);

}  // namespace pipeline::bind
