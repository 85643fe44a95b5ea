// Engines by name: a mapping of Python becomes plain options, which the engine itself reads.
#include <string>
#include <utility>

#include "bind/bind.hpp"
#include "core/engine.hpp"
#include "engines/registry.hpp"

namespace pipeline::bind {
namespace {

// Text as bytes, those of a file name included that are no UTF-8.
std::string to_bytes(const py::handle& text) {
    auto* const bytes = PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogateescape");
    if (bytes == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::bytes>(bytes).cast<std::string>();
}

OptionMap to_map(const py::dict& given, const std::string& place);

Option to_option(const py::handle& value, const std::string& place) {
    if (value.is_none()) return {};
    if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
    if (py::isinstance<py::int_>(value)) {
        int overflow = 0;
        const std::int64_t number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
        if (overflow != 0) throw Error(Errc::config, "needs a smaller number", place);
        return number;
    }
    if (py::isinstance<py::float_>(value)) return value.cast<double>();
    if (py::isinstance<py::str>(value)) return to_bytes(value);
    if (py::isinstance<py::bytes>(value)) return value.cast<std::string>();
    if (py::isinstance<TensorSpec>(value)) return value.cast<TensorSpec>();
    if (py::isinstance<py::dict>(value)) return to_map(py::reinterpret_borrow<py::dict>(value), place);
    if (py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value)) {
        OptionList list;
        for (const auto& each : value) list.push_back(to_option(each, place));
        return list;
    }
    throw Error(
        Errc::config,
        "is a " + py::type::of(value).attr("__name__").cast<std::string>() + ", which no option can be",
        place);
}

OptionMap to_map(const py::dict& given, const std::string& place) {
    OptionMap map;
    for (const auto& [name, value] : given) {
        const std::string key = py::str(name).cast<std::string>();
        map.emplace(key, to_option(value, place.empty() ? key : place + "." + key));
    }
    return map;
}

}  // namespace

void bind_engines(py::module_& module) {
    py::class_<Engine, std::shared_ptr<Engine>>(module, "Engine", "A loaded model on one device.")
        .def_property_readonly("name", [](const Engine& engine) { return to_text(engine.name()); })
        .def_property_readonly("device", [](const Engine& engine) { return to_text(engine.device()); })
        .def_property_readonly("contexts", &Engine::context_count)
        .def_property_readonly("rebinds", &Engine::rebinds)
        .def_property_readonly("notes", [](const Engine& engine) {
            py::dict notes;
            for (const auto& [name, text] : engine.notes()) notes[to_text(name)] = to_text(text);
            return notes;
        });
    module.def(
        "open_engine",
        [](const std::string& name, const py::dict& options) {
            OptionMap given = to_map(options, "");
            const EngineCall call;
            return open_engine(name, std::move(given));
        },
        py::arg("name"), py::arg("options"));
    module.def(
        "engine_devices",
        [](const std::string& name, const std::string& library) {
            Devices found;
            {
                const EngineCall call;
                found = list_devices(name, library);
            }
            py::list list;
            for (const auto& [id, full_name] : found.devices) {
                list.append(py::make_tuple(to_text(id), to_text(full_name)));
            }
            return py::make_tuple(to_text(found.version), list);
        },
        py::arg("name"), py::arg("library"));
}

}  // namespace pipeline::bind
