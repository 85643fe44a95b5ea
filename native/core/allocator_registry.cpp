// The map from a driver's allocator to whatever keeps it usable.
#include "core/allocator_registry.hpp"

#include <string>
#include <utility>

#include "core/error.hpp"

namespace pipeline {
namespace {

[[noreturn]] void fail(std::string_view place, std::string_view what) {
    throw Error(Errc::binding, std::string(place) + (place.empty() ? "" : ": ") + std::string(what));
}

}  // namespace

void AllocatorRegistry::add(const void* key, Owner owner, std::string_view place) {
    if (key == nullptr) fail(place, "a null allocator cannot be registered");
    if (owner == nullptr) fail(place, "an allocator without an owner cannot be registered");
    const std::lock_guard lock(mutex_);
    const auto [entry, added] = entries_.try_emplace(key, owner);
    if (!added && entry->second != owner) fail(place, "the allocator belongs to another owner already");
}

AllocatorRegistry::Owner AllocatorRegistry::require(const void* key, std::string_view place) const {
    if (key == nullptr) fail(place, "the allocator is null");
    const std::lock_guard lock(mutex_);
    const auto entry = entries_.find(key);
    if (entry == entries_.end()) fail(place, "the allocator is unknown: this model never gave it out");
    return entry->second;
}

void AllocatorRegistry::clear() noexcept {
    std::unordered_map<const void*, Owner> dropped;  // owners end outside the lock
    const std::lock_guard lock(mutex_);
    dropped.swap(entries_);
}

}  // namespace pipeline
