// Owns the blocks and tensors of one context, runs the model, and finds out what is copied.
#include "engines/mindspore_lite/context.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "engines/mindspore_lite/blocks.hpp"
#include "engines/mindspore_lite/outputs.hpp"

namespace pipeline::mindspore_lite {
namespace {

// What a context's first run looks for: which of our inputs the model's nodes are given by address.
// The interface's callback takes no pointer of its own and comes on any thread, so each watch has a
// callback of its own, and only watched runs have one.
class InputWatch {
public:
    InputWatch(const Api& api, std::span<const Handle> inputs, std::vector<bool>& seen)
        : api_(api), seen_(seen) {
        for (const Handle input : inputs) data_.push_back(api.TensorGetData(input));
        for (std::size_t i = 0; i < places.size() && place_ == nullptr; ++i) {
            const std::unique_lock lock(places[i].mutex, std::try_to_lock);
            if (!lock || places[i].watch != nullptr) continue;
            place_ = &places[i];
            place_->watch = this;
            callback_ = callbacks[i];
        }
    }
    InputWatch(const InputWatch&) = delete;
    InputWatch& operator=(const InputWatch&) = delete;
    ~InputWatch() {
        if (place_ == nullptr) return;
        const std::lock_guard lock(place_->mutex);
        place_->watch = nullptr;
    }

    // Null when there are too many watches: others hang.
    [[nodiscard]] KernelCallBack callback() const noexcept { return callback_; }

private:
    struct Place {
        std::mutex mutex;
        InputWatch* watch = nullptr;
    };
    static std::array<Place, 16> places;

    template <std::size_t I>
    static bool node(TensorHandleArray inputs, TensorHandleArray /*outputs*/, CallBackParam /*node*/) {
        const std::lock_guard lock(places[I].mutex);
        if (places[I].watch != nullptr && inputs.handle_list != nullptr) places[I].watch->look(inputs);
        return true;
    }
    template <std::size_t... I>
    static constexpr std::array<KernelCallBack, sizeof...(I)> all(std::index_sequence<I...> /*unused*/) {
        return {&node<I>...};
    }
    static const std::array<KernelCallBack, 16> callbacks;

    void look(const TensorHandleArray& inputs) {
        for (std::size_t k = 0; k < inputs.handle_num; ++k) {
            const void* const data = api_.TensorGetData(inputs.handle_list[k]);
            for (std::size_t i = 0; data != nullptr && i < data_.size(); ++i) {
                if (data == data_[i]) seen_[i] = true;
            }
        }
    }

    const Api& api_;
    std::vector<bool>& seen_;
    std::vector<const void*> data_;
    Place* place_ = nullptr;
    KernelCallBack callback_ = nullptr;
};

std::array<InputWatch::Place, 16> InputWatch::places;
const std::array<KernelCallBack, 16> InputWatch::callbacks = all(std::make_index_sequence<16>());

class Context final : public EngineContext {
public:
    Context(std::unique_ptr<Model> model, ImageInputs images)
        : model_(std::move(model)), api_(model_->api()), images_(std::move(images)), outputs_(*model_) {
        for (std::size_t i = 0; i < images_.size(); ++i) {
            Tensor staging;
            if (images_[i] && images_[i]->converts()) {
                staging = model_->make_own_tensor(Direction::input, i);
            }
            staging_.push_back(std::move(staging));
        }
        handles_.resize(staging_.size());
        seen_.assign(staging_.size(), false);
    }

    ~Context() override {
        // First what has memory of the model's allocators, then the model, then what it was lent.
        blocks_.clear();
        staging_.clear();
        model_.reset();
    }

    DriverBlock allocate(Direction direction, std::size_t index, std::size_t bytes) override {
        const bool staged = is_staged(direction, index);
        const std::size_t given =
            staged ? images_[index]->slot().byte_size() : model_->specs(direction).at(index).byte_size();
        if (bytes > given) {
            throw Error(Errc::allocation, std::to_string(bytes) + " bytes asked for, MindSpore Lite gives " +
                                              std::to_string(given));
        }
        auto block = std::make_unique<Block>();
        block->direction = direction;
        block->index = index;
        std::byte* base = nullptr;
        if (staged) {
            block->host = host_memory(given);
            base = block->host.get();
        } else {
            block->tensor = model_->make_tensor(direction, index);
            base = block->tensor.data;
        }
        Block* const handle = block.get();
        blocks_.emplace(base, std::move(block));
        return {base, given, handle};
    }

