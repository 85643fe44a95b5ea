// Driver memory of one (executor context, direction, tensor index).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "core/context_thread.hpp"
#include "core/engine.hpp"

namespace pipeline {

struct Counters {
    std::uint64_t allocations = 0;  // times the driver gave memory
    std::uint64_t frees = 0;        // times it was handed back
    std::size_t live_blocks = 0;
    std::size_t live_bytes = 0;
    std::size_t high_water_bytes = 0;

    Counters& operator+=(const Counters& other) noexcept;
};

class BlockRef;

// Free blocks are kept and reused by best fit; allocated ones are known by their exact base
// pointer. A block that is referred to is never handed out again. Safe from any thread.
class Allocator : public std::enable_shared_from_this<Allocator> {
public:
    struct Limits {
        std::size_t max_bytes;             // of driver memory, free blocks included
        std::chrono::nanoseconds timeout;  // for the context's thread to answer
        bool reuse = true;                 // keep what is free; else it goes back to the driver
    };

    Allocator(std::shared_ptr<ContextQueue> queue, Direction direction, std::size_t index, std::string tensor,
              Limits limits);
    ~Allocator();
    Allocator(const Allocator&) = delete;
    Allocator& operator=(const Allocator&) = delete;

    // Base pointer of a block of at least `bytes`, with reference count 0: the smallest free block
    // that wastes no more than a quarter, else a new one. Throws Errc::allocation naming the tensor.
    [[nodiscard]] std::byte* malloc(std::size_t bytes);
    // Back to the free list, or as soon as the last reference is gone. Unknown pointers: no-op.
    void free(const void* base) noexcept;

    // A reference to the block with exactly this base, or an empty one.
    [[nodiscard]] BlockRef find(const void* base);
    // A block that goes back to the free list with its last reference.
    [[nodiscard]] BlockRef lease(std::size_t bytes);
    // The same for a slot, and known as such.
    [[nodiscard]] BlockRef lease_slot(SlotKey slot, std::size_t bytes);
    // A block in a dma-buf, let go of with its last reference. Throws what the engine throws.
    [[nodiscard]] BlockRef import(std::size_t bytes, DmaBuf buffer);

    void trim() noexcept;   // hand free blocks back to the driver
    void close() noexcept;  // trim, and from now on hand back each block that is freed
    [[nodiscard]] Counters counters() const noexcept;
    [[nodiscard]] Direction direction() const noexcept { return direction_; }
    [[nodiscard]] std::size_t index() const noexcept { return index_; }

private:
    friend class BlockRef;
    struct Block;
    using Allocated = std::unordered_map<const void*, std::unique_ptr<Block>>;

    void drop_reference(const void* base) noexcept;
    void hand_back(std::unique_ptr<Block> block) noexcept;
    void settle(Allocated::iterator entry) noexcept;
    std::byte* keep(std::unique_ptr<Block> block);
    void reserve(std::size_t bytes);
    using Obtain = std::function<DriverBlock(EngineContext&)>;
    // From the driver, counted. Called with the lock held, which it gives up meanwhile.
    std::unique_ptr<Block> obtain(std::unique_lock<std::mutex>& lock, std::size_t bytes, Obtain how);
    std::unique_ptr<Block> allocate(std::size_t bytes, Obtain how);
    // A block that goes back to the driver with its last reference.
    [[nodiscard]] BlockRef lease_once(std::size_t bytes, Obtain how);
    [[nodiscard]] std::string place() const;  // "input 0 'image': "

    const std::shared_ptr<ContextQueue> queue_;
    const Direction direction_;
    const std::size_t index_;
    const std::string tensor_;
    const Limits limits_;

    mutable std::mutex mutex_;
    std::multimap<std::size_t, std::unique_ptr<Block>> free_;
    Allocated allocated_;
    Counters counters_;
    bool closed_ = false;
};

// One reference to an allocated block; keeps the allocator, and so the context, alive.
class BlockRef {
public:
    BlockRef() = default;
    BlockRef(BlockRef&& other) noexcept;
    BlockRef& operator=(BlockRef&& other) noexcept;
    BlockRef(const BlockRef&) = delete;
    BlockRef& operator=(const BlockRef&) = delete;
    ~BlockRef() { reset(); }

    [[nodiscard]] explicit operator bool() const noexcept { return allocator_ != nullptr; }
    [[nodiscard]] const DriverBlock& block() const noexcept { return block_; }
    // True for a block of a slot.
    [[nodiscard]] bool of_slot() const noexcept { return of_slot_; }
    void reset() noexcept;

private:
    friend class Allocator;
    BlockRef(std::shared_ptr<Allocator> allocator, DriverBlock block, bool of_slot) noexcept
        : allocator_(std::move(allocator)), block_(block), of_slot_(of_slot) {}

    std::shared_ptr<Allocator> allocator_;
    DriverBlock block_;
    bool of_slot_ = false;
};

}  // namespace pipeline
