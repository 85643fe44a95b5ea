// A context around another one: its slots hold images, the inner one's blocks what they become.
#include "engines/nnrt/image_inputs.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace pipeline::nnrt {
namespace {

class ImageContext final : public EngineContext {
public:
    ImageContext(std::unique_ptr<EngineContext> inner, const ImageInputs& images,
                 const std::vector<TensorSpec>& model_inputs)
        : inner_(std::move(inner)),
          images_(images),
          model_inputs_(model_inputs),
          inputs_(model_inputs.size()) {}

    DriverBlock allocate(Direction direction, std::size_t index, std::size_t bytes) override {
        if (!converts(direction, index)) return inner_->allocate(direction, index, bytes);
        // At least the image's bytes, which is what will be read.
        const std::size_t length = std::max(bytes, images_[index]->slot().byte_size());
        auto staged = std::make_unique<Staged>();
        staged->image = std::make_unique<std::byte[]>(length);
        staged->model = inner_->allocate(direction, index, model_inputs_[index].byte_size());
        std::byte* const base = staged->image.get();
        return {base, length, staged.release()};
    }

    void release(Direction direction, std::size_t index, DriverBlock block) noexcept override {
        if (!converts(direction, index)) return inner_->release(direction, index, block);
        const std::unique_ptr<Staged> staged(static_cast<Staged*>(block.handle));
        inner_->release(direction, index, staged->model);
    }

    void run(const RunRequest& request) override {
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
            inputs_[i] = request.inputs[i];
            if (!converts(Direction::input, i)) continue;
            inputs_[i] = static_cast<Staged*>(request.inputs[i].handle)->model;
            images_[i]->convert(request.inputs[i].base, inputs_[i].base);
        }
        inner_->run({inputs_, request.outputs, request.probe});
    }

    [[nodiscard]] bool zero_copy(Direction direction, std::size_t index) const override {
        return !converts(direction, index) && inner_->zero_copy(direction, index);
    }

    [[nodiscard]] std::string route(Direction direction, std::size_t index) const override {
        if (!converts(direction, index)) return inner_->route(direction, index);
        return "converted from uint8 into the driver's memory";
    }

private:
    struct Staged {
        std::unique_ptr<std::byte[]> image;
        DriverBlock model;
    };

    [[nodiscard]] bool converts(Direction direction, std::size_t index) const noexcept {
        return direction == Direction::input && images_[index] && images_[index]->converts();
    }

    const std::unique_ptr<EngineContext> inner_;
    const ImageInputs& images_;
    const std::vector<TensorSpec>& model_inputs_;
    std::vector<DriverBlock> inputs_;  // prebuilt, so that a run allocates nothing
};

}  // namespace

std::unique_ptr<EngineContext> with_image_inputs(std::unique_ptr<EngineContext> inner,
                                                 const ImageInputs& images,
                                                 const std::vector<TensorSpec>& model_inputs) {
    const bool any =
        std::ranges::any_of(images, [](const auto& image) { return image && image->converts(); });
    if (!any) return inner;
    return std::make_unique<ImageContext>(std::move(inner), images, model_inputs);
}

}  // namespace pipeline::nnrt
