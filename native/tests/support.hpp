// What the tests of the core share: a small simulated NPU and its executor.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "core/executor.hpp"
#include "core/ring.hpp"
#include "engines/simulated/engine.hpp"

namespace pipeline::test {

inline constexpr std::size_t input_bytes = 48;
inline constexpr std::size_t output_bytes = 40;

inline SimulatedOptions options(std::size_t contexts = 1) {
    SimulatedOptions result;
    result.inputs = {{"image", DType::u8, {1, 4, 4, 3}, "NHWC", 0, {}}};
    result.outputs = {{"scores", DType::f32, {1, 10}, "", 0, {}}};
    result.contexts = contexts;
    return result;
}

inline std::shared_ptr<Executor> executor(SimulatedOptions o = options(),
                                          std::size_t max_bytes = std::size_t{1} << 20) {
    return std::make_shared<Executor>(open_simulated(std::move(o)),
                                      Allocator::Limits{max_bytes, std::chrono::seconds(20)});
}

// Wait until the ring's descriptor is readable; a watchdog, not a delay.
inline void wait_readable(const Ring& ring) {
    pollfd descriptor{ring.fd(), POLLIN, 0};
    CHECK(poll(&descriptor, 1, 20000) == 1);
}

inline std::vector<Completion> wait_completions(Ring& ring) {
    while (true) {
        wait_readable(ring);
        auto done = ring.drain();
        if (!done.empty()) return done;
    }
}

// Acquire, waiting for a slot to come free.
inline SlotId acquire(Ring& ring) {
    while (true) {
        if (const auto id = ring.try_acquire()) return *id;
        ring.want_free();
        wait_readable(ring);
        CHECK(ring.drain().empty());
    }
}

inline std::size_t count(const Ring& ring, SlotState state) {
    std::size_t result = 0;
    for (const auto& info : ring.infos()) result += info.state == state ? 1 : 0;
    return result;
}

// Wait for a condition that another thread brings about without a signal of its own.
template <typename Condition>
void eventually(Condition condition) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
        CHECK(std::chrono::steady_clock::now() < limit);
        std::this_thread::yield();
    }
}

}  // namespace pipeline::test
