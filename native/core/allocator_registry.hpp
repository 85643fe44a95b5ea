// The allocators that one model gave out: by identity, kept alive, safe from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace pipeline {

// One registry for each model, so that the end of one model cannot take another's allocators away.
// `key` is what the driver knows an allocator by; `owner` is whatever has to live for the key to
// stay usable, and is held as long as the entry and by everyone who looked it up.
class AllocatorRegistry {
public:
    using Owner = std::shared_ptr<const void>;

    // Once more with the same owner is no error. Throws Errc::binding, naming `place` if given, for no key,
    // no owner, or a key that belongs to somebody else.
    void add(const void* key, Owner owner, std::string_view place = {});
    // The owner of a key. Throws Errc::binding, naming `place` if given, when there is no key or the model
    // never gave it out.
    [[nodiscard]] Owner require(const void* key, std::string_view place = {}) const;
    // Lose all entries; owners that were looked up live on.
    void clear() noexcept;

private:
    mutable std::mutex mutex_;
    std::unordered_map<const void*, Owner> entries_;
};

}  // namespace pipeline
