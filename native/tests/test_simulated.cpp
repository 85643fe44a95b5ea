#include <chrono>
#include <cstring>
#include <vector>

#include "check.hpp"
#include "core/error.hpp"
#include "engines/simulated/engine.hpp"
#include "support.hpp"

using namespace pipeline;

namespace {

void foreign_memory_fails_the_run() {
    const auto engine = open_simulated(test::options());
    const auto context = engine->open_context(0);
    const DriverBlock in = context->allocate(Direction::input, 0, test::input_bytes);
    const DriverBlock out = context->allocate(Direction::output, 0, test::output_bytes);
    const DriverBlock small = context->allocate(Direction::output, 0, test::output_bytes - 1);
    std::vector<std::byte> heap(test::output_bytes);
    const DriverBlock foreign{heap.data(), heap.size(), nullptr};
    const DriverBlock inside{out.base + 1, out.length, nullptr};
    const auto run = [&](DriverBlock i, DriverBlock o) { context->run({{&i, 1}, {&o, 1}}); };
    run(in, out);
    CHECK_THROWS(run(in, foreign), Errc::run);
    CHECK_THROWS(run(in, inside), Errc::run);
    CHECK_THROWS(run(in, small), Errc::run);
    CHECK_THROWS(run(in, in), Errc::run);
    in.base[test::input_bytes] = std::byte{1};  // a caller writes past the end
    CHECK_THROWS(run(in, out), Errc::run);
    context->release(Direction::input, 0, in);
    context->release(Direction::output, 0, out);
    CHECK_THROWS(run(in, out), Errc::run);
}

void outputs_follow_the_rule_in_every_type() {
    auto options = test::options();
    options.outputs.clear();
    const std::vector<DType> dtypes{DType::boolean, DType::u8,  DType::i8,  DType::u16,
                                    DType::i16,     DType::u32, DType::i32, DType::u64,
                                    DType::i64,     DType::f16, DType::f32, DType::f64};
    for (const auto dtype : dtypes) options.outputs.push_back({"out", dtype, {6}, "", 0, {}});
    const auto engine = open_simulated(options);
    const auto context = engine->open_context(0);
    const DriverBlock in = context->allocate(Direction::input, 0, test::input_bytes);
    for (std::size_t i = 0; i < test::input_bytes; ++i) in.base[i] = static_cast<std::byte>(200 + i);
    std::vector<DriverBlock> outs;
    for (std::size_t j = 0; j < dtypes.size(); ++j) {
        outs.push_back(context->allocate(Direction::output, j, options.outputs[j].byte_size()));
    }
    context->run({{&in, 1}, outs});
    for (std::size_t k = 0; k < 6; ++k) {
        const auto value = std::to_integer<std::uint32_t>(in.base[k * 8]);
        CHECK(std::to_integer<std::uint32_t>(outs[1].base[k]) == ((value + 1) & 0xFFU));
        std::uint16_t wide = 0;
        std::memcpy(&wide, outs[3].base + 2 * k, 2);
        CHECK(wide == value + 3);
        float real = 0;
        std::memcpy(&real, outs[10].base + 4 * k, 4);
        CHECK(real == static_cast<float>(value + 10));
        CHECK(std::to_integer<std::uint32_t>(outs[0].base[k]) == (value & 1U));
    }
    std::uint16_t half = 0;
    std::memcpy(&half, outs[9].base, 2);
    CHECK(half == 0x5A88);  // 209
}

void options_are_checked() {
    auto options = test::options();
    options.contexts = 0;
    CHECK_THROWS(static_cast<void>(open_simulated(options)), Errc::config);
    options = test::options();
    options.outputs.clear();
    CHECK_THROWS(static_cast<void>(open_simulated(options)), Errc::config);
    options = test::options();
    options.latency_us = -1;
    CHECK_THROWS(static_cast<void>(open_simulated(options)), Errc::config);
}

void latency_is_kept() {
    auto options = test::options();
    options.latency_us = 2000;
    const auto executor = test::executor(options);
    const auto ring = Ring::create(executor, 1, true);
    const SlotId id = test::acquire(*ring);
    ring->submit(id, {}, {});
    CHECK(test::wait_completions(*ring).size() == 1);
    const RunTimes times = ring->lease(id);
    CHECK(times.finished_ns - times.started_ns >= 2000000);
}

}  // namespace

int main() {
    foreign_memory_fails_the_run();
    outputs_follow_the_rule_in_every_type();
    options_are_checked();
    latency_is_kept();
}
