// The states of the slots and every change of one; runs are in ring_run.cpp.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "core/ring_slot.hpp"

namespace pipeline {
namespace {

constexpr std::byte canary{0xA5};

// Whether the block still begins and ends with nothing but `pattern`.
bool untouched(const DriverBlock& block, std::size_t bytes, std::byte pattern) {
    const std::size_t edge = std::min<std::size_t>(bytes, 64);
    const auto same = [pattern](std::byte value) { return value == pattern; };
    return std::all_of(block.base, block.base + edge, same) &&
           std::all_of(block.base + bytes - edge, block.base + bytes, same);
}

}  // namespace

std::string_view state_name(SlotState state) noexcept {
    switch (state) {
        case SlotState::free:
            return "free";
        case SlotState::filling:
            return "filling";
        case SlotState::submitted:
            return "submitted";
        case SlotState::done:
            return "done";
        case SlotState::leased:
            return "leased";
    }
    return "";
}

View::~View() { ring_->drop_view(slot_); }

Ring::Ring(std::shared_ptr<Executor> executor, std::size_t depth)
    : executor_(std::move(executor)), busy_(executor_->context_count()) {
    slots_.reserve(depth);
    finished_.reserve(depth);
    executor_->ring_opened();  // last, as only the destructor undoes it
}

Ring::~Ring() { close(); }

std::shared_ptr<Ring> Ring::create(std::shared_ptr<Executor> executor, std::size_t depth, bool probe) {
    if (depth == 0 || depth > max_depth) {
        throw Error(Errc::config,
                    "depth: " + std::to_string(depth) + " is not between 1 and " + std::to_string(max_depth));
    }
    std::shared_ptr<Ring> ring(new Ring(std::move(executor), depth));  // the constructor is private
    ring->add_slots(depth);
    if (probe) {
        for (const auto& slot : ring->slots_) ring->probe(*slot);
    }
    return ring;
}

void Ring::add_slots(std::size_t depth) {
    for (std::size_t i = 0; i < depth; ++i) {
        auto slot = std::make_unique<Slot>();
        slot->ring = this;
        slot->index = i;
        slot->key = executor_->next_slot();
        slot->context = i % executor_->context_count();
        for (const auto direction : {Direction::input, Direction::output}) {
            const auto& specs = executor_->specs(direction);
            for (std::size_t k = 0; k < specs.size(); ++k) {
                const auto& allocator = executor_->allocator(slot->context, direction, k);
                slot->own(direction).push_back(allocator->lease_slot(slot->key, specs[k].driver_size()));
            }
        }
        slot->run_inputs.reserve(slot->inputs.size());
        slot->run_outputs.reserve(slot->outputs.size());
        slot->bound.reserve(slot->inputs.size() + slot->outputs.size());
        slot->borrowed.reserve(slot->inputs.size() + slot->outputs.size());
        slot->routes.reserve(slot->inputs.size() + slot->outputs.size());
        slot->output_bound.assign(slot->outputs.size(), false);
        slots_.push_back(std::move(slot));
    }
}

// "rknpu: preallocated outputs stay zero", "delegate cached old addresses": find out before the first frame.
void Ring::probe(Slot& slot) {
    std::vector<DriverBlock> inputs;
    std::vector<DriverBlock> outputs;
    for (const auto& ref : slot.inputs) inputs.push_back(ref.block());
    for (const auto& ref : slot.outputs) outputs.push_back(ref.block());
    const auto& specs = executor_->specs(Direction::output);
    std::vector<std::size_t> silent(outputs.size());
    for (std::size_t i = 0; i < silent.size(); ++i) silent[i] = i;
    // A value may look like the canary by chance, hardly like two different ones.
    for (const auto pattern : {canary, ~canary}) {
        for (const auto i : silent)
            std::memset(outputs[i].base, static_cast<int>(pattern), outputs[i].length);
        auto keep = shared_from_this();
        executor_->queue(slot.context)
            ->call([keep, inputs, outputs](EngineContext& context) { context.run({inputs, outputs, true}); },
                   executor_->timeout());
        std::erase_if(silent,
                      [&](std::size_t i) { return !untouched(outputs[i], specs[i].driver_size(), pattern); });
        if (silent.empty()) return;
    }
    throw Error(Errc::engine, tensor_place(specs[silent[0]], Direction::output, silent[0]) +
                                  "the engine did not write the block bound to it (slot " +
                                  std::to_string(slot.index) + ")");
}

Ring::Slot& Ring::checked(SlotId id) const {
    Slot& slot = *slots_.at(id.index);
    if (slot.generation != id.generation || slot.state == SlotState::free || slot.released) {
        throw Error(Errc::slot_state,
                    "slot " + std::to_string(id.index) + ": this handle was released; acquire a slot again");
    }
    return slot;
}

void Ring::expect(const Slot& slot, SlotState state, std::string_view action) const {
    if (closed_) {
        throw Error(Errc::closed, "slot " + std::to_string(slot.index) + ": cannot " + std::string(action) +
                                      ", its ring is closed");
    }
    if (slot.state != state) {
        throw Error(Errc::slot_state, "slot " + std::to_string(slot.index) + ": cannot " +
                                          std::string(action) + " while " +
                                          std::string(state_name(slot.state)) + "; it must be " +
                                          std::string(state_name(state)));
    }
}

std::optional<SlotId> Ring::try_acquire() {
    const std::lock_guard lock(mutex_);
    if (closed_) throw Error(Errc::closed, "ring: closed");
    if (reshaping_) return std::nullopt;
    std::fill(busy_.begin(), busy_.end(), 0);
    for (const auto& slot : slots_) {
        if (slot->state == SlotState::filling || slot->state == SlotState::submitted) ++busy_[slot->context];
    }
    Slot* best = nullptr;
    for (const auto& slot : slots_) {
        if (slot->state != SlotState::free) continue;
        // Among equals the one that rested longest, so that slots take turns.
        if (best == nullptr || std::pair(busy_[slot->context], slot->generation) <
                                   std::pair(busy_[best->context], best->generation)) {
            best = slot.get();
        }
    }
    if (best == nullptr) return std::nullopt;
    best->state = SlotState::filling;
    best->released = false;
    ++best->generation;
    return best->id();
}

void Ring::check_arrays(const Slot& slot, Direction direction, std::span<const UserArray> arrays) const {
    for (std::size_t i = 0; i < arrays.size(); ++i) {
        const auto& array = arrays[i];
        const TensorSpec& spec = executor_->spec(direction, array.index);
        const std::string place =
            "slot " + std::to_string(slot.index) + ": " + tensor_place(spec, direction, array.index);
        for (std::size_t k = 0; k < i; ++k) {
            if (arrays[k].index == array.index) throw Error(Errc::binding, place + "given twice");
        }
        if (array.data == nullptr) throw Error(Errc::binding, place + "the array has no data");
        const std::size_t needed = spec.byte_size();
        const bool fits = direction == Direction::input ? array.bytes == needed : array.bytes >= needed;
        if (!fits) {
            throw Error(Errc::binding, place + std::to_string(needed) + " bytes needed, " +
                                           std::to_string(array.bytes) + " given");
        }
    }
}

void Ring::bind(Slot& slot, Direction direction, std::span<const UserArray> arrays) {
    auto& blocks = direction == Direction::input ? slot.run_inputs : slot.run_outputs;
    const std::size_t first = slot.routes.size();
    blocks.clear();
    for (std::size_t i = 0; i < slot.own(direction).size(); ++i) {
        blocks.push_back(whole(slot, direction, i));
        slot.routes.push_back(Route::slot);
    }
    for (const auto& array : arrays) {
        Route& route = slot.routes[first + array.index];
        const auto& allocator = executor_->allocator(slot.context, direction, array.index);
        BlockRef ref = allocator->find(array.data);
        const std::size_t needed = executor_->spec(direction, array.index).driver_size();
        const bool fits = executor_->rebinds() && ref && ref.block().length >= needed;
        // Another ring could hand its slot out again during the run.
        if (fits && (borrow(slot, direction, array.data) || !ref.of_slot())) {
            blocks[array.index] = ref.block();
            slot.bound.push_back(std::move(ref));
            route = Route::bound;
        } else {
            route = Route::copied;
        }
        if (direction == Direction::output) slot.output_bound[array.index] = route == Route::bound;
    }
}

// The slot's own block, which is never smaller than its tensor is now.
const DriverBlock& Ring::whole(const Slot& slot, Direction direction, std::size_t index) const {
    const TensorSpec& spec = executor_->spec(direction, index);
    const DriverBlock& block = (direction == Direction::input ? slot.inputs : slot.outputs)[index].block();
    if (block.length < spec.driver_size()) {
        throw Error(Errc::slot_state, "slot " + std::to_string(slot.index) + ": " +
                                          tensor_place(spec, direction, index) + "its block has " +
                                          std::to_string(block.length) + " bytes, " +
                                          std::to_string(spec.driver_size()) + " are needed");
    }
    return block;
}

// True if the block is one of this ring: its slot is not handed out again before the run of `slot`
// ends. Called with the lock held.
bool Ring::borrow(Slot& slot, Direction direction, const std::byte* base) {
    for (const auto& other : slots_) {
        const auto& blocks = other->own(direction);
        const bool lends = std::any_of(blocks.begin(), blocks.end(),
                                       [base](const BlockRef& ref) { return ref.block().base == base; });
        if (!lends) continue;
        if (other.get() != &slot) {
            slot.borrowed.push_back(other.get());
            ++other->views;
        }
        return true;
    }
    return false;
}

void Ring::return_borrowed(Slot& slot) noexcept {
    for (Slot* const other : slot.borrowed) {
        --other->views;
        settle(*other);
    }
    slot.borrowed.clear();
}

std::vector<Route> Ring::submit(SlotId id, std::span<const UserArray> inputs,
                                std::span<const UserArray> outputs) {
    std::unique_lock lock(mutex_);
    Slot& slot = checked(id);
    expect(slot, SlotState::filling, "run");
    executor_->queue(slot.context)->check_process();
    check_arrays(slot, Direction::input, inputs);
    check_arrays(slot, Direction::output, outputs);
    begin(slot, inputs, outputs);
    lock.unlock();
    // The slot is ours until the command is posted: nobody else touches a submitted one.
    std::vector<Route> routes;
    try {
        routes = slot.routes;
        copy_inputs(slot, inputs);
    } catch (...) {
        finish(slot, Error(Errc::run, "no memory to copy the inputs"), {});
        throw;
    }
    executor_->queue(slot.context)->post(slot);
    return routes;
}

void Ring::copy_inputs(const Slot& slot, std::span<const UserArray> inputs) const {
    for (const auto& array : inputs) {
        std::byte* const base = slot.run_inputs[array.index].base;
        if (slot.routes[array.index] != Route::copied || array.data == base) continue;
        for_each_run(executor_->spec(Direction::input, array.index),
                     [&](std::size_t to, std::size_t from, std::size_t bytes) {
                         std::memmove(base + to, array.data + (array.driver_strides ? to : from), bytes);
                     });
    }
}

// filling -> submitted, on these blocks. Called with the lock held.
void Ring::begin(Slot& slot, std::span<const UserArray> inputs, std::span<const UserArray> outputs) {
    slot.routes.clear();
    std::fill(slot.output_bound.begin(), slot.output_bound.end(), false);
    bind(slot, Direction::input, inputs);
    bind(slot, Direction::output, outputs);
    slot.state = SlotState::submitted;
    slot.error.reset();
    slot.keep_alive = shared_from_this();
}

void Ring::finish(Slot& slot, std::optional<Error> error, RunTimes times) noexcept {
    std::shared_ptr<Ring> keep;  // outlives the guard, see ring.hpp
    const std::unique_ptr<InputStep> step = std::move(slot.step);
    const std::lock_guard lock(mutex_);
    keep = std::move(slot.keep_alive);
    slot.bound.clear();  // references only; the engine undid its own binding
    return_borrowed(slot);
    slot.error = std::move(error);
    slot.times = times;
    slot.state = SlotState::done;
    if (!slot.released && !closed_) {
        finished_.push_back(&slot);
        notifier_->signal();
    }
    settle(slot);
}

// Return a slot that nobody needs any more. Called with the lock held.
void Ring::settle(Slot& slot) noexcept {
    if (slot.views > 0 || slot.state == SlotState::submitted) return;
    if (slot.released) {
        slot.state = SlotState::free;
        slot.released = false;
        ++slot.generation;
        if (want_free_ && !closed_) {
            want_free_ = false;
            notifier_->signal();
        }
    }
    if (closed_) {
        slot.inputs.clear();  // the driver gets them later, from the context's thread
        slot.outputs.clear();
    }
}

std::vector<Completion> Ring::drain() {
    const std::lock_guard lock(mutex_);
    if (notifier_) notifier_->clear();
    std::vector<Completion> result;
    result.reserve(finished_.size());
    for (Slot* const slot : finished_) {
        if (slot->state == SlotState::done && !slot->released) result.push_back({slot->id(), slot->error});
    }
    finished_.clear();
    return result;
}

RunTimes Ring::lease(SlotId id) {
    const std::lock_guard lock(mutex_);
    Slot& slot = checked(id);
    expect(slot, SlotState::done, "read the outputs");
    if (slot.error) throw Error(*slot.error);
    slot.state = SlotState::leased;
    return slot.times;
}

void Ring::release(SlotId id) {
    const std::lock_guard lock(mutex_);
    Slot& slot = checked(id);
    slot.released = true;
    if (slot.state == SlotState::done) std::erase(finished_, &slot);
    settle(slot);
}

std::shared_ptr<View> Ring::view(SlotId id, Direction direction, std::size_t index) {
    const std::lock_guard lock(mutex_);
    Slot& slot = checked(id);
    const TensorSpec& spec = executor_->spec(direction, index);
    if (direction == Direction::input) {
        expect(slot, SlotState::filling, "write an input");
    } else {
        expect(slot, SlotState::leased, "read an output");
        if (slot.output_bound[index]) {
            throw Error(Errc::binding, "slot " + std::to_string(slot.index) + ": " +
                                           tensor_place(spec, direction, index) +
                                           "this run wrote it to the caller's array, not to the slot");
        }
    }
    auto view =
        std::make_shared<View>(shared_from_this(), slot.index, whole(slot, direction, index).base, spec);
    ++slot.views;
    return view;
}

void Ring::drop_view(std::size_t index) noexcept {
    const std::lock_guard lock(mutex_);
    Slot& slot = *slots_[index];
    --slot.views;
    settle(slot);
}

void Ring::copy_output(SlotId id, const UserArray& target) {
    const auto source = view(id, Direction::output, target.index);
    {
        const std::lock_guard lock(mutex_);
        check_arrays(checked(id), Direction::output, {&target, 1});
    }
    for_each_run(source->spec(), [&](std::size_t from, std::size_t to, std::size_t bytes) {
        std::memcpy(target.data + (target.driver_strides ? from : to), source->data() + from, bytes);
    });
}

int Ring::fd() const noexcept {
    const std::lock_guard lock(mutex_);
    return notifier_ ? notifier_->fd() : -1;
}

void Ring::want_free() noexcept {
    const std::lock_guard lock(mutex_);
    want_free_ = true;
    const bool any = std::any_of(slots_.begin(), slots_.end(),
                                 [](const auto& slot) { return slot->state == SlotState::free; });
    if (any && !closed_ && !reshaping_) {
        want_free_ = false;
        notifier_->signal();
    }
}

SlotInfo Ring::info(SlotId id) const {
    const std::lock_guard lock(mutex_);
    const Slot& slot = *slots_.at(id.index);
    if (slot.generation != id.generation) return {SlotState::free, slot.views, slot.context};
    return {slot.state, slot.views, slot.context};
}

std::vector<SlotInfo> Ring::infos() const {
    const std::lock_guard lock(mutex_);
    std::vector<SlotInfo> result;
    result.reserve(slots_.size());
    for (const auto& slot : slots_) result.push_back({slot->state, slot->views, slot->context});
    return result;
}

std::size_t Ring::running(std::size_t context) const noexcept {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::count_if(slots_.begin(), slots_.end(), [&](const auto& slot) {
        return slot->context == context && slot->state == SlotState::submitted;
    }));
}

void Ring::close() noexcept {
    std::unique_lock lock(mutex_);
    shut();
    steps_ended_.wait(lock, [this] { return steps_ == 0; });  // what steps read may be freed now
}

// Called with the lock held.
void Ring::shut() noexcept {
    if (closed_) return;
    closed_ = true;
    notifier_.reset();  // whoever closes may keep the ring for long, and needs its descriptor no more
    executor_->ring_closed();
    finished_.clear();
    if (reshaping_) return;  // who reshapes gives the blocks back
    for (const auto& slot : slots_) settle(*slot);
}

}  // namespace pipeline
