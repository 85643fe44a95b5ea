// What the thread of a context does with a slot: draw the picture, if there is one, and run.
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "core/ring_slot.hpp"

namespace pipeline {
namespace {

std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace

// While a picture is drawn, whoever closes the ring waits, as it keeps the frame.
class Ring::DrawingGuard {
public:
    DrawingGuard(Ring& ring, const Slot& slot) noexcept : ring_(ring.begin_drawing(slot) ? &ring : nullptr) {}
    ~DrawingGuard() {
        if (ring_ != nullptr) ring_->end_drawing();
    }
    DrawingGuard(const DrawingGuard&) = delete;
    DrawingGuard& operator=(const DrawingGuard&) = delete;
    [[nodiscard]] explicit operator bool() const noexcept { return ring_ != nullptr; }

private:
    Ring* ring_;
};

void Ring::Slot::execute(EngineContext& engine) noexcept {
    std::optional<Error> failure;
    RunTimes run_times{now_ns(), 0, 0};
    try {
        ring->check_wanted(*this);
        if (const DrawingGuard drawing_now(*ring, *this); drawing_now) {
            draw();
        }
        if (drawing.drawer) {
            const std::int64_t drawn_ns = now_ns();
            run_times.drawing_ns = drawn_ns - run_times.started_ns;
            run_times.started_ns = drawn_ns;
        }
        engine.run({run_inputs, run_outputs});
    } catch (const Error& e) {
        failure = e;
    } catch (const std::exception& e) {
        failure.emplace(Errc::run, e.what());
    } catch (...) {
        failure.emplace(Errc::run, "the engine threw something that is no exception");
    }
    run_times.finished_ns = now_ns();
    ring->finish(*this, std::move(failure), run_times);
}

void Ring::Slot::draw() const {
    if (drawing.pad) {
        for (std::size_t row = 0; row < input.rows; ++row) {
            std::memset(input.pixels.row(row), *drawing.pad, input.columns * 3);
        }
    }
    drawing.drawer->draw(drawing.frame,
                         {input.pixels.row(drawing.top) + drawing.left * 3, input.pixels.stride});
}

void Ring::submit(SlotId id, Drawing drawing) {
    std::unique_lock lock(mutex_);
    Slot& slot = checked(id);
    expect(slot, SlotState::filling, "run");
    executor_->queue(slot.context)->check_process();
    slot.input = canvas(slot, drawing);
    begin(slot, {}, {});
    slot.drawing = std::move(drawing);
    lock.unlock();
    executor_->queue(slot.context)->post(slot);
}

Ring::Canvas Ring::canvas(Slot& slot, const Drawing& drawing) const {
    const TensorSpec& spec = executor_->spec(Direction::input, 0);
    const auto refuse = [&](const std::string& what) {
        throw Error(Errc::binding, "slot " + std::to_string(slot.index) + ": " +
                                       tensor_place(spec, Direction::input, 0) + what);
    };
    const auto strides = spec.strides();
    if (spec.dtype != DType::u8 || spec.shape.size() != 4 || spec.shape[0] != 1 || spec.shape[3] != 3 ||
        strides[3] != 1 || strides[2] != 3) {
        refuse("pictures can only be drawn on uint8 (1, height, width, 3)");
    }
    const Canvas result{{reinterpret_cast<std::uint8_t*>(whole(slot, Direction::input, 0).base), strides[1]},
                        static_cast<std::size_t>(spec.shape[1]),
                        static_cast<std::size_t>(spec.shape[2])};
    const Area& area = drawing.drawer->area();
    const auto inside = [](std::size_t at, std::size_t length, std::size_t all) {
        return at <= all && length <= all - at;
    };
    if (!inside(drawing.top, area.height, result.rows) || !inside(drawing.left, area.width, result.columns)) {
        refuse("the picture is larger than what is left of the input");
    }
    if (!drawing.drawer->within(drawing.frame)) refuse("the frame does not hold what is to be drawn");
    return result;
}

// Nobody takes what a run computes for a slot that was given back, or when the ring was closed.
void Ring::check_wanted(const Slot& slot) const {
    const std::lock_guard lock(mutex_);
    if (closed_ || slot.released) {
        throw Error(Errc::closed, "slot " + std::to_string(slot.index) + ": given up before its run");
    }
}

// Whether there is a picture to draw, and still somebody who keeps the frame for it.
bool Ring::begin_drawing(const Slot& slot) noexcept {
    const std::lock_guard lock(mutex_);
    if (!slot.drawing.drawer || closed_) return false;
    ++drawing_;
    return true;
}

void Ring::end_drawing() noexcept {
    const std::lock_guard lock(mutex_);
    if (--drawing_ == 0) drawn_.notify_all();
}

}  // namespace pipeline
