// Opens and closes the contexts' threads and allocators, and asks all contexts alike.
#include "core/executor.hpp"

#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/process_end.hpp"

namespace pipeline {

Executor::Executor(std::shared_ptr<Engine> engine, Allocator::Limits limits)
    : limits_{limits.max_bytes, limits.timeout, limits.reuse && engine->rebinds()},
      rebinds_(engine->rebinds()) {
    adopt({engine->inputs(), engine->outputs()});
    if (engine->context_count() == 0) throw Error(Errc::config, "contexts: 0 is not above 0");
    for (std::size_t i = 0; i < engine->context_count(); ++i) {
        threads_.push_back(std::make_unique<ContextThread>(engine, i));
        const auto make = [&](Direction direction, const std::vector<TensorSpec>& specs) {
            std::vector<std::shared_ptr<Allocator>> result;
            for (std::size_t k = 0; k < specs.size(); ++k) {
                result.push_back(std::make_shared<Allocator>(threads_.back()->queue(), direction, k,
                                                             specs[k].name, limits_));
            }
            return result;
        };
        contexts_.push_back({make(Direction::input, specs(Direction::input)),
                             make(Direction::output, specs(Direction::output))});
    }
    guard_process_end();  // by now the engine's library is loaded, and has registered its own end
}

void Executor::ring_opened() {
    const std::lock_guard lock(opening_);
    if (reshaping_) throw Error(Errc::slot_state, "ring: the executor is being reshaped");
    ++rings_;
}

void Executor::ring_closed() noexcept {
    const std::lock_guard lock(opening_);
    --rings_;
}

void Executor::begin_reshape(std::size_t rings) {
    const std::lock_guard lock(opening_);
    if (reshaping_) throw Error(Errc::slot_state, "reshape: another one is under way");
    if (rings_ > rings) throw Error(Errc::slot_state, "reshape: another ring is open on the executor");
    reshaping_ = true;
}

void Executor::end_reshape() noexcept {
    const std::lock_guard lock(opening_);
    reshaping_ = false;
}

const std::vector<TensorSpec>& Executor::specs(Direction direction) const noexcept {
    const TensorSpecs& now = *current_;
    return direction == Direction::input ? now.inputs : now.outputs;
}

const TensorSpec& Executor::spec(Direction direction, std::size_t index) const {
    const auto& all = specs(direction);
    if (index >= all.size()) {
        throw Error(Errc::binding, std::string(direction_name(direction)) + " " + std::to_string(index) +
                                       ": the model has " + std::to_string(all.size()));
    }
    return all[index];
}

const std::shared_ptr<ContextQueue>& Executor::queue(std::size_t context) const {
    if (context >= threads_.size()) {
        throw Error(Errc::config, "context " + std::to_string(context) + ": the executor has " +
                                      std::to_string(threads_.size()));
    }
    return threads_[context]->queue();
}

const std::shared_ptr<Allocator>& Executor::allocator(std::size_t context, Direction direction,
                                                      std::size_t index) const {
    static_cast<void>(queue(context));
    static_cast<void>(spec(direction, index));
    const Context& owner = contexts_[context];
    return (direction == Direction::input ? owner.inputs : owner.outputs)[index];
}

bool Executor::zero_copy(Direction direction, std::size_t index) const {
    static_cast<void>(spec(direction, index));
    for (const auto& thread : threads_) {
        auto answer = std::make_shared<bool>(false);
        thread->queue()->call([=](EngineContext& context) { *answer = context.zero_copy(direction, index); },
                              limits_.timeout);
        if (!*answer) return false;
    }
    return true;
}

void Executor::adopt(TensorSpecs specs) {
    for (const auto& spec : specs.inputs) spec.validate();
    for (const auto& spec : specs.outputs) spec.validate();
    Shape shape = specs.inputs.empty() ? Shape() : specs.inputs[0].shape;
    auto& known = specs_[std::move(shape)];
    if (!known) known = std::make_unique<const TensorSpecs>(std::move(specs));
    current_ = known.get();
}

void Executor::reshape(const std::vector<std::int64_t>& shape) {
    begin_reshape(0);
    try {
        apply_shape(shape);
    } catch (...) {
        end_reshape();
        throw;
    }
    end_reshape();
}

void Executor::apply_shape(const std::vector<std::int64_t>& shape) {
    const auto change = [this](std::size_t context, const Shape& to) {
        auto changed = std::make_shared<TensorSpecs>();
        threads_[context]->queue()->call(
            [changed, to](EngineContext& engine) { *changed = engine.reshape(to); }, limits_.timeout);
        return changed;
    };
    const Shape before = spec(Direction::input, 0).shape;
    std::shared_ptr<TensorSpecs> changed;
    std::size_t asked = 0;
    try {
        while (asked < threads_.size()) changed = change(asked++, shape);
        adopt(std::move(*changed));
    } catch (...) {
        for (std::size_t k = 0; k < asked; ++k) {
            try {
                static_cast<void>(change(k, before));
            } catch (const Error&) {  // the first failure tells more
            }
        }
        throw;
    }
}

std::string Executor::route(Direction direction, std::size_t index) const {
    static_cast<void>(spec(direction, index));
    std::string route;
    for (const auto& thread : threads_) {
        // Shared with the thread, which may come to it after the wait was given up.
        auto answer = std::make_shared<std::pair<bool, std::string>>();
        thread->queue()->call(
            [=](EngineContext& context) {
                *answer = {context.zero_copy(direction, index), context.route(direction, index)};
            },
            limits_.timeout);
        route = std::move(answer->second);
        if (!answer->first) break;
    }
    return route;
}

Counters Executor::counters() const noexcept {
    Counters sum;
    for (const auto& context : contexts_) {
        for (const auto& allocator : context.inputs) sum += allocator->counters();
        for (const auto& allocator : context.outputs) sum += allocator->counters();
    }
    return sum;
}

void Executor::trim() noexcept {
    for (const auto& context : contexts_) {
        for (const auto& allocator : context.inputs) allocator->trim();
        for (const auto& allocator : context.outputs) allocator->trim();
    }
}

bool Executor::close(std::chrono::nanoseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (const auto& context : contexts_) {
        for (const auto& allocator : context.inputs) allocator->close();
        for (const auto& allocator : context.outputs) allocator->close();
    }
    for (const auto& thread : threads_) thread->request_close();
    bool ended = true;
    for (const auto& thread : threads_) ended = thread->join(deadline) && ended;
    return ended;
}

}  // namespace pipeline
