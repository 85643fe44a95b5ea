// Blocks from the driver to whoever refers to them, and back, all on the context's thread.
#include "core/allocator.hpp"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace pipeline {

// Also the command that frees it, so that handing memory back can neither fail nor allocate.
struct Allocator::Block final : Command {
    void execute(EngineContext& context) noexcept override {
        const std::unique_ptr<Block> self(this);
        context.release(direction, index, driver);
        queue->block_removed();
    }

    DriverBlock driver;
    int refs = 0;
    bool free_when_idle = false;
    bool once = false;  // never to be handed out again
    bool of_slot = false;
    Direction direction = Direction::input;
    std::size_t index = 0;
    std::shared_ptr<ContextQueue> queue;
};

Counters& Counters::operator+=(const Counters& other) noexcept {
    allocations += other.allocations;
    frees += other.frees;
    live_blocks += other.live_blocks;
    live_bytes += other.live_bytes;
    high_water_bytes += other.high_water_bytes;
    return *this;
}

Allocator::Allocator(std::shared_ptr<ContextQueue> queue, Direction direction, std::size_t index,
                     std::string tensor, Limits limits)
    : queue_(std::move(queue)),
      direction_(direction),
      index_(index),
      tensor_(std::move(tensor)),
      limits_(limits) {}

Allocator::~Allocator() {
    // Every reference holds the allocator, so nothing here is in use any more.
    for (auto& entry : allocated_) hand_back(std::move(entry.second));
    for (auto& entry : free_) hand_back(std::move(entry.second));
}

std::string Allocator::place() const {
    return std::string(direction_name(direction_)) + " " + std::to_string(index_) + " '" + tensor_ + "': ";
}

std::byte* Allocator::malloc(std::size_t bytes) {
    if (bytes == 0) throw Error(Errc::allocation, place() + "0 bytes asked for");
    std::unique_lock lock(mutex_);
    if (closed_) throw Error(Errc::closed, place() + "its executor is closed");
    std::unique_ptr<Block> block;
    if (const auto fit = free_.lower_bound(bytes); fit != free_.end() && fit->first - bytes <= bytes / 4) {
        block = std::move(fit->second);
        free_.erase(fit);
    } else {
        block = obtain(lock, bytes, [direction = direction_, index = index_, bytes](EngineContext& context) {
            return context.allocate(direction, index, bytes);
        });
    }
    block->refs = 0;
    block->free_when_idle = false;
    block->of_slot = false;
    return keep(std::move(block));
}

// The base of a block that is handed out from now on. Called with the lock held.
std::byte* Allocator::keep(std::unique_ptr<Block> block) {
    std::byte* const base = block->driver.base;
    try {
        allocated_.emplace(base, std::move(block));
    } catch (const std::bad_alloc&) {
        hand_back(std::move(block));
        throw;
    }
    return base;
}

BlockRef Allocator::lease_slot(SlotKey slot, std::size_t bytes) {
    const auto how = [slot, direction = direction_, index = index_, bytes](EngineContext& context) {
        return context.allocate_slot(slot, direction, index, bytes);
    };
    BlockRef ref = limits_.reuse ? lease(bytes) : lease_once(bytes, how);
    const std::lock_guard lock(mutex_);
    allocated_.at(ref.block().base)->of_slot = ref.of_slot_ = true;
    return ref;
}

BlockRef Allocator::import(std::size_t bytes, DmaBuf buffer) {
    return lease_once(bytes, [direction = direction_, index = index_, bytes, buffer](EngineContext& context) {
        return context.import(direction, index, bytes, buffer);
    });
}

BlockRef Allocator::lease_once(std::size_t bytes, Obtain how) {
    std::unique_lock lock(mutex_);
    if (closed_) throw Error(Errc::closed, place() + "its executor is closed");
    auto block = obtain(lock, bytes, std::move(how));
    block->refs = 1;
    block->free_when_idle = true;
    block->once = true;
    const DriverBlock driver = block->driver;
    keep(std::move(block));
    return {shared_from_this(), driver, false};
}

std::unique_ptr<Allocator::Block> Allocator::obtain(std::unique_lock<std::mutex>& lock, std::size_t bytes,
                                                    Obtain how) {
    reserve(bytes);
    lock.unlock();  // the context's thread may need the lock to finish its run first
    std::unique_ptr<Block> block;
    try {
        block = allocate(bytes, std::move(how));
    } catch (const Error& error) {
        lock.lock();
        counters_.live_bytes -= bytes;
        throw Error(error.code(), place() + error.what());
    } catch (...) {
        lock.lock();
        counters_.live_bytes -= bytes;
        throw;
    }
    lock.lock();
    ++counters_.allocations;
    ++counters_.live_blocks;
    counters_.live_bytes += block->driver.length - bytes;
    counters_.high_water_bytes = std::max(counters_.high_water_bytes, counters_.live_bytes);
    return block;
}

