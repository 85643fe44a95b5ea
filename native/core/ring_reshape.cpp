// Another input shape for all slots of a ring, without its lock over calls of the driver.
#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "core/ring_slot.hpp"

namespace pipeline {
namespace {

bool has_block(const BlockRef& ref) { return static_cast<bool>(ref); }

}  // namespace

void Ring::reshape(const std::vector<std::int64_t>& shape) {
    {
        const std::lock_guard lock(mutex_);
        if (closed_) throw Error(Errc::closed, "ring: closed");
        for (const auto& slot : slots_) {
            if (slot->state == SlotState::free) continue;
            throw Error(Errc::slot_state, "reshape: slot " + std::to_string(slot->index) + " is " +
                                              std::string(state_name(slot->state)) + " with " +
                                              std::to_string(slot->views) +
                                              " views; every slot must be released and its views gone");
        }
        executor_->begin_reshape(1);
        reshaping_ = true;  // the lock is not held over calls of the driver
    }
    std::exception_ptr failure;
    try {
        refit(shape);
    } catch (...) {
        failure = std::current_exception();
    }
    {
        const std::lock_guard lock(mutex_);
        reshaping_ = false;
        const bool usable = std::all_of(slots_.begin(), slots_.end(), [](const auto& slot) {
            return std::all_of(slot->inputs.begin(), slot->inputs.end(), has_block) &&
                   std::all_of(slot->outputs.begin(), slot->outputs.end(), has_block);
        });
        if (closed_) {
            for (const auto& slot : slots_) settle(*slot);
        } else if (!usable) {
            shut();
        } else if (want_free_) {
            want_free_ = false;
            notifier_->signal();
        }
    }
    executor_->end_reshape();
    if (failure) std::rethrow_exception(failure);
}

// The new shape on every slot, or the one before. Slots without memory are left where neither works.
void Ring::refit(const std::vector<std::int64_t>& shape) {
    const auto before = executor_->spec(Direction::input, 0).shape;
    executor_->apply_shape(shape);
    try {
        for (const auto& slot : slots_) {
            if (fit(*slot)) probe(*slot);
        }
    } catch (...) {
        try {
            executor_->apply_shape(before);
            for (const auto& slot : slots_) fit(*slot);
        } catch (const Error&) {  // the first failure tells more
        }
        throw;
    }
}

// Blocks as large as the tensors are now; whether any was replaced.
bool Ring::fit(Slot& slot) {
    bool replaced = false;
    for (const auto direction : {Direction::input, Direction::output}) {
        const auto& specs = executor_->specs(direction);
        for (std::size_t i = 0; i < specs.size(); ++i) {
            BlockRef& ref = slot.own(direction)[i];
            const auto& allocator = executor_->allocator(slot.context, direction, i);
            if (ref && ref.block().length >= specs[i].driver_size()) continue;
            ref.reset();
            allocator->trim();
            ref = allocator->lease_slot(slot.key, specs[i].driver_size());
            replaced = true;
        }
    }
    return replaced;
}

}  // namespace pipeline
