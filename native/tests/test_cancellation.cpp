// Slots released at random points of their run, from other threads than the one that drains.
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "check.hpp"
#include "support.hpp"

using namespace pipeline;

namespace {

void released_at_random_points() {
    auto options = test::options(2);
    options.latency_us = 50;
    options.jitter_us = 50;
    options.distribution = LatencyDistribution::exponential;
    options.fail_runs = {10, 100, 500};
    const auto executor = test::executor(options);
    const auto ring = Ring::create(executor, 4, true);
    std::mt19937 random(7);
    std::size_t finished = 0;
    for (int i = 0; i < 1000; ++i) {
        SlotId id;
        while (true) {
            if (const auto got = ring->try_acquire()) {
                id = *got;
                break;
            }
            ring->want_free();
            test::wait_readable(*ring);
            for (const auto& done : ring->drain()) ring->release(done.id);
        }
        switch (random() % 4) {
            case 0:
                ring->release(id);  // before it was submitted
                break;
            case 1:
                ring->submit(id, {}, {});
                ring->release(id);  // at once
                break;
            case 2: {
                ring->submit(id, {}, {});
                const auto spins = random() % 20000;
                for (std::atomic<unsigned> k = 0; k < spins; ++k) {
                }
                std::thread([&ring, id] { ring->release(id); }).join();  // somewhere in the run
                break;
            }
            default:
                ring->submit(id, {}, {});  // comes back through drain
                ++finished;
                break;
        }
    }
    test::eventually([&] {
        for (const auto& done : ring->drain()) ring->release(done.id);
        return test::count(*ring, SlotState::free) == 4;
    });
    CHECK(finished > 100);
    ring->close();
    CHECK(executor->close(std::chrono::seconds(20)));
    CHECK(executor->counters().live_blocks == 0);
}

}  // namespace

int main() { released_at_random_points(); }
