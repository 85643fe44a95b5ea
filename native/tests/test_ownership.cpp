// Fault 6 of the original zero-copy change: objects made by `new` were given to `free`. Here every
// `new` and `delete` of the program goes through the two below, which notice, sanitizer or not.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "check.hpp"
#include "support.hpp"

namespace {

// What is handed out lies behind a header, so it is nothing that `free` could take.
struct alignas(std::max_align_t) Header {
    std::uint64_t mark;
};
constexpr std::uint64_t in_use = 0x0b7ec7ed0b7ec7ed;

std::atomic<std::int64_t> objects{0};

void* make(std::size_t bytes) {
    void* const whole = std::calloc(1, sizeof(Header) + bytes);
    if (whole == nullptr) throw std::bad_alloc();
    auto* const header = static_cast<Header*>(whole);
    header->mark = in_use;
    ++objects;
    return header + 1;
}

void end(void* object) noexcept {
    if (object == nullptr) return;
    Header* const header = static_cast<Header*>(object) - 1;
    if (header->mark != in_use) {
        pipeline::test::fail(__FILE__, __LINE__, "delete of what new did not make, or made once only", "");
    }
    header->mark = 0;
    --objects;
    std::free(header);
}

}  // namespace

void* operator new(std::size_t bytes) { return make(bytes); }
void operator delete(void* object) noexcept { end(object); }
void operator delete(void* object, std::size_t) noexcept { end(object); }

using namespace pipeline;

namespace {

constexpr auto seconds = std::chrono::seconds(20);

// Every way that a block of driver memory takes to its end.
void use() {
    const auto executor = test::executor(test::options(2));
    const auto& allocator = executor->allocator(0, Direction::input, 0);
    std::byte* const trimmed = allocator->malloc(100);
    allocator->free(trimmed);
    executor->trim();
    std::byte* const deferred = allocator->malloc(100);
    BlockRef kept = allocator->find(deferred);
    allocator->free(deferred);
    kept.reset();
    const auto ring = Ring::create(executor, 2, true);
    const SlotId id = test::acquire(*ring);
    ring->submit(id, {}, {});
    CHECK(test::wait_completions(*ring).size() == 1);
    ring->release(id);
    ring->close();
    BlockRef outlives = allocator->lease(48);
    CHECK(!executor->close(seconds));
    outlives.reset();
}

// The way of memory that is refused, after some was given.
void use_refused() {
    auto options = test::options(2);
    options.refuse_allocation = 3;
    const auto executor = test::executor(options);
    CHECK_THROWS(Ring::create(executor, 4, true), Errc::allocation);
    CHECK(executor->close(seconds));
}

void fault_06_what_new_made_is_deleted_and_all_of_it() {
    use();  // what is made once and kept
    use_refused();
    const auto before = objects.load();
    for (int i = 0; i < 20; ++i) {
        use();
        use_refused();
    }
    test::eventually([before] { return objects.load() == before; });
}

}  // namespace

int main() { fault_06_what_new_made_is_deleted_and_all_of_it(); }
