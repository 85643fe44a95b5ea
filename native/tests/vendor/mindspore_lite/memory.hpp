// The stand-in's driver memory, what it counts, and what it does not forgive.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace standin {

// Figures by name, for the tests: standin_mslite_count("violations").
void count(const std::string& name, std::int64_t by = 1);
[[nodiscard]] std::int64_t counted(const std::string& name);
// A rule of the interface that the caller broke: counted and told on stderr.
void violation(const std::string& what);
// Text of a switch from the environment, STANDIN_MSLITE_<name>.
[[nodiscard]] std::string setting(const char* name);
// Whether the comma-separated list of a switch has this word, or is "all".
[[nodiscard]] bool listed(const char* name, const std::string& word);

// Driver memory of one tensor of one model. Blocks have guards around them and are poisoned when
// free, so that a write past the ends or after the end is seen.
class Allocator {
public:
    Allocator();
    ~Allocator();
    Allocator(const Allocator&) = delete;
    Allocator& operator=(const Allocator&) = delete;

    [[nodiscard]] void* allocate(std::size_t bytes);
    void free(void* base);
    [[nodiscard]] std::size_t live() const;
    // What is wrong with memory that is said to be this allocator's, or nothing.
    [[nodiscard]] std::string trouble(const void* data, std::size_t bytes) const;

private:
    struct Block {
        std::unique_ptr<unsigned char[]> whole;
        std::size_t bytes = 0;
        bool live = false;
    };

    void check_guards(const Block& block) const;

    mutable std::mutex mutex_;
    std::map<const unsigned char*, Block> blocks_;
};

}  // namespace standin
