// What others see while a call of the driver lasts, and what becomes of work that nobody wants.
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "check.hpp"
#include "core/input_step.hpp"
#include "core/ring.hpp"
#include "support.hpp"

using namespace pipeline;

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A call of the driver that has begun and lasts until it is let go.
class Gate {
public:
    void pass() {
        reached_.set_value();
        opened_.get_future().wait();
    }
    void reached() { reached_.get_future().wait(); }
    void open() { opened_.set_value(); }

private:
    std::promise<void> reached_;
    std::promise<void> opened_;
};

struct Calls {
    std::atomic<Gate*> allocate{nullptr};
    std::atomic<Gate*> reshape{nullptr};
    std::atomic<Gate*> run{nullptr};
    std::atomic<int> runs{0};
    std::atomic<int> blocks{0};
    std::atomic<std::size_t> withheld{0};  // bytes of each block

    static void pass(std::atomic<Gate*>& gate) {
        if (Gate* const now = gate.exchange(nullptr)) now->pass();
    }
};

class SlowContext final : public EngineContext {
public:
    explicit SlowContext(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}

    DriverBlock allocate(Direction /*direction*/, std::size_t /*index*/, std::size_t bytes) override {
        Calls::pass(calls_->allocate);
        ++calls_->blocks;
        auto memory = std::make_unique<std::byte[]>(bytes);
        std::byte* const base = memory.get();
        memory_[base] = std::move(memory);
        return {base, bytes - calls_->withheld, nullptr};
    }
    void release(Direction /*direction*/, std::size_t /*index*/, DriverBlock block) noexcept override {
        --calls_->blocks;
        memory_.erase(block.base);
    }
    void run(const RunRequest& request) override {
        if (!request.probe) {
            ++calls_->runs;
            Calls::pass(calls_->run);
        }
        for (const auto& block : request.outputs) std::memset(block.base, 1, block.length);
    }
    TensorSpecs reshape(std::span<const std::int64_t> shape) override {
        Calls::pass(calls_->reshape);
        TensorSpec input{"image", DType::u8, {shape.begin(), shape.end()}, "NHWC", 0, {}};
        return {{std::move(input)}, test::options().outputs};
    }

private:
    std::shared_ptr<Calls> calls_;
    std::map<std::byte*, std::unique_ptr<std::byte[]>> memory_;
};

class SlowEngine final : public Engine {
public:
    explicit SlowEngine(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}

    std::string_view name() const noexcept override { return "slow"; }
    std::string device() const override { return "none"; }
    std::size_t context_count() const noexcept override { return 1; }
    const std::vector<TensorSpec>& inputs() const noexcept override { return tensors_.inputs; }
    const std::vector<TensorSpec>& outputs() const noexcept override { return tensors_.outputs; }
    std::unique_ptr<EngineContext> open_context(std::size_t /*index*/) override {
        return std::make_unique<SlowContext>(calls_);
    }

private:
    std::shared_ptr<Calls> calls_;
    SimulatedOptions tensors_ = test::options();
};

struct Opened {
    explicit Opened(std::chrono::nanoseconds timeout = seconds(20))
        : executor(std::make_shared<Executor>(std::make_shared<SlowEngine>(calls),
                                              Allocator::Limits{std::size_t{1} << 20, timeout})) {}
    ~Opened() {
        CHECK(executor->close(seconds(20)));
        CHECK(calls->blocks == 0);
    }
    std::shared_ptr<Calls> calls = std::make_shared<Calls>();
    std::shared_ptr<Executor> executor;
};

void an_allocation_that_hangs_is_given_up() {
    Opened it{milliseconds(50)};
    Gate gate;
    it.calls->allocate = &gate;
    CHECK_THROWS(it.executor->allocator(0, Direction::input, 0)->lease(test::input_bytes), Errc::device);
    gate.open();  // what comes after all goes back to the driver
    test::eventually([&] { return it.calls->blocks == 0; });
    CHECK(it.executor->counters().live_bytes == 0);
}

void a_block_that_is_too_small_is_refused() {
    Opened it;
    it.calls->withheld = 1;
    CHECK_THROWS(it.executor->allocator(0, Direction::input, 0)->lease(100), Errc::allocation,
                 "input 0 'image': 100 bytes needed, the engine gave 99");
    CHECK_THROWS(Ring::create(it.executor, 1, true), Errc::allocation, "the engine gave");
    test::eventually([&] { return it.calls->blocks == 0; });
    CHECK(it.executor->counters().live_bytes == 0);
    it.calls->withheld = 0;
    Ring::create(it.executor, 1, true)->close();
}

void memory_of_another_ring_is_copied() {
    Opened it;
    const auto ring = Ring::create(it.executor, 1, true);
    const auto other = Ring::create(it.executor, 1, true);
    const SlotId id = test::acquire(*ring);
    const SlotId lent = test::acquire(*other);
    const auto lends = [&](Ring& of, SlotId slot) {
        const auto view = of.view(slot, Direction::input, 0);
        return UserArray{0, view->data(), view->spec().byte_size(), false};
    };
    const UserArray theirs = lends(*other, lent);
    CHECK(ring->submit(id, {&theirs, 1}, {})[0] == Route::copied);
    CHECK(test::wait_completions(*ring).size() == 1);
    ring->release(id);
    const SlotId again = test::acquire(*ring);
    const UserArray ours = lends(*ring, again);
    CHECK(ring->submit(again, {&ours, 1}, {})[0] == Route::bound);
    CHECK(test::wait_completions(*ring).size() == 1);
    const BlockRef apart = it.executor->allocator(0, Direction::input, 0)->lease(test::input_bytes);
    const UserArray mine{0, apart.block().base, test::input_bytes, false};
    CHECK(!apart.of_slot() && other->submit(lent, {&mine, 1}, {})[0] == Route::bound);
    CHECK(test::wait_completions(*other).size() == 1);
    ring->close();
    other->close();
}

