// A model on a device: what it needs to be opened, and what is known of its tensors.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "engines/nnrt/api.hpp"
#include "engines/nnrt/engine.hpp"

namespace pipeline::nnrt {

struct Device {
    std::size_t id = 0;
    std::string name;
    OH_NN_DeviceType type = OH_NN_OTHERS;

    [[nodiscard]] std::string describe() const;  // "Kirin NPU (accelerator)"
};

[[nodiscard]] std::vector<Device> all_devices(const Api& api);
// By id, else by name, else the first of a type. Throws Errc::device listing what there is.
[[nodiscard]] Device find_device(const Api& api, const std::string& wanted);

[[nodiscard]] std::string tensor_place(const TensorSpec& spec, Direction direction, std::size_t index);

struct Tensors {
    std::vector<TensorSpec> inputs;
    std::vector<TensorSpec> outputs;
    std::vector<bool> open_outputs;  // whether the model leaves an output's size to the run

    [[nodiscard]] const std::vector<TensorSpec>& specs(Direction direction) const noexcept {
        return direction == Direction::input ? inputs : outputs;
    }
};

// Throws Errc::model naming the tensor that cannot be used, or Errc::config for a wrong declaration.
[[nodiscard]] Tensors read_tensors(const Api& api, const NnrtOptions& options, const OH_NNExecutor* executor);

// Shared by the contexts of a model. Each has an executor of its own, compiled by itself, so that
// nothing is shared between their threads that the runtime would have to lock.
class Session {
public:
    explicit Session(const NnrtOptions& options);

    // Compiles the model. Throws Errc::model or device when the device refuses it.
    [[nodiscard]] OwnedExecutor open_executor() const;
    // The one that the tensors were read from, once; then a new one.
    [[nodiscard]] OwnedExecutor take_executor();
    // The same for a context whose executor was lost. Throws Errc::device whatever goes wrong.
    [[nodiscard]] OwnedExecutor reopen_executor() const;

    const NnrtOptions options;
    const Api api;
    const Device device;
    Tensors tensors;

private:
    [[nodiscard]] OwnedCompilation compile() const;
    [[nodiscard]] OH_NNCompilation* construct() const;
    void configure(OH_NNCompilation* compilation) const;

    std::mutex mutex_;
    OwnedExecutor first_;
};

}  // namespace pipeline::nnrt
