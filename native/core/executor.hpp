// A model on its contexts: their threads and the allocators of their tensors.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/allocator.hpp"
#include "core/context_thread.hpp"
#include "core/engine.hpp"

namespace pipeline {

class Executor {
public:
    // Opens every context. Throws what the engine throws.
    Executor(std::shared_ptr<Engine> engine, Allocator::Limits limits);

    [[nodiscard]] const std::vector<TensorSpec>& specs(Direction direction) const noexcept;
    [[nodiscard]] const TensorSpec& spec(Direction direction, std::size_t index) const;
    [[nodiscard]] std::size_t context_count() const noexcept { return threads_.size(); }
    [[nodiscard]] const std::shared_ptr<ContextQueue>& queue(std::size_t context) const;
    [[nodiscard]] const std::shared_ptr<Allocator>& allocator(std::size_t context, Direction direction,
                                                              std::size_t index) const;
    [[nodiscard]] std::chrono::nanoseconds timeout() const noexcept { return limits_.timeout; }
    // Whether every context works on this tensor's blocks in place.
    [[nodiscard]] bool zero_copy(Direction direction, std::size_t index) const;
    // Whether a caller's driver memory may be bound for a run instead of a slot's own.
    [[nodiscard]] bool rebinds() const noexcept { return rebinds_; }
    // For a new slot of any of its rings.
    [[nodiscard]] SlotKey next_slot() noexcept { return SlotKey{slots_++}; }
    // Another shape of the first input, in every context or in none. Throws Errc::slot_state while a
    // ring is open, and what the engine throws.
    void reshape(const std::vector<std::int64_t>& shape);
    // The same for the one open ring, between begin_reshape and end_reshape.
    void apply_shape(const std::vector<std::int64_t>& shape);
    // A ring is open from now on, until ring_closed. Throws Errc::slot_state during a reshape.
    void ring_opened();
    void ring_closed() noexcept;
    // Around a reshape with at most `rings` open rings. Throws Errc::slot_state where there are more.
    void begin_reshape(std::size_t rings);
    void end_reshape() noexcept;
    // How the contexts treat this tensor's blocks, in words; the first that is not zero-copy.
    [[nodiscard]] std::string route(Direction direction, std::size_t index) const;
    [[nodiscard]] Counters counters() const noexcept;
    void trim() noexcept;

    // Give back what is free and end the threads. False when a context still hangs in a run or a
    // block is still referred to; its thread then ends, and frees all, when that is over.
    [[nodiscard]] bool close(std::chrono::nanoseconds timeout);

private:
    struct Context {
        std::vector<std::shared_ptr<Allocator>> inputs;
        std::vector<std::shared_ptr<Allocator>> outputs;
    };

    void adopt(TensorSpecs specs);

    const Allocator::Limits limits_;
    using Shape = std::vector<std::int64_t>;
    // Each that there was, so that what refers to one stays valid; current_ is one of them.
    std::map<Shape, std::unique_ptr<const TensorSpecs>> specs_;
    std::atomic<const TensorSpecs*> current_;
    const bool rebinds_;
    std::atomic<std::uint64_t> slots_ = 0;
    std::mutex opening_;
    std::size_t rings_ = 0;
    bool reshaping_ = false;
    std::vector<std::unique_ptr<ContextThread>> threads_;
    std::vector<Context> contexts_;
};

}  // namespace pipeline
