// The executor as Python sees it: its tensors, counters, memory lent as arrays, and its end.
#include "core/executor.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "bind/bind.hpp"

namespace pipeline::bind {
namespace {

// Owner of an array that the caller allocated in driver memory.
struct Lease {
    BlockRef block;
};

// Infinity and the like are longer than anybody waits.
std::chrono::nanoseconds seconds(double value) {
    const double bounded = value > 0 ? std::min(value, 1e9) : 0;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(bounded));
}

py::array allocate(Executor& executor, const std::string& direction_text, std::size_t index,
                   std::size_t context) {
    const Direction direction = parse_direction(direction_text);
    const TensorSpec& spec = executor.spec(direction, index);
    auto lease = std::make_unique<Lease>();
    {
        const GilReleased release;
        lease->block = executor.allocator(context, direction, index)->lease(spec.driver_size());
    }
    std::byte* const base = lease->block.block().base;
    return make_array(spec, base, py::cast(std::move(lease)), true);
}

py::array import_dmabuf(Executor& executor, std::size_t index, int fd, std::size_t offset,
                        std::size_t context) {
    const TensorSpec& spec = executor.spec(Direction::input, index);
    auto lease = std::make_unique<Lease>();
    {
        const GilReleased release;
        lease->block =
            executor.allocator(context, Direction::input, index)->import(spec.driver_size(), {fd, offset});
    }
    std::byte* const base = lease->block.block().base;
    return make_array(spec, base, py::cast(std::move(lease)), true);
}

}  // namespace

void bind_executor(py::module_& module) {
    py::class_<Counters>(module, "Counters", "Driver memory, summed over all tensors and contexts.")
        .def_readonly("allocations", &Counters::allocations)
        .def_readonly("frees", &Counters::frees)
        .def_readonly("live_blocks", &Counters::live_blocks)
        .def_readonly("live_bytes", &Counters::live_bytes)
        .def_readonly("high_water_bytes", &Counters::high_water_bytes);
    py::class_<Lease>(module, "Lease", "Owner of an array in driver memory.");

    py::class_<Executor, std::shared_ptr<Executor>>(module, "Executor")
        .def(py::init([](std::shared_ptr<Engine> engine, std::size_t memory_limit, double busy_timeout) {
                 const Allocator::Limits limits{memory_limit, seconds(busy_timeout)};
                 const GilReleased release;
                 return std::make_shared<Executor>(std::move(engine), limits);
             }),
             py::arg("engine").none(false), py::kw_only(), py::arg("memory_limit") = std::size_t{1} << 30,
             py::arg("busy_timeout") = 30.0)
        .def_property_readonly(
            "inputs",
            [](const Executor& executor) { return py::tuple(py::cast(executor.specs(Direction::input))); })
        .def_property_readonly(
            "outputs",
            [](const Executor& executor) { return py::tuple(py::cast(executor.specs(Direction::output))); })
        .def_property_readonly("contexts", &Executor::context_count)
        .def("counters", &Executor::counters)
        .def(
            "zero_copy",
            [](const Executor& executor, const std::string& direction_text, std::size_t index) {
                const Direction direction = parse_direction(direction_text);
                const GilReleased release;
                return executor.zero_copy(direction, index);
            },
            py::arg("direction"), py::arg("index"))
        .def(
            "route",
            [](const Executor& executor, const std::string& direction_text, std::size_t index) {
                const Direction direction = parse_direction(direction_text);
                std::string route;
                {
                    const GilReleased release;
                    route = executor.route(direction, index);
                }
                return to_text(route);
            },
            py::arg("direction"), py::arg("index"))
        .def("allocate", &allocate, py::arg("direction"), py::arg("index"), py::arg("context") = 0)
        .def("reshape", &Executor::reshape, py::arg("shape"), py::call_guard<GilReleased>())
        .def("import_dmabuf", &import_dmabuf, py::arg("index"), py::arg("fd"), py::arg("offset") = 0,
             py::arg("context") = 0)
        .def("trim", &Executor::trim)
        .def(
            "close",
            [](Executor& executor, double timeout) {
                const GilReleased release;
                return executor.close(seconds(timeout));
            },
            py::arg("timeout"));
}

}  // namespace pipeline::bind
