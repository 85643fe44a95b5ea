// Resizers as Python makes and calls them, and the checks that a NumPy array is such a frame.
#include "core/resizer.hpp"

#include <string>

#include "bind/bind.hpp"

namespace pipeline::bind {
namespace {

[[noreturn]] void refuse(const char* what, const std::string& needed, const py::array& given) {
    throw Error(Errc::config, std::string(what) + ": needed uint8 " + needed + ", got " +
                                  py::str(given.dtype()).cast<std::string>() + " " +
                                  py::str(given.attr("shape")).cast<std::string>());
}

// Rows may be apart, values within a row may not. One channel has no axis of its own.
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
    if (stop < start) throw Error(Errc::config, "resizer: a slice that ends before it begins");
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

Frame bgr_frame(const py::array& array) {
    if (!has_dense_rows(array, 3)) return {};
    return {{static_cast<const std::uint8_t*>(array.data()), array.strides(0)},
            static_cast<std::size_t>(array.shape(0)),
            static_cast<std::size_t>(array.shape(1))};
}

// A chroma plane need not end with a row of the buffer.
Frame planes_frame(const py::array& array) {
    if (!has_dense_rows(array, 1) || array.strides(0) != array.shape(1) || array.shape(0) % 3 != 0 ||
        array.shape(1) % 2 != 0) {
        return {};
    }
    return {{static_cast<const std::uint8_t*>(array.data()), array.strides(0)},
            static_cast<std::size_t>(array.shape(0) * 2 / 3),
            static_cast<std::size_t>(array.shape(1))};
}

void resize(const Resizer& resizer, const py::array& array, py::array& into) {
    const Frame frame = to_frame(resizer, array);
    const Target target = to_target(into, resizer.area());
    const GilReleased others_run;
    resizer.resize(frame, target);
}

}  // namespace

Frame to_frame(const Resizer& resizer, const py::array& array) {
    const bool planes = dynamic_cast<const PlanesResizer*>(&resizer) != nullptr;
    const Frame frame = planes ? planes_frame(array) : bgr_frame(array);
    if (frame.pixels.data == nullptr || !resizer.within(frame)) {
        refuse("frame",
               planes ? "I420 (height * 3 / 2, width) that holds the area, contiguous"
                      : "BGR that holds the area, with dense rows",
               array);
    }
    return frame;
}

void bind_resizer(py::module_& module) {
    py::class_<Resizer, std::shared_ptr<Resizer>>(module, "Resizer", "Resizes a part of frames to one size.")
        .def("resize", &resize, py::arg("frame"), py::arg("into"));
    py::class_<BgrResizer, Resizer, std::shared_ptr<BgrResizer>>(module, "BgrResizer",
                                                                 "Resizes a part of BGR frames, bilinearly.")
        .def(py::init([](const py::slice& rows, const py::slice& columns, std::size_t height,
                         std::size_t width, bool swap) {
                 return std::make_shared<BgrResizer>(to_area(rows, columns, height, width), swap);
             }),
             py::arg("rows"), py::arg("columns"), py::arg("height"), py::arg("width"),
             py::arg("swap") = false);
    py::class_<PlanesResizer, Resizer, std::shared_ptr<PlanesResizer>>(
        module, "PlanesResizer", "Resizes a part of I420 frames, bilinearly, and converts the result.")
        .def(py::init([](const py::slice& rows, const py::slice& columns, std::size_t height,
                         std::size_t width, const std::array<std::array<float, 3>, 3>& weights,
                         bool full_range) {
                 return std::make_shared<PlanesResizer>(to_area(rows, columns, height, width), weights,
                                                        full_range);
             }),
             py::arg("rows"), py::arg("columns"), py::arg("height"), py::arg("width"), py::arg("weights"),
             py::arg("full_range"));
}

}  // namespace pipeline::bind
