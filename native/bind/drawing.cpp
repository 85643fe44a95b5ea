#include "core/drawing.hpp"

#include <string>

#include "bind/bind.hpp"

namespace pipeline::bind {
namespace {

[[noreturn]] void refuse(const char* what, const std::string& needed, const py::array& given) {
    throw Error(Errc::config, std::string(what) + ": needed uint8 " + needed + ", got " +
                                  py::str(given.dtype()).cast<std::string>() + " " +
                                  py::str(given.attr("shape")).cast<std::string>());
}

// Rows may be apart, values within a row may not.
// Of one channel without an axis for it.
bool has_dense_rows(const py::array& array, py::ssize_t channels) {
    if (!array.dtype().equal(py::dtype::of<std::uint8_t>()) || array.ndim() != (channels == 1 ? 2 : 3)) {
        return false;
    }
    if (channels == 1) return array.strides(1) == 1;
    return array.shape(2) == channels && array.strides(2) == 1 && array.strides(1) == channels;
}

std::pair<std::size_t, std::size_t> ends(const py::slice& slice) {
    const auto start = slice.attr("start").cast<std::size_t>();
    const auto stop = slice.attr("stop").cast<std::size_t>();
    if (stop < start) throw Error(Errc::config, "drawing: a slice that ends before it begins");
    return {start, stop - start};
}

Area to_area(const py::slice& rows, const py::slice& columns, std::size_t height, std::size_t width) {
    const auto [top, taken_rows] = ends(rows);
    const auto [left, taken_columns] = ends(columns);
    return {top, left, taken_rows, taken_columns, height, width};
}

Target to_target(py::array& into, const Area& area) {
    const auto height = static_cast<py::ssize_t>(area.height), width = static_cast<py::ssize_t>(area.width);
    if (!has_dense_rows(into, 3) || into.shape(0) != height || into.shape(1) != width) {
        refuse("into", "(" + std::to_string(height) + ", " + std::to_string(width) + ", 3) with dense rows",
               into);
    }
    return {static_cast<std::uint8_t*>(into.mutable_data()), into.strides(0)};
}

Source to_source(const py::array& frame) {
    return {static_cast<const std::uint8_t*>(frame.data()), frame.strides(0)};
}

class PyBgrDrawer {
public:
    PyBgrDrawer(const Area& area, bool swap) : area_(area), drawer_(area, swap) {}

    void draw(const py::array& frame, py::array& into) {
        if (!has_dense_rows(frame, 3) || static_cast<std::size_t>(frame.shape(0)) < area_.top + area_.rows ||
            static_cast<std::size_t>(frame.shape(1)) < area_.left + area_.columns) {
            refuse("frame", "BGR that holds the area, with dense rows", frame);
        }
        const Source source = to_source(frame);
        const Target target = to_target(into, area_);
        const py::gil_scoped_release others_run;
        drawer_.draw(source, target);
    }

private:
    Area area_;
    BgrDrawer drawer_;
};

class PyPlanesDrawer {
public:
    PyPlanesDrawer(const Area& area, const std::array<std::array<float, 3>, 3>& weights, bool full_range)
        : area_(area), drawer_(area, weights, full_range) {}

    // Planes follow one another, and a chroma plane need not end with a row of the buffer.
    void draw(const py::array& frame, py::array& into) {
        const bool fits = has_dense_rows(frame, 1) && frame.strides(0) == frame.shape(1) &&
                          frame.shape(0) % 3 == 0 && frame.shape(1) % 2 == 0;
        const py::ssize_t rows = fits ? frame.shape(0) * 2 / 3 : 0, columns = fits ? frame.shape(1) : 0;
        if (static_cast<std::size_t>(rows) < area_.top + area_.rows ||
            static_cast<std::size_t>(columns) < area_.left + area_.columns) {
            refuse("frame", "I420 (height * 3 / 2, width) that holds the area, contiguous", frame);
        }
        const Source y{static_cast<const std::uint8_t*>(frame.data()), columns};
        const Source u{y.row(static_cast<std::size_t>(rows)), columns / 2};
        const Source v{u.row(static_cast<std::size_t>(rows / 2)), columns / 2};
        const Target target = to_target(into, area_);
        const py::gil_scoped_release others_run;
        drawer_.draw(y, u, v, target);
    }

private:
    Area area_;
    PlanesDrawer drawer_;
};

}  // namespace

void bind_drawing(py::module_& module) {
    py::class_<PyBgrDrawer>(module, "BgrDrawer", "Resizes a part of BGR frames, bilinearly.")
        .def(py::init([](const py::slice& rows, const py::slice& columns, std::size_t height,
                         std::size_t width,
                         bool swap) { return PyBgrDrawer(to_area(rows, columns, height, width), swap); }),
             py::arg("rows"), py::arg("columns"), py::arg("height"), py::arg("width"),
             py::arg("swap") = false)
        .def("draw", &PyBgrDrawer::draw, py::arg("frame"), py::arg("into"));
    py::class_<PyPlanesDrawer>(module, "PlanesDrawer",
                               "Resizes a part of I420 frames, bilinearly, and converts what is drawn.")
        .def(py::init([](const py::slice& rows, const py::slice& columns, std::size_t height,
                         std::size_t width, const std::array<std::array<float, 3>, 3>& weights,
                         bool full_range) {
                 return PyPlanesDrawer(to_area(rows, columns, height, width), weights, full_range);
             }),
             py::arg("rows"), py::arg("columns"), py::arg("height"), py::arg("width"), py::arg("weights"),
             py::arg("full_range"))
        .def("draw", &PyPlanesDrawer::draw, py::arg("frame"), py::arg("into"));
}

}  // namespace pipeline::bind