// A ring of two slots whose reshape to 8 by 8 has begun and lasts until `finish`.
struct Reshaping {
    Reshaping() {
        opened.calls->reshape = &gate;
        change = std::async(std::launch::async, [this] { ring->reshape({1, 8, 8, 3}); });
        gate.reached();
    }
    void finish() {
        gate.open();
        change.get();
    }

    Opened opened;
    std::shared_ptr<Ring> ring = Ring::create(opened.executor, 2, true);
    Gate gate;
    std::future<void> change;
};

void a_reshape_keeps_nobody_waiting() {
    Reshaping it;
    Ring& ring = *it.ring;
    CHECK(ring.infos().size() == 2);
    CHECK(!ring.try_acquire());
    CHECK_THROWS(ring.reshape({1, 4, 4, 3}), Errc::slot_state);
    CHECK_THROWS(Ring::create(it.opened.executor, 1, true), Errc::slot_state);
    ring.want_free();
    it.finish();
    test::wait_readable(ring);
    const SlotId id = test::acquire(ring);
    CHECK(ring.view(id, Direction::input, 0)->spec().byte_size() == 192);
    ring.release(id);
    ring.close();
}

void a_ring_may_be_closed_during_a_reshape() {
    Reshaping it;
    Ring& ring = *it.ring;
    ring.close();
    it.finish();
}

void runs_that_nobody_wants_are_not_computed() {
    Opened it;
    const auto ring = Ring::create(it.executor, 6, false);
    Gate gate;
    it.calls->run = &gate;
    std::vector<SlotId> ids;
    for (int i = 0; i < 6; ++i) {
        ids.push_back(test::acquire(*ring));
        ring->submit(ids.back(), {}, {});
    }
    gate.reached();
    for (int i = 0; i < 5; ++i) ring->release(ids[static_cast<std::size_t>(i)]);
    gate.open();
    const auto done = test::wait_completions(*ring);
    CHECK(done.size() == 1 && done[0].id == ids[5] && !done[0].error);
    CHECK(it.calls->runs == 2);
    ring->release(ids[5]);

    Gate second;
    it.calls->run = &second;
    for (int i = 0; i < 6; ++i) ring->submit(test::acquire(*ring), {}, {});
    second.reached();
    ring->close();
    second.open();
    CHECK(it.executor->close(seconds(20)));
    CHECK(it.calls->runs == 3);
}

void a_hanging_run_does_not_hold_up_close() {
    Gate gate;
    std::weak_ptr<Ring> watched;
    {
        const auto calls = std::make_shared<Calls>();
        const auto executor = std::make_shared<Executor>(
            std::make_shared<SlowEngine>(calls), Allocator::Limits{std::size_t{1} << 20, seconds(20)});
        const auto ring = Ring::create(executor, 2, true);
        watched = ring;
        calls->run = &gate;
        ring->submit(test::acquire(*ring), {}, {});
        gate.reached();
        ring->close();
        CHECK(!executor->close(milliseconds(1)));
    }
    // The engine's thread keeps what the run still uses, and frees it.
    CHECK(!watched.expired());
    gate.open();
    test::eventually([&] { return watched.expired(); });
}

void a_slot_whose_block_a_run_works_on_is_kept() {
    Opened it;
    const auto ring = Ring::create(it.executor, 2, false);
    Gate gate;
    it.calls->run = &gate;
    const SlotId one = test::acquire(*ring), other = test::acquire(*ring);
    const UserArray lent{0, ring->view(other, Direction::input, 0)->data(), test::input_bytes};
    CHECK(ring->submit(one, {&lent, 1}, {})[0] == Route::bound);
    gate.reached();
    ring->release(other);
    CHECK(!ring->try_acquire());
    gate.open();
    CHECK(test::wait_completions(*ring).size() == 1);
    const SlotId again = test::acquire(*ring);
    CHECK(again.index == other.index);
    ring->release(again);
    ring->release(one);
    ring->close();
}

struct Throwing final : InputStep {
    explicit Throwing(bool fits) : suits(fits) {}
    void check(const TensorSpec& /*input*/) override {
        if (!suits) throw Error(Errc::binding, "does not suit");
    }
    void run(std::byte* /*input*/) override { throw std::bad_alloc(); }
    bool suits;
};

void an_exception_of_an_input_step_fails_the_run_only() {
    Opened it;
    const auto ring = Ring::create(it.executor, 1, true);
    const SlotId id = test::acquire(*ring);
    CHECK_THROWS(ring->submit(id, std::make_unique<Throwing>(false)), Errc::binding, "does not suit");
    ring->submit(id, std::make_unique<Throwing>(true));
    const auto done = test::wait_completions(*ring);
    CHECK(done.size() == 1 && done[0].error);
    CHECK(it.calls->runs == 0);
    ring->release(id);
    ring->close();  // does not wait for a step that ended
}

}  // namespace

int main() {
    an_allocation_that_hangs_is_given_up();
    a_block_that_is_too_small_is_refused();
    memory_of_another_ring_is_copied();
    a_reshape_keeps_nobody_waiting();
    a_ring_may_be_closed_during_a_reshape();
    runs_that_nobody_wants_are_not_computed();
    a_hanging_run_does_not_hold_up_close();
    a_slot_whose_block_a_run_works_on_is_kept();
    an_exception_of_an_input_step_fails_the_run_only();
    return 0;
}
