#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "core/allocator.hpp"
#include "support.hpp"

using namespace pipeline;

namespace {

std::shared_ptr<Allocator> input_allocator(Executor& executor) {
    return executor.allocator(0, Direction::input, 0);
}

void best_fit_with_bounded_waste() {
    const auto executor = test::executor();
    const auto allocator = input_allocator(*executor);
    std::byte* const small = allocator->malloc(1000);
    std::byte* const large = allocator->malloc(2000);
    CHECK(allocator->counters().allocations == 2);
    allocator->free(small);
    allocator->free(large);
    CHECK(allocator->malloc(900) == small);   // wastes 100 of 900
    CHECK(allocator->malloc(1700) == large);  // wastes 300 of 1700
    allocator->free(large);
    std::byte* const fresh = allocator->malloc(500);  // 2000 would waste 1500
    CHECK(fresh != large);
    CHECK(allocator->counters().allocations == 3);
    CHECK_THROWS(static_cast<void>(allocator->malloc(0)), Errc::allocation);
    CHECK(executor->close(std::chrono::seconds(20)) == false);  // three blocks are allocated still
}

void what_is_no_block_is_left_alone() {
    const auto executor = test::executor();
    const auto allocator = input_allocator(*executor);
    std::byte* const base = allocator->malloc(100);
    CHECK(!allocator->find(base + 1));  // not a base
    CHECK(!allocator->find(nullptr));
    allocator->free(base);
    CHECK(!allocator->find(base));
    allocator->free(base);  // unknown: no-op
    CHECK(allocator->malloc(100) == base);
    allocator->free(base);
}

void a_referenced_block_is_never_reissued() {
    const auto executor = test::executor();
    const auto allocator = input_allocator(*executor);
    std::byte* const base = allocator->malloc(100);
    BlockRef ref = allocator->find(base);
    allocator->free(base);
    std::byte* const other = allocator->malloc(100);
    CHECK(other != base);
    BlockRef again = allocator->find(base);  // freed, yet alive
    CHECK(again);
    again.reset();
    ref.reset();
    CHECK(!allocator->find(base));
    CHECK(allocator->malloc(100) == base);
    CHECK(!allocator->find(base + 4));
    allocator->free(base);
    allocator->free(other);
}

void cap_and_counters() {
    const auto executor = test::executor(test::options(), 1000);
    const auto allocator = input_allocator(*executor);
    std::byte* const a = allocator->malloc(600);
    bool refused = false;
    try {
        static_cast<void>(allocator->malloc(600));
    } catch (const Error& error) {
        const std::string text = error.what();
        refused = error.code() == Errc::allocation && text.find("input 0 'image'") != std::string::npos &&
                  text.find("600 bytes needed") != std::string::npos;
    }
    CHECK(refused);
    allocator->free(a);
    std::byte* const b = allocator->malloc(900);  // the free 600 are given up for it
    CHECK(allocator->counters().live_bytes == 900);
    CHECK(allocator->counters().high_water_bytes == 900);
    CHECK(allocator->counters().frees == 1);
    CHECK(allocator->counters().live_blocks == 1);
    allocator->free(b);
    allocator->trim();
    CHECK(allocator->counters().live_bytes == 0);
    CHECK(executor->close(std::chrono::seconds(20)));
}

void a_refusing_driver_leaks_nothing() {
    auto options = test::options();
    options.refuse_allocation = 1;
    const auto executor = test::executor(options);
    const auto allocator = input_allocator(*executor);
    std::byte* const base = allocator->malloc(10);
    CHECK_THROWS(static_cast<void>(allocator->malloc(20)), Errc::allocation);
    CHECK(allocator->counters().live_bytes == 10);
    CHECK(allocator->counters().live_blocks == 1);
    allocator->free(base);
    CHECK(executor->close(std::chrono::seconds(20)));
}

void a_reference_outlives_the_executor() {
    auto executor = test::executor();
    BlockRef ref = input_allocator(*executor)->lease(64);
    CHECK(!executor->close(std::chrono::seconds(20)));  // does not wait: only a reference is left
    executor.reset();
    ref.block().base[0] = std::byte{1};  // under ASan this proves that it lives
    ref.reset();
}

void refused_after_close() {
    const auto executor = test::executor();
    const auto allocator = input_allocator(*executor);
    CHECK(executor->close(std::chrono::seconds(20)));
    CHECK_THROWS(static_cast<void>(allocator->malloc(10)), Errc::closed);
    CHECK(executor->close(std::chrono::seconds(20)));  // twice is harmless
}

void many_threads() {
    const auto executor = test::executor();
    const auto allocator = input_allocator(*executor);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            for (std::size_t i = 0; i < 500; ++i) {
                BlockRef a = allocator->lease(100 + 10 * t);
                BlockRef b = allocator->find(a.block().base);
                CHECK(b.block().base == a.block().base);
                a.block().base[0] = static_cast<std::byte>(t);
                CHECK(b.block().base[0] == static_cast<std::byte>(t));
                a.reset();
                CHECK(allocator->find(b.block().base));
            }
        });
    }
    for (auto& thread : threads) thread.join();
    const auto counters = allocator->counters();
    CHECK(counters.allocations <= 8);
    CHECK(counters.live_blocks == counters.allocations - counters.frees);
    CHECK(executor->close(std::chrono::seconds(20)));
    CHECK(allocator->counters().live_blocks == 0);
}

}  // namespace

int main() {
    best_fit_with_bounded_waste();
    what_is_no_block_is_left_alone();
    a_referenced_block_is_never_reissued();
    cap_and_counters();
    a_refusing_driver_leaks_nothing();
    a_reference_outlives_the_executor();
    refused_after_close();
    many_threads();
}
