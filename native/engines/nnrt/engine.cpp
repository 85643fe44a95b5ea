// The engine: one session shared by its contexts, and the devices of a library.
#include "engines/nnrt/engine.hpp"

#include "core/error.hpp"
#include "engines/nnrt/api.hpp"
#include "engines/nnrt/context.hpp"
#include "engines/nnrt/image_inputs.hpp"
#include "engines/nnrt/session.hpp"

namespace pipeline {
namespace nnrt {
namespace {

class NnrtEngine final : public Engine {
public:
    explicit NnrtEngine(const NnrtOptions& options)
        : session_(options),
          images_(make_image_inputs(session_.tensors.inputs, options.image)),
          inputs_(session_.tensors.inputs) {
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
            if (images_[i]) inputs_[i] = images_[i]->slot();
        }
    }

    [[nodiscard]] std::string_view name() const noexcept override { return "nnrt"; }
    [[nodiscard]] std::string device() const override { return session_.device.describe(); }
    [[nodiscard]] std::size_t context_count() const noexcept override { return session_.options.contexts; }
    [[nodiscard]] const std::vector<TensorSpec>& inputs() const noexcept override { return inputs_; }
    [[nodiscard]] const std::vector<TensorSpec>& outputs() const noexcept override {
        return session_.tensors.outputs;
    }
    [[nodiscard]] std::unique_ptr<EngineContext> open_context(std::size_t /*index*/) override {
        return with_image_inputs(nnrt::open_context(session_), images_, session_.tensors.inputs);
    }

private:
    Session session_;
    const ImageInputs images_;
    std::vector<TensorSpec> inputs_;  // of the slots
};

}  // namespace
}  // namespace nnrt

std::shared_ptr<Engine> open_nnrt(const NnrtOptions& options) {
    if (options.contexts == 0) throw Error(Errc::config, "contexts is 0, not above 0");
    if (options.model.empty() && options.cache_dir.empty())
        throw Error(Errc::config, "nnrt needs a model file or options.cache_dir");
    for (const auto* specs : {&options.inputs, &options.outputs}) {
        for (const auto& spec : *specs) spec.validate();
    }
    return std::make_shared<nnrt::NnrtEngine>(options);
}

Devices list_nnrt_devices(const std::string& library) {
    const nnrt::Api api(library);
    Devices result;
    // The runtime has no call that tells its version.
    result.version = api.v2() ? "API 11+" : "API 9-10";
    for (const auto& device : nnrt::all_devices(api))
        result.devices.emplace_back(std::to_string(device.id), device.describe());
    return result;
}

}  // namespace pipeline
