// What the functions on memory share with the ones that only newer runtimes have.
#pragma once

#include "state.hpp"

#define STANDIN_EXPORT extern "C" [[gnu::visibility("default")]]

namespace standin {

// Adds the processor time of its life to a count.
class CpuTime {
public:
    explicit CpuTime(std::atomic<std::uint64_t>& sum) noexcept;
    CpuTime(const CpuTime&) = delete;
    CpuTime& operator=(const CpuTime&) = delete;
    ~CpuTime();

private:
    std::atomic<std::uint64_t>& sum_;
    std::uint64_t start_;
};

[[nodiscard]] rknn::TensorMem* make_memory(const Call& call, std::uint64_t size, bool cacheable);
int synchronise(const Call& call, rknn::TensorMem* given, std::int32_t mode);

}  // namespace standin
