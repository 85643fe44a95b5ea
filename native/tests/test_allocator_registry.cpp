// The faults of the original registry of allocators, by their numbers; each must be absent.
#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "core/allocator_registry.hpp"

using namespace pipeline;

namespace {

struct Driver {
    int allocator = 0;  // its address is the key
};

// One registry for all models, cleared when any of them ended.
void fault_01_the_end_of_a_model_leaves_the_allocators_of_others() {
    const auto driver = std::make_shared<Driver>();
    AllocatorRegistry first;
    first.add(&driver->allocator, driver, "first");
    {
        AllocatorRegistry second;
        const auto other = std::make_shared<Driver>();
        second.add(&other->allocator, other, "second");
        CHECK_THROWS(first.require(&other->allocator, "input 0 'a'"), Errc::binding, "input 0 'a'");
        second.clear();
        CHECK_THROWS(second.require(&other->allocator), Errc::binding);
    }
    CHECK(first.require(&driver->allocator, "first") == driver);
}

// Written to by many threads without a lock. The thread sanitizer sees that each time; without it, an
// entry is lost, or the process ends, in about every second run.
void fault_02_many_threads_use_a_registry() {
    constexpr std::size_t count = 4;
    constexpr std::size_t each = 100;
    constexpr std::size_t rounds = 2000;
    std::vector<std::shared_ptr<Driver>> drivers;
    for (std::size_t i = 0; i < count * each; ++i) drivers.push_back(std::make_shared<Driver>());
    std::vector<AllocatorRegistry> registries(rounds);
    std::barrier together(count);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < count; ++t) {
        threads.emplace_back([&, t] {
            for (auto& registry : registries) {
                together.arrive_and_wait();
                for (std::size_t i = t * each; i < (t + 1) * each; ++i) {
                    registry.add(&drivers[i]->allocator, drivers[i], "many");
                    CHECK(registry.require(&drivers[i]->allocator, "many") == drivers[i]);
                    CHECK(registry.require(&drivers[t * each]->allocator) != nullptr);
                }
            }
        });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& registry : registries) {
        for (const auto& driver : drivers) CHECK(registry.require(&driver->allocator) == driver);
    }
}

// Weak references gave null for an allocator that had ended, and the call succeeded.
void fault_03_an_allocator_that_was_looked_up_lives() {
    auto driver = std::make_shared<Driver>();
    const std::weak_ptr<Driver> watch = driver;
    const void* const key = &driver->allocator;
    AllocatorRegistry registry;
    registry.add(key, driver, "model");
    driver.reset();
    CHECK(!watch.expired());
    auto held = registry.require(key, "model");
    CHECK(held != nullptr);
    registry.clear();
    CHECK(!watch.expired());
    CHECK_THROWS(registry.require(key, "output 1 'b'"), Errc::binding,
                 "output 1 'b': the allocator is unknown");
    held.reset();
    CHECK(watch.expired());
}

// Null was registered like any other, so that setting null passed.
void fault_04_a_null_allocator_is_refused() {
    const auto driver = std::make_shared<Driver>();
    AllocatorRegistry registry;
    CHECK_THROWS(registry.add(nullptr, driver, "input 0 'a'"), Errc::binding,
                 "input 0 'a': a null allocator");
    CHECK_THROWS(registry.add(&driver->allocator, nullptr, "input 0 'a'"), Errc::binding, "without an owner");
    CHECK_THROWS(registry.require(nullptr, "input 0 'a'"), Errc::binding, "the allocator is null");
    CHECK_THROWS(registry.require(&driver->allocator), Errc::binding, "the allocator is unknown");
}

void a_key_has_one_owner() {
    const auto driver = std::make_shared<Driver>();
    const auto other = std::make_shared<Driver>();
    AllocatorRegistry registry;
    registry.add(&driver->allocator, driver, "one");
    registry.add(&driver->allocator, driver, "one");
    CHECK_THROWS(registry.add(&driver->allocator, other, "one"), Errc::binding, "another owner");
    CHECK(registry.require(&driver->allocator, "one") == driver);
}

}  // namespace

int main() {
    fault_01_the_end_of_a_model_leaves_the_allocators_of_others();
    fault_02_many_threads_use_a_registry();
    fault_03_an_allocator_that_was_looked_up_lives();
    fault_04_a_null_allocator_is_refused();
    a_key_has_one_owner();
}
