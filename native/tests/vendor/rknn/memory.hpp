// What the functions on memory share with the ones that only newer runtimes have.
#pragma once

#include "state.hpp"

#define STANDIN_EXPORT extern "C" [[gnu::visibility("default")]]

namespace standin {

// Adds the processor time of its life to that which stands for the device's.
class DeviceTime {
public:
    DeviceTime() noexcept;
    DeviceTime(const DeviceTime&) = delete;
    DeviceTime& operator=(const DeviceTime&) = delete;
    ~DeviceTime();

private:
    std::uint64_t start_;
};

[[nodiscard]] rknn::TensorMem* make_memory(const Call& call, std::uint64_t size, bool cacheable);
int synchronise(const Call& call, rknn::TensorMem* given, std::int32_t mode);

}  // namespace standin
