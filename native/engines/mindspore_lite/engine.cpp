// The engine: a model for each context, and the devices of a library.
#include "engines/mindspore_lite/engine.hpp"

#include <mutex>

#include "core/error.hpp"
#include "engines/mindspore_lite/context.hpp"
#include "engines/mindspore_lite/device.hpp"

namespace pipeline {
namespace mindspore_lite {
namespace {

class MindSporeLiteEngine final : public Engine {
public:
    explicit MindSporeLiteEngine(const MindSporeLiteOptions& options)
        : options_(options),
          api_(std::make_shared<const Api>(options.library)),
          device_(describe_device(*api_, options.device)),
          first_(std::make_unique<Model>(api_, options_)),
          inputs_(first_->specs(Direction::input)),
          outputs_(first_->specs(Direction::output)),
          images_(make_image_inputs(inputs_, options.image)) {
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
            if (images_[i]) inputs_[i] = images_[i]->slot();
        }
        if (first_->has_run()) first_.reset();
    }

    [[nodiscard]] std::string_view name() const noexcept override { return "mindspore_lite"; }
    [[nodiscard]] std::string device() const override { return device_; }
    [[nodiscard]] std::size_t context_count() const noexcept override { return options_.contexts; }
    [[nodiscard]] const std::vector<TensorSpec>& inputs() const noexcept override { return inputs_; }
    [[nodiscard]] const std::vector<TensorSpec>& outputs() const noexcept override { return outputs_; }

    // A model runs one inference at a time, so every context has its own.
    [[nodiscard]] std::unique_ptr<EngineContext> open_context(std::size_t /*index*/) override {
        std::unique_ptr<Model> model;
        {
            const std::lock_guard lock(mutex_);
            model = std::move(first_);
        }
        if (!model) model = std::make_unique<Model>(api_, options_);
        return mindspore_lite::open_context(std::move(model), images_);
    }

private:
    const MindSporeLiteOptions options_;
    const std::shared_ptr<const Api> api_;
    const std::string device_;
    std::mutex mutex_;
    std::unique_ptr<Model> first_;  // built to read its tensors; the first context takes it
    std::vector<TensorSpec> inputs_;
    std::vector<TensorSpec> outputs_;
    const ImageInputs images_;
};

}  // namespace
}  // namespace mindspore_lite

std::shared_ptr<Engine> open_mindspore_lite(const MindSporeLiteOptions& options) {
    if (options.contexts == 0) throw Error(Errc::config, "contexts is 0, not above 0");
    return std::make_shared<mindspore_lite::MindSporeLiteEngine>(options);
}

Devices list_mindspore_lite_devices(const std::string& library) {
    const mindspore_lite::Api api(library);
    Devices result{std::string(api.family()), {{"CPU", "CPU"}}};
    for (const auto& device : mindspore_lite::nnrt_devices(api)) {
        result.devices.emplace_back("NNRT:" + std::to_string(device.id),
                                    mindspore_lite::nnrt_full_name(device));
    }
    return result;
}

}  // namespace pipeline