    void release(Direction /*direction*/, std::size_t /*index*/, DriverBlock block) noexcept override {
        blocks_.erase(block.base);
    }

    void run(const RunRequest& request) override {
        // Before anything is touched: the library takes any pointer.
        check(Direction::input, request.inputs);
        check(Direction::output, request.outputs);
        for (std::size_t i = 0; i < handles_.size(); ++i) {
            if (staging_[i].data == nullptr) {
                handles_[i] = tensor_of(request.inputs[i]);
            } else {
                images_[i]->convert(request.inputs[i].base, staging_[i].data);
                handles_[i] = staging_[i].handle.get();
            }
        }
        if (!outputs_.chosen()) watch_inputs();  // the first run
        outputs_.run(handles_, request.outputs);
    }

    [[nodiscard]] bool zero_copy(Direction direction, std::size_t index) const override {
        if (direction == Direction::input) {
            return !is_staged(direction, index) && (seen_.at(index) || shared(direction, index));
        }
        return outputs_.in_place(index) && (!outputs_.user_outputs() || shared(direction, index));
    }

    [[nodiscard]] std::string route(Direction direction, std::size_t index) const override {
        const bool bound = zero_copy(direction, index);
        if (direction == Direction::input) {
            if (is_staged(direction, index)) return "converted from uint8 into the model's own type";
            if (!bound) return "copied by the library, which has another allocator";
            return shared(direction, index) ? "zero-copy, memory of the model's allocator"
                                            : "zero-copy, read in place";
        }
        if (outputs_.user_outputs()) {
            return bound ? "zero-copy, memory of the model's allocator" : "copied by the library";
        }
        return bound ? "zero-copy, external memory of the model's output" : "copied by the engine";
    }

private:
    [[nodiscard]] bool is_staged(Direction direction, std::size_t index) const {
        return direction == Direction::input && staging_.at(index).data != nullptr;
    }

    // Only the base of a live block of this very tensor.
    void check(Direction direction, std::span<const DriverBlock> blocks) const {
        const std::size_t count = model_->tensors(direction).size();
        if (blocks.size() != count) {
            throw Error(Errc::run, std::string(direction_name(direction)) + "s: the model has " +
                                       std::to_string(count) + ", the run " + std::to_string(blocks.size()));
        }
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            const auto found = blocks_.find(blocks[i].base);
            const char* wrong = nullptr;
            if (blocks[i].base == nullptr) {
                wrong = "no memory is bound";
            } else if (found == blocks_.end() || found->second.get() != blocks[i].handle) {
                wrong = "the memory bound is no block of this context";
            } else if (found->second->direction != direction || found->second->index != i) {
                wrong = "the memory bound is another tensor's";
            }
            if (wrong != nullptr) throw Error(Errc::run, model_->label(direction, i) + ": " + wrong);
        }
    }

    // Whether every live block of the tensor has the allocator of the model's own tensor.
    [[nodiscard]] bool shared(Direction direction, std::size_t index) const {
        bool any = false;
        for (const auto& entry : blocks_) {
            const Block& block = *entry.second;
            if (block.direction != direction || block.index != index) continue;
            if (!model_->same_allocator(block.tensor.handle.get(), direction, index)) return false;
            any = true;
        }
        return any;
    }

    // Without a shared allocator nothing but a look at the nodes tells whether inputs are copied. A
    // library or device that calls nobody back is taken to copy; if the run fails, the real one will.
    void watch_inputs() {
        bool known = true;
        for (std::size_t i = 0; i < handles_.size(); ++i) {
            known = known && (is_staged(Direction::input, i) || shared(Direction::input, i));
        }
        if (known) return;
        const InputWatch watch(api_, handles_, seen_);
        if (watch.callback() == nullptr) return;
        TensorHandleArray outputs{0, nullptr};
        static_cast<void>(api_.ModelPredict(model_->handle(), {handles_.size(), handles_.data()}, &outputs,
                                            watch.callback(), nullptr));
    }

    std::unique_ptr<Model> model_;
    const Api& api_;
    const ImageInputs images_;
    Outputs outputs_;
    std::vector<Tensor> staging_;  // of the model's own type, for inputs whose slots hold images
    Blocks blocks_;
    std::vector<Handle> handles_;  // of a run; prepared once, so that a run allocates nothing
    std::vector<bool> seen_;
};

}  // namespace

std::unique_ptr<EngineContext> open_context(std::unique_ptr<Model> model, ImageInputs images) {
    return std::make_unique<Context>(std::move(model), std::move(images));
}

}  // namespace pipeline::mindspore_lite
