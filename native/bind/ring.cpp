// Rings and slots as Python holds them; a view of a slot is an array that owns it.
#include "core/ring.hpp"

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bind/bind.hpp"
#include "core/resize_step.hpp"

namespace pipeline::bind {
namespace {

using Arrays = std::optional<std::map<std::size_t, py::array>>;

// One acquisition of a slot, as Python holds it.
struct SlotHandle {
    std::shared_ptr<Ring> ring;
    SlotId id;
};

const char* route_name(Route route) {
    switch (route) {
        case Route::slot:
            return "slot";
        case Route::bound:
            return "bound";
        case Route::copied:
            return "copied";
    }
    return "";
}

UserArray to_user_array(const Executor& executor, Direction direction, std::size_t index,
                        const py::array& array) {
    const TensorSpec& spec = executor.spec(direction, index);
    const auto fail = [&](const std::string& what) {
        throw Error(Errc::binding, std::string(direction_name(direction)) + " " + std::to_string(index) +
                                       " '" + spec.name + "': " + what);
    };
    if (!array.dtype().equal(to_numpy(spec.dtype))) {
        fail(std::string(dtype_name(spec.dtype)) + " needed, " +
             array.dtype().attr("name").cast<std::string>() + " given");
    }
    const bool contiguous = (array.flags() & py::array::c_style) != 0;
    // Driver memory with padded rows is not contiguous, yet what its own tensor is made of.
    const auto strides = spec.strides();
    const bool own_strides = static_cast<std::size_t>(array.ndim()) == strides.size() &&
                             std::equal(strides.begin(), strides.end(), array.strides()) &&
                             std::equal(spec.shape.begin(), spec.shape.end(), array.shape());
    if (!contiguous && !own_strides) fail("the array must be C-contiguous; use numpy.ascontiguousarray");
    if (direction == Direction::output && !array.writeable()) fail("the array is read-only");
    return {index, static_cast<std::byte*>(const_cast<void*>(array.data())),
            static_cast<std::size_t>(array.nbytes()), !contiguous};
}

std::vector<UserArray> to_user_arrays(const Executor& executor, Direction direction, const Arrays& arrays) {
    std::vector<UserArray> result;
    if (!arrays) return result;
    for (const auto& [index, array] : *arrays) {
        result.push_back(to_user_array(executor, direction, index, array));
    }
    return result;
}

py::tuple submit(SlotHandle& slot, const Arrays& inputs, const Arrays& outputs) {
    const Executor& executor = *slot.ring->executor();
    const auto user_inputs = to_user_arrays(executor, Direction::input, inputs);
    const auto user_outputs = to_user_arrays(executor, Direction::output, outputs);
    std::vector<Route> routes;
    {
        const GilReleased release;
        routes = slot.ring->submit(slot.id, user_inputs, user_outputs);
    }
    const std::size_t inputs_count = executor.specs(Direction::input).size();
    py::tuple of_inputs(inputs_count);
    py::tuple of_outputs(routes.size() - inputs_count);
    for (std::size_t i = 0; i < routes.size(); ++i) {
        if (i < inputs_count) {
            of_inputs[i] = route_name(routes[i]);
        } else {
            of_outputs[i - inputs_count] = route_name(routes[i]);
        }
    }
    return py::make_tuple(of_inputs, of_outputs);
}

py::array view(SlotHandle& slot, Direction direction, std::size_t index) {
    auto view = slot.ring->view(slot.id, direction, index);
    const TensorSpec& spec = view->spec();
    std::byte* const data = view->data();
    return make_array(spec, data, py::cast(std::move(view)), direction == Direction::input);
}

void bind_slot(py::module_& module) {
    py::class_<SlotHandle>(module, "Slot", "One acquisition of a slot.")
        .def_property_readonly("index", [](const SlotHandle& slot) { return slot.id.index; })
        .def_property_readonly("generation", [](const SlotHandle& slot) { return slot.id.generation; })
        .def_property_readonly("context",
                               [](const SlotHandle& slot) { return slot.ring->info(slot.id).context; })
        .def_property_readonly(
            "state",
            [](const SlotHandle& slot) { return std::string(state_name(slot.ring->info(slot.id).state)); })
        .def(
            "input", [](SlotHandle& slot, std::size_t index) { return view(slot, Direction::input, index); },
            py::arg("index"))
        .def(
            "output",
            [](SlotHandle& slot, std::size_t index) { return view(slot, Direction::output, index); },
            py::arg("index"))
        .def("submit", &submit, py::arg("inputs") = py::none(), py::arg("outputs") = py::none())
        .def(
            "submit_resized",
            [](SlotHandle& slot, const std::shared_ptr<Resizer>& resizer, const py::array& frame,
               std::size_t top, std::size_t left, std::optional<std::uint8_t> pad) {
                slot.ring->submit(slot.id, std::make_unique<ResizeStep>(resizer, to_frame(*resizer, frame),
                                                                        top, left, pad));
            },
            py::arg("resizer").none(false), py::arg("frame"), py::arg("top"), py::arg("left"),
            py::arg("pad") = py::none())
        .def("lease",
             [](SlotHandle& slot) {
                 const RunTimes times = slot.ring->lease(slot.id);
                 return py::make_tuple(times.started_ns, times.finished_ns, times.step_ns);
             })
        .def(
            "copy_output",
            [](SlotHandle& slot, std::size_t index, const py::array& target) {
                const auto user = to_user_array(*slot.ring->executor(), Direction::output, index, target);
                const GilReleased release;
                slot.ring->copy_output(slot.id, user);
            },
            py::arg("index"), py::arg("target"))
        .def("release", [](SlotHandle& slot) { slot.ring->release(slot.id); });
}

}  // namespace

void bind_ring(py::module_& module) {
    py::class_<View, std::shared_ptr<View>>(module, "View", "Owner of an array over a slot's memory.");
    bind_slot(module);
    py::class_<Ring, std::shared_ptr<Ring>>(module, "Ring")
        .def(py::init([](std::shared_ptr<Executor> executor, std::size_t depth, bool probe) {
                 const GilReleased release;
                 return Ring::create(std::move(executor), depth, probe);
             }),
             py::arg("executor").none(false), py::arg("depth"), py::arg("probe") = true)
        .def_property_readonly("depth", &Ring::depth)
        .def_property_readonly("executor", &Ring::executor)
        .def("fileno", &Ring::fd)
        .def("try_acquire",
             [](const std::shared_ptr<Ring>& ring) -> std::optional<SlotHandle> {
                 const auto id = ring->try_acquire();
                 if (!id) return std::nullopt;
                 return SlotHandle{ring, *id};
             })
        .def("want_free", &Ring::want_free)
        .def("drain",
             [](Ring& ring) {
                 py::list result;
                 for (const auto& done : ring.drain()) {
                     const py::object error = done.error ? to_python(*done.error) : py::none();
                     result.append(py::make_tuple(done.id.index, done.id.generation, error));
                 }
                 return result;
             })
        .def("reshape", &Ring::reshape, py::arg("shape"), py::call_guard<GilReleased>())
        .def("states",
             [](const Ring& ring) {
                 py::list result;
                 for (const auto& info : ring.infos()) {
                     result.append(py::make_tuple(std::string(state_name(info.state)), info.views));
                 }
                 return result;
             })
        .def("running", &Ring::running, py::arg("context"))
        .def("close", &Ring::close, py::call_guard<GilReleased>());
}

}  // namespace pipeline::bind
