#include "memory.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace standin {
namespace {

constexpr std::size_t guard = 64;
constexpr unsigned char guard_value = 0xC7;
constexpr unsigned char poison = 0xDD;

std::mutex counts_mutex;
std::map<std::string, std::int64_t>& counts() {
    static auto* const all = new std::map<std::string, std::int64_t>;  // outlives every thread
    return *all;
}

std::string& last_violation() {
    static auto* const text = new std::string;
    return *text;
}

}  // namespace

void count(const std::string& name, std::int64_t by) {
    const std::lock_guard lock(counts_mutex);
    counts()[name] += by;
}

std::int64_t counted(const std::string& name) {
    const std::lock_guard lock(counts_mutex);
    const auto found = counts().find(name);
    return found != counts().end() ? found->second : 0;
}

void violation(const std::string& what) {
    count("violations");
    {
        const std::lock_guard lock(counts_mutex);
        last_violation() = what;
    }
    std::fprintf(stderr, "MindSpore Lite stand-in: %s\n", what.c_str());
}

std::string setting(const char* name) {
    const char* const value = std::getenv((std::string("STANDIN_MSLITE_") + name).c_str());
    return value != nullptr ? value : "";
}

bool listed(const char* name, const std::string& word) {
    std::istringstream words(setting(name));
    for (std::string each; std::getline(words, each, ',');) {
        if (each == word || each == "all") return true;
    }
    return false;
}

Allocator::Allocator() { count("allocators_live"); }

Allocator::~Allocator() {
    count("allocators_live", -1);
    for (const auto& [base, block] : blocks_) {
        check_guards(block);
        if (block.live) violation("an allocator ends while one of its blocks is in use");
        count("driver_frees");
    }
}

void Allocator::check_guards(const Block& block) const {
    const unsigned char* const begin = block.whole.get();
    const auto intact = [](const unsigned char* at) {
        return std::all_of(at, at + guard, [](unsigned char value) { return value == guard_value; });
    };
    if (!intact(begin) || !intact(begin + guard + block.bytes)) {
        violation("somebody wrote past the ends of a block");
    }
}

void* Allocator::allocate(std::size_t bytes) {
    const std::string limit = setting("NO_MEMORY");
    if (!limit.empty() && counted("driver_allocations") >= std::stol(limit)) return nullptr;
    const std::lock_guard lock(mutex_);
    for (auto& [base, block] : blocks_) {
        if (block.live || block.bytes != bytes) continue;
        block.live = true;
        count("blocks_live");
        return const_cast<unsigned char*>(base);
    }
    count("driver_allocations");
    Block block{std::make_unique<unsigned char[]>(bytes + 2 * guard), bytes, true};
    std::memset(block.whole.get(), guard_value, guard);
    std::memset(block.whole.get() + guard + bytes, guard_value, guard);
    unsigned char* const base = block.whole.get() + guard;
    blocks_.emplace(base, std::move(block));
    count("blocks_live");
    return base;
}

void Allocator::free(void* base) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(static_cast<unsigned char*>(base));
    if (found == blocks_.end() || !found->second.live) {
        violation("memory is freed that is no block in use of this allocator");
        return;
    }
    check_guards(found->second);
    std::memset(base, poison, found->second.bytes);
    found->second.live = false;
    count("blocks_live", -1);
}

std::size_t Allocator::live() const {
    const std::lock_guard lock(mutex_);
    const auto used =
        std::count_if(blocks_.begin(), blocks_.end(), [](const auto& entry) { return entry.second.live; });
    return static_cast<std::size_t>(used);
}

std::string Allocator::trouble(const void* data, std::size_t bytes) const {
    const std::lock_guard lock(mutex_);
    const auto* const at = static_cast<const unsigned char*>(data);
    const auto found = blocks_.find(at);
    if (found == blocks_.end()) {
        for (const auto& [base, block] : blocks_) {
            if (at > base && at < base + block.bytes) return "a pointer into a block, not its base";
        }
        return "a foreign pointer";
    }
    if (!found->second.live) return "a block that was freed";
    if (found->second.bytes < bytes) return "too small a block";
    check_guards(found->second);
    return "";
}

}  // namespace standin

extern "C" __attribute__((visibility("default"))) std::int64_t standin_mslite_count(const char* name) {
    return standin::counted(name);
}

extern "C" __attribute__((visibility("default"))) const char* standin_mslite_last_violation() {
    const std::lock_guard lock(standin::counts_mutex);
    return standin::last_violation().c_str();
}

// What is alive stays counted.
extern "C" __attribute__((visibility("default"))) void standin_mslite_reset() {
    const std::lock_guard lock(standin::counts_mutex);
    std::erase_if(standin::counts(), [](const auto& entry) { return !entry.first.ends_with("_live"); });
}
