// Tries once where a library writes outputs, and does each run by what was found.
#include "engines/mindspore_lite/outputs.hpp"

#include <algorithm>
#include <utility>

namespace pipeline::mindspore_lite {
namespace {

bool filled(const std::byte* base, std::size_t bytes, std::byte value) {
    return std::all_of(base, base + bytes, [value](std::byte byte) { return byte == value; });
}

}  // namespace

// After every run, however it ends, the model refers to no slot.
class Outputs::Unbind {
public:
    explicit Unbind(const Outputs& outputs) noexcept : outputs_(&outputs) {}
    Unbind(const Unbind&) = delete;
    Unbind& operator=(const Unbind&) = delete;
    ~Unbind() {
        if (outputs_ != nullptr) static_cast<void>(outputs_->unbind());  // the run failed, which is told
    }
    // Throws Errc::run when the library does not let go.
    void now() {
        if (const auto error = std::exchange(outputs_, nullptr)->unbind()) throw Error(*error);
    }

private:
    const Outputs* outputs_;
};

Outputs::Outputs(Model& model) : model_(model), api_(model.api()) {
    const std::size_t count = model.tensors(Direction::output).size();
    handles_.resize(count);
    in_place_.assign(count, true);
    for (std::size_t i = 0; i < count; ++i) parking_.emplace_back(nullptr, std::free);
}

void Outputs::run(std::span<Handle> inputs, std::span<const DriverBlock> blocks) {
    if (!chosen_) {
        choose(inputs, blocks);
    } else if (user_outputs_) {
        static_cast<void>(run_with_user_outputs(inputs, blocks));
    } else {
        run_with_own_outputs(inputs, blocks);
    }
}

void Outputs::choose(std::span<Handle> inputs, std::span<const DriverBlock> blocks) {
    user_outputs_ = honoured(inputs, blocks);
    if (!user_outputs_) {
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            try_external(i);
            check_own(i, blocks[i]);
        }
        run_with_own_outputs(inputs, blocks);
    }
    chosen_ = true;
}

// A library may overwrite the array of ours with its own tensors, or leave it alone and ignore it
// all the same, both with success; only a pattern in the memory tells. Or it refuses them with an
// error, which is told apart from other failures by the run without them that follows.
bool Outputs::honoured(std::span<Handle> inputs, std::span<const DriverBlock> blocks) {
    std::vector<bool> written(blocks.size(), false);
    // A result may look like one pattern by chance, but not like both.
    for (const auto pattern : {std::byte{0xA5}, std::byte{0x5A}}) {
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            std::memset(blocks[i].base, std::to_integer<int>(pattern), bytes(i));
        }
        try {
            if (!run_with_user_outputs(inputs, blocks)) return false;
        } catch (const Error&) {
            return false;
        }
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            if (!filled(blocks[i].base, bytes(i), pattern)) written[i] = true;
        }
        if (std::ranges::find(written, false) == written.end()) return true;
    }
    return false;
}

void Outputs::try_external(std::size_t index) {
    if (api_.TensorSetUserData == nullptr || parking_[index]) return;
    HostMemory parking = host_memory(bytes(index));
    const Handle tensor = model_.tensors(Direction::output)[index];
    if (api_.TensorSetUserData(tensor, parking.get(), bytes(index)) == success) {
        parking_[index] = std::move(parking);
        model_.forget_allocator(index);
    }
}

// A library that refused our tensors may have bound one before. Where that cannot be undone, each run
// without them would write to this slot.
void Outputs::check_own(std::size_t index, const DriverBlock& block) const {
    if (api_.TensorGetData(model_.tensors(Direction::output)[index]) != block.base) return;
    throw Error(Errc::run, model_.label(Direction::output, index) +
                               " still points to the slot after MindSpore Lite refused it, and cannot be "
                               "pointed elsewhere");
}

std::optional<Error> Outputs::unbind() const {
    const auto& tensors = model_.tensors(Direction::output);
    std::optional<Error> first;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        std::byte* const parking = parking_[i].get();
        if (parking == nullptr) continue;
        const Status status = api_.TensorSetUserData(tensors[i], parking, bytes(i));
        if (status == success || first) continue;
        first.emplace(Errc::run,
                      model_.label(Direction::output, i) +
                          " still points to the slot, unbinding it failed: " + status_text(status));
    }
    return first;
}

// Whether the library left the array as it was, which it does when it uses it.
bool Outputs::run_with_user_outputs(std::span<Handle> inputs, std::span<const DriverBlock> blocks) {
    std::ranges::transform(blocks, handles_.begin(), &tensor_of);
    TensorHandleArray outputs{handles_.size(), handles_.data()};
    predict(inputs, outputs);
    bool used = true;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        const Handle tensor = answer(outputs, i);
        in_place_[i] = tensor == tensor_of(blocks[i]);
        if (in_place_[i]) continue;
        used = false;
        take(tensor, i, blocks[i]);
    }
    return used;
}

void Outputs::run_with_own_outputs(std::span<Handle> inputs, std::span<const DriverBlock> blocks) {
    const auto& tensors = model_.tensors(Direction::output);
    Unbind unbind(*this);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (!parking_[i]) continue;
        api_.check(api_.TensorSetUserData(tensors[i], blocks[i].base, bytes(i)), Errc::run,
                   model_.label(Direction::output, i) + " cannot be bound");
    }
    // Zeroed: the library reads the count to see whether the caller gave outputs.
    TensorHandleArray outputs{0, nullptr};
    predict(inputs, outputs);
    for (std::size_t i = 0; i < blocks.size(); ++i) take(answer(outputs, i), i, blocks[i]);
    unbind.now();
}

void Outputs::predict(std::span<Handle> inputs, TensorHandleArray& outputs) const {
    const Status status =
        api_.ModelPredict(model_.handle(), {inputs.size(), inputs.data()}, &outputs, nullptr, nullptr);
    api_.check(status, Errc::run, "MindSpore Lite failed to run the model");
}

Handle Outputs::answer(const TensorHandleArray& outputs, std::size_t index) const {
    const std::size_t count = handles_.size();
    if (outputs.handle_num != count || outputs.handle_list == nullptr ||
        outputs.handle_list[index] == nullptr) {
        throw Error(Errc::run, model_.label(Direction::output, index) + ": MindSpore Lite gave " +
                                   std::to_string(outputs.handle_num) + " outputs of " +
                                   std::to_string(count) + ", or a null one");
    }
    return outputs.handle_list[index];
}

// Copy an output that is elsewhere than it was told to be.
void Outputs::take(Handle tensor, std::size_t index, const DriverBlock& block) {
    const void* const data = api_.TensorGetData(tensor);
    const std::size_t size = api_.TensorGetDataSize(tensor);
    if (data == nullptr || size != bytes(index)) {
        throw Error(Errc::run, model_.label(Direction::output, index) + ": " + std::to_string(bytes(index)) +
                                   " bytes needed, MindSpore Lite gave " +
                                   (data == nullptr ? "none" : std::to_string(size)));
    }
    in_place_[index] = data == block.base;
    if (!in_place_[index]) std::memcpy(block.base, data, size);
}

}  // namespace pipeline::mindspore_lite
