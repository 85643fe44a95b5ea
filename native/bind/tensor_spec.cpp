// Tensor descriptions to and from Python, element types to NumPy's, arrays over driver memory.
#include <optional>
#include <utility>
#include <vector>

#include "bind/bind.hpp"

namespace pipeline::bind {
namespace {

constexpr DType all_dtypes[] = {DType::boolean, DType::u8,  DType::i8,  DType::u16, DType::i16, DType::u32,
                                DType::i32,     DType::u64, DType::i64, DType::f16, DType::f32, DType::f64};

DType from_numpy(const py::object& like) {
    const auto name = py::dtype::from_args(like).attr("name").cast<std::string>();
    for (const auto dtype : all_dtypes) {
        if (dtype_name(dtype) == name) return dtype;
    }
    throw Error(Errc::config, "dtype " + name + " is not one that a tensor can have");
}

py::tuple to_tuple(const std::vector<std::int64_t>& values) { return py::tuple(py::cast(values)); }

py::str describe(const TensorSpec& spec) {
    return to_text("TensorSpec('" + spec.name + "', " + std::string(dtype_name(spec.dtype)) + ", " +
                   py::repr(to_tuple(spec.shape)).cast<std::string>() + ", '" + spec.layout + "')");
}

}  // namespace

py::dtype to_numpy(DType dtype) { return py::dtype(std::string(dtype_name(dtype))); }

Direction parse_direction(const std::string& text) {
    if (text == "input") return Direction::input;
    if (text == "output") return Direction::output;
    throw Error(Errc::config, "direction: '" + text + "' is neither 'input' nor 'output'");
}

py::array make_array(const TensorSpec& spec, std::byte* data, const py::object& owner, bool writeable) {
    py::array array(to_numpy(spec.dtype), spec.shape, spec.strides(), data, owner);
    if (!writeable) array.attr("flags").attr("writeable") = false;
    return array;
}

void bind_tensor_spec(py::module_& module) {
    py::class_<Quantization>(module, "Quantization", "real = (quantised - zero_point) * scale")
        .def_readonly("scale", &Quantization::scale)
        .def_readonly("zero_point", &Quantization::zero_point);

    py::class_<TensorSpec>(module, "TensorSpec", "An input or output tensor as its engine reports it.")
        .def(py::init([](std::string name, const py::object& dtype, std::vector<std::int64_t> shape,
                         std::string layout, std::size_t row_stride,
                         std::optional<std::pair<float, std::int32_t>> quantization,
                         std::vector<std::int64_t> strides) {
                 TensorSpec spec{std::move(name), from_numpy(dtype), std::move(shape),  std::move(layout),
                                 row_stride,      std::nullopt,      std::move(strides)};
                 if (quantization)
                     spec.quantization = Quantization{quantization->first, quantization->second};
                 spec.validate();
                 return spec;
             }),
             py::arg("name"), py::arg("dtype"), py::arg("shape"), py::arg("layout") = "",
             py::arg("row_stride") = 0, py::arg("quantization") = py::none(),
             py::arg("strides") = std::vector<std::int64_t>{})
        .def_property_readonly("name", [](const TensorSpec& spec) { return to_text(spec.name); })
        .def_property_readonly("dtype", [](const TensorSpec& spec) { return to_numpy(spec.dtype); })
        .def_property_readonly("shape", [](const TensorSpec& spec) { return to_tuple(spec.shape); })
        .def_property_readonly("layout", [](const TensorSpec& spec) { return to_text(spec.layout); })
        .def_readonly("row_stride", &TensorSpec::row_stride)
        .def_property_readonly("strides", [](const TensorSpec& spec) { return to_tuple(spec.strides()); })
        .def_property_readonly("nbytes", &TensorSpec::byte_size)
        .def_property_readonly("driver_bytes", &TensorSpec::driver_size)
        .def_readonly("quantization", &TensorSpec::quantization)
        .def("__repr__", &describe)
        .attr("__module__") = "pipeline";
}

}  // namespace pipeline::bind
