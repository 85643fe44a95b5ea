// What the thread of a context does with a slot: the input step, if there is one, and the run.
#include <chrono>
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

// While an input step runs, whoever closes the ring waits, as it keeps what the step reads.
class Ring::StepGuard {
public:
    explicit StepGuard(Ring& ring) noexcept : ring_(ring.begin_step() ? &ring : nullptr) {}
    ~StepGuard() {
        if (ring_ != nullptr) ring_->end_step();
    }
    StepGuard(const StepGuard&) = delete;
    StepGuard& operator=(const StepGuard&) = delete;
    [[nodiscard]] explicit operator bool() const noexcept { return ring_ != nullptr; }

private:
    Ring* ring_;
};

void Ring::Slot::execute(EngineContext& engine) noexcept {
    std::optional<Error> failure;
    RunTimes run_times{now_ns(), 0, 0};
    try {
        ring->check_wanted(*this);
        if (step) {
            if (const StepGuard running(*ring); running) step->run(run_inputs[0].base);
            const std::int64_t filled_ns = now_ns();
            run_times.step_ns = filled_ns - run_times.started_ns;
            run_times.started_ns = filled_ns;
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

void Ring::submit(SlotId id, std::unique_ptr<InputStep> step) {
    std::unique_lock lock(mutex_);
    Slot& slot = checked(id);
    expect(slot, SlotState::filling, "run");
    executor_->queue(slot.context)->check_process();
    step->check(executor_->spec(Direction::input, 0));
    begin(slot, {}, {});
    slot.step = std::move(step);
    lock.unlock();
    executor_->queue(slot.context)->post(slot);
}

// Nobody takes what a run computes for a slot that was given back, or when the ring was closed.
void Ring::check_wanted(const Slot& slot) const {
    const std::lock_guard lock(mutex_);
    if (closed_ || slot.released) {
        throw Error(Errc::closed, "slot " + std::to_string(slot.index) + ": given up before its run");
    }
}

// False once the ring is closed: what the step reads may be gone.
bool Ring::begin_step() noexcept {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    ++steps_;
    return true;
}

void Ring::end_step() noexcept {
    const std::lock_guard lock(mutex_);
    if (--steps_ == 0) steps_ended_.notify_all();
}

}  // namespace pipeline