// Count `bytes` against the limit, giving up free blocks first. Called with the lock held.
void Allocator::reserve(std::size_t bytes) {
    const auto exceeds = [&] {
        return counters_.live_bytes > limits_.max_bytes || bytes > limits_.max_bytes - counters_.live_bytes;
    };
    while (exceeds() && !free_.empty()) {
        const auto largest = std::prev(free_.end());
        hand_back(std::move(largest->second));
        free_.erase(largest);
    }
    if (exceeds()) {
        throw Error(Errc::allocation, place() + std::to_string(bytes) + " bytes needed, but " +
                                          std::to_string(counters_.live_bytes) + " of at most " +
                                          std::to_string(limits_.max_bytes) +
                                          " bytes of driver memory are in use");
    }
    counters_.live_bytes += bytes;
}

std::unique_ptr<Allocator::Block> Allocator::allocate(std::size_t bytes, Obtain how) {
    // Shared with the thread, which may come to it after the wait was given up.
    struct Pending {
        std::mutex mutex;
        bool abandoned = false;
        std::unique_ptr<Block> block;
    };
    auto pending = std::make_shared<Pending>();
    auto task = [pending, queue = queue_, direction = direction_, index = index_, bytes,
                 how = std::move(how)](EngineContext& context) {
        // Not over the driver's call, which may hang: who gives up must be able to say so.
        const auto abandoned = [&] {
            const std::lock_guard lock(pending->mutex);
            return pending->abandoned;
        };
        if (abandoned()) return;
        auto block = std::make_unique<Block>();
        block->driver = how(context);
        block->direction = direction;
        block->index = index;
        block->queue = queue;
        queue->block_added();
        if (block->driver.base == nullptr || block->driver.length < bytes) {
            const std::size_t given = block->driver.length;
            block.release()->execute(context);
            throw Error(Errc::allocation,
                        std::to_string(bytes) + " bytes needed, the engine gave " + std::to_string(given));
        }
        const std::lock_guard lock(pending->mutex);
        if (pending->abandoned) {
            block.release()->execute(context);
        } else {
            pending->block = std::move(block);
        }
    };
    try {
        queue_->call(std::move(task), limits_.timeout);
    } catch (...) {
        const std::lock_guard lock(pending->mutex);
        pending->abandoned = true;
        if (pending->block) queue_->post(*pending->block.release());
        throw;
    }
    const std::lock_guard lock(pending->mutex);
    return std::move(pending->block);
}

// Called with the lock held (or from the destructor); only queues, so it cannot deadlock.
void Allocator::hand_back(std::unique_ptr<Block> block) noexcept {
    ++counters_.frees;
    --counters_.live_blocks;
    counters_.live_bytes -= block->driver.length;
    queue_->post(*block.release());
}

void Allocator::free(const void* base) noexcept {
    const std::lock_guard lock(mutex_);
    const auto entry = allocated_.find(base);
    if (entry == allocated_.end()) return;
    entry->second->free_when_idle = true;
    settle(entry);
}

// Retire the block if it was freed and nothing refers to it any more. Called with the lock held.
void Allocator::settle(Allocated::iterator entry) noexcept {
    if (entry->second->refs > 0 || !entry->second->free_when_idle) return;
    auto block = std::move(entry->second);
    allocated_.erase(entry);
    if (closed_ || block->once || !limits_.reuse) {
        hand_back(std::move(block));
    } else {
        const auto length = block->driver.length;
        try {
            free_.emplace(length, std::move(block));
        } catch (const std::bad_alloc&) {
            hand_back(std::move(block));
        }
    }
}

void Allocator::drop_reference(const void* base) noexcept {
    const std::lock_guard lock(mutex_);
    const auto entry = allocated_.find(base);
    --entry->second->refs;
    settle(entry);
}

BlockRef Allocator::find(const void* base) {
    const std::lock_guard lock(mutex_);
    const auto entry = allocated_.find(base);
    if (entry == allocated_.end()) return {};
    ++entry->second->refs;
    return {shared_from_this(), entry->second->driver, entry->second->of_slot};
}

BlockRef Allocator::lease(std::size_t bytes) {
    std::byte* const base = malloc(bytes);
    BlockRef ref = find(base);
    free(base);  // deferred: it is referred to
    return ref;
}

void Allocator::trim() noexcept {
    const std::lock_guard lock(mutex_);
    for (auto& entry : free_) hand_back(std::move(entry.second));
    free_.clear();
}

void Allocator::close() noexcept {
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
    }
    trim();
}

Counters Allocator::counters() const noexcept {
    const std::lock_guard lock(mutex_);
    return counters_;
}

BlockRef::BlockRef(BlockRef&& other) noexcept
    : allocator_(std::move(other.allocator_)),
      block_(std::exchange(other.block_, {})),
      of_slot_(other.of_slot_) {}

BlockRef& BlockRef::operator=(BlockRef&& other) noexcept {
    if (this != &other) {
        reset();
        allocator_ = std::move(other.allocator_);
        block_ = std::exchange(other.block_, {});
        of_slot_ = other.of_slot_;
    }
    return *this;
}

void BlockRef::reset() noexcept {
    if (!allocator_) return;
    const auto allocator = std::move(allocator_);
    allocator->drop_reference(std::exchange(block_, {}).base);
}

}  // namespace pipeline
