#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "core/resize_step.hpp"
#include "core/ring.hpp"
#include "support.hpp"

using namespace pipeline;

namespace {

float first_score(Ring& ring, SlotId id) {
    const auto view = ring.view(id, Direction::output, 0);
    float value = 0;
    std::memcpy(&value, view->data(), sizeof value);
    return value;
}

void fill(Ring& ring, SlotId id, std::byte value) {
    const auto view = ring.view(id, Direction::input, 0);
    std::memset(view->data(), std::to_integer<int>(value), test::input_bytes);
}

void a_frame_through_every_state() {
    const auto executor = test::executor();
    const auto ring = Ring::create(executor, 2, true);
    const auto allocations = executor->counters().allocations;
    CHECK(allocations == 4);
    for (int i = 0; i < 1000; ++i) {
        const SlotId id = test::acquire(*ring);
        CHECK(ring->info(id).state == SlotState::filling);
        fill(*ring, id, static_cast<std::byte>(i));
        ring->submit(id, {}, {});
        const auto done = test::wait_completions(*ring);
        CHECK(done.size() == 1 && done[0].id == id && !done[0].error);
        CHECK(ring->info(id).state == SlotState::done);
        const RunTimes times = ring->lease(id);
        CHECK(times.started_ns > 0 && times.finished_ns >= times.started_ns);
        CHECK(ring->info(id).state == SlotState::leased);
        CHECK(first_score(*ring, id) == static_cast<float>(i % 256));
        ring->release(id);
        CHECK(ring->info(id).state == SlotState::free);
    }
    CHECK(executor->counters().allocations == allocations);
    ring->close();
    CHECK(executor->close(std::chrono::seconds(20)));
    CHECK(executor->counters().live_blocks == 0);
}

void illegal_transitions_are_refused() {
    const auto executor = test::executor();
    const auto ring = Ring::create(executor, 1, true);
    const SlotId id = test::acquire(*ring);
    CHECK(!ring->try_acquire());
    CHECK_THROWS(ring->lease(id), Errc::slot_state);
    CHECK_THROWS(static_cast<void>(ring->view(id, Direction::output, 0)), Errc::slot_state);
    CHECK_THROWS(static_cast<void>(ring->view(id, Direction::input, 7)), Errc::binding);
    ring->submit(id, {}, {});
    CHECK_THROWS(ring->submit(id, {}, {}), Errc::slot_state);
    CHECK_THROWS(static_cast<void>(ring->view(id, Direction::input, 0)), Errc::slot_state);
    CHECK(test::wait_completions(*ring).size() == 1);
    ring->lease(id);
    CHECK_THROWS(ring->lease(id), Errc::slot_state);
    CHECK_THROWS(ring->submit(id, {}, {}), Errc::slot_state);
    ring->release(id);
    CHECK_THROWS(ring->release(id), Errc::slot_state);
    const SlotId again = test::acquire(*ring);
    CHECK(again.index == id.index && !(again == id));
    CHECK_THROWS(ring->submit(id, {}, {}), Errc::slot_state);  // the old handle
    ring->release(again);
    CHECK_THROWS(Ring::create(executor, 0, true), Errc::config);
    CHECK_THROWS(Ring::create(executor, 1000000, true), Errc::config);
}

void a_view_keeps_its_slot() {
    const auto executor = test::executor();
    const auto ring = Ring::create(executor, 1, true);
    const SlotId id = test::acquire(*ring);
    fill(*ring, id, std::byte{9});
    ring->submit(id, {}, {});
    CHECK(test::wait_completions(*ring).size() == 1);
    ring->lease(id);
    auto view = ring->view(id, Direction::output, 0);
    ring->release(id);
    CHECK(ring->infos()[0].state == SlotState::leased && ring->infos()[0].views == 1);
    CHECK(!ring->try_acquire());
    CHECK_THROWS(static_cast<void>(ring->view(id, Direction::output, 0)), Errc::slot_state);
    ring->want_free();
    std::thread elsewhere([&] { view.reset(); });
    test::wait_readable(*ring);
    elsewhere.join();
    CHECK(ring->try_acquire());
}

void views_outlive_close() {
    auto executor = test::executor();
    auto ring = Ring::create(executor, 1, true);
    const SlotId id = test::acquire(*ring);
    fill(*ring, id, std::byte{7});
    ring->submit(id, {}, {});
    CHECK(test::wait_completions(*ring).size() == 1);
    ring->lease(id);
    auto view = ring->view(id, Direction::output, 0);
    ring->close();
    CHECK_THROWS(static_cast<void>(ring->view(id, Direction::output, 0)), Errc::closed);
    CHECK_THROWS(static_cast<void>(ring->try_acquire()), Errc::closed);
    CHECK(!executor->close(std::chrono::seconds(20)));
    executor.reset();
    ring.reset();
    float value = 0;
    std::memcpy(&value, view->data(), sizeof value);  // under ASan: alive
    CHECK(value == 7.0F);
    view.reset();
}

void failed_runs_return_their_slot() {
    auto options = test::options();
    options.fail_runs = {2};
    const auto executor = test::executor(options);
    const auto ring = Ring::create(executor, 1, true);
    for (int run = 1; run <= 3; ++run) {
        const SlotId id = test::acquire(*ring);
        ring->submit(id, {}, {});
        const auto done = test::wait_completions(*ring);
        CHECK(done.size() == 1);
        CHECK(done[0].error.has_value() == (run == 2));
        if (run == 2) {
            CHECK(done[0].error->code() == Errc::run);
            CHECK_THROWS(ring->lease(id), Errc::run);
        } else {
            ring->lease(id);
        }
        ring->release(id);
        CHECK(ring->info(id).state == SlotState::free);
    }
}

void contexts_share_the_work() {
    const auto executor = test::executor(test::options(2));
    const auto ring = Ring::create(executor, 4, true);
    const SlotId a = test::acquire(*ring);
    const SlotId b = test::acquire(*ring);
    CHECK(ring->info(a).context != ring->info(b).context);
}

// An engine that never writes its second output.
class ForgetfulContext final : public EngineContext {
public:
    DriverBlock allocate(Direction, std::size_t, std::size_t bytes) override {
        memory_.push_back(std::make_unique<std::byte[]>(bytes));
        return {memory_.back().get(), bytes, nullptr};
    }
    void release(Direction, std::size_t, DriverBlock) noexcept override {}
    void run(const RunRequest& request) override {
        std::memset(request.outputs[0].base, 1, request.outputs[0].length);
    }

private:
    std::vector<std::unique_ptr<std::byte[]>> memory_;
};

class ForgetfulEngine final : public Engine {
public:
    [[nodiscard]] std::string_view name() const noexcept override { return "forgetful"; }
    [[nodiscard]] std::string device() const override { return "none"; }
    [[nodiscard]] std::size_t context_count() const noexcept override { return 1; }
    [[nodiscard]] const std::vector<TensorSpec>& inputs() const noexcept override { return specs_; }
    [[nodiscard]] const std::vector<TensorSpec>& outputs() const noexcept override { return specs_; }
    [[nodiscard]] std::unique_ptr<EngineContext> open_context(std::size_t) override {
        return std::make_unique<ForgetfulContext>();
    }

private:
    std::vector<TensorSpec> specs_{{"a", DType::u8, {8}, "", 0, {}}, {"b", DType::u8, {8}, "", 0, {}}};
};

void an_unwritten_output_is_found_at_the_start() {
    const auto executor = std::make_shared<Executor>(std::make_shared<ForgetfulEngine>(),
                                                     Allocator::Limits{1 << 20, std::chrono::seconds(20)});
    std::string text;
    try {
        static_cast<void>(Ring::create(executor, 2, true));
    } catch (const Error& error) {
        text = error.what();
    }
    CHECK(text.find("output 1 'b'") != std::string::npos);
    CHECK(Ring::create(executor, 2, false)->depth() == 2);
    CHECK(executor->close(std::chrono::seconds(20)));
    CHECK(executor->counters().live_blocks == 0);
}

// A frame of one color, resized to `side` pixels with the input's edge around it.
std::unique_ptr<InputStep> resized(const std::vector<std::uint8_t>& frame, std::size_t side,
                                   std::optional<std::uint8_t> pad, std::size_t rows = 8,
                                   std::size_t moved = 0) {
    const std::size_t at = (4 - side) / 2;
    return std::make_unique<ResizeStep>(std::make_shared<BgrResizer>(Area{0, 0, 8, 8, side, side}, false),
                                        Frame{{frame.data(), 24}, rows, 8}, at, at + moved, pad);
}

void the_context_resizes_a_frame_before_it_runs() {
    const auto executor = test::executor(test::options(2));
    const auto ring = Ring::create(executor, 4, true);
    std::vector<std::uint8_t> frame(8 * 8 * 3);
    for (int i = 0; i < 500; ++i) {
        std::fill(frame.begin(), frame.end(), static_cast<std::uint8_t>(i));
        const std::size_t side = i % 2 == 0 ? 4 : 2;
        const SlotId id = test::acquire(*ring);
        ring->submit(id, resized(frame, side, std::uint8_t{77}));
        const auto done = test::wait_completions(*ring);
        CHECK(done.size() == 1 && !done[0].error);
        const RunTimes times = ring->lease(id);
        CHECK(times.step_ns > 0 && times.finished_ns >= times.started_ns);
        const auto view = ring->view(id, Direction::output, 0);
        float values[10];
        std::memcpy(values, view->data(), sizeof values);
        const auto inner = static_cast<float>(i % 256);
        // The outputs are bytes of pixels 0, 1, 3, 4, 6, 8, 9, ...; 6 and 9 are inside.
        for (const int k : {4, 6}) CHECK(values[k] == inner);
        for (const int k : {0, 1, 2, 9}) CHECK(values[k] == (side == 4 ? inner : 77.0F));
        ring->release(id);
    }
    ring->close();
    CHECK(executor->close(std::chrono::seconds(20)));
    CHECK(executor->counters().live_blocks == 0);
}

void frames_that_do_not_fit_are_refused() {
    const std::vector<std::uint8_t> frame(8 * 8 * 3);
    const auto ring = Ring::create(test::executor(), 1, true);
    const SlotId id = test::acquire(*ring);
    CHECK_THROWS(ring->submit(id, resized(frame, 4, {}, 8, 1)), Errc::binding, "larger than what is left");
    CHECK_THROWS(ring->submit(id, resized(frame, 4, {}, 7)), Errc::binding, "the frame does not hold");
    CHECK(ring->info(id).state == SlotState::filling);
    ring->submit(id, resized(frame, 4, {}));
    CHECK_THROWS(ring->submit(id, resized(frame, 4, {})), Errc::slot_state);
    CHECK(test::wait_completions(*ring).size() == 1);
    ring->close();

    auto flat = test::options();
    flat.inputs = {{"image", DType::u8, {1, 48}, "", 0, {}}};
    const auto other = Ring::create(test::executor(flat), 1, true);
    CHECK_THROWS(other->submit(test::acquire(*other), resized(frame, 4, {})), Errc::binding,
                 "can only be resized into uint8 (1, height, width, 3)");
    other->close();
}

// The sanitizers see whether a thread still reads a frame that is gone.
void frames_may_go_once_the_ring_is_closed() {
    for (int i = 0; i < 100; ++i) {
        const auto executor = test::executor(test::options(2));
        const auto ring = Ring::create(executor, 6, false);
        {
            const std::vector<std::uint8_t> frame(8 * 8 * 3, 1);
            for (int k = 0; k < 6; ++k) ring->submit(test::acquire(*ring), resized(frame, 4, {}));
            ring->close();
        }
        CHECK(executor->close(std::chrono::seconds(20)));
        CHECK(executor->counters().live_blocks == 0);
    }
}

}  // namespace

int main() {
    a_frame_through_every_state();
    illegal_transitions_are_refused();
    a_view_keeps_its_slot();
    views_outlive_close();
    failed_runs_return_their_slot();
    contexts_share_the_work();
    an_unwritten_output_is_found_at_the_start();
    the_context_resizes_a_frame_before_it_runs();
    frames_that_do_not_fit_are_refused();
    frames_may_go_once_the_ring_is_closed();
}
