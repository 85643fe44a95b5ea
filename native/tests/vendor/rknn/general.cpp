// The general functions, which copy in and out of the library's own memory.
#include <cstdlib>
#include <cstring>

#include "memory.hpp"

namespace standin {

namespace {

namespace status = rknn::status;
namespace format = rknn::tensor_format;

// The library's own memory for one shape of the model.
void make_stores(ContextState& context) {
    const auto& model = context.model();
    context.input_store.resize(model.inputs.size());
    context.output_store.resize(model.outputs.size());
    for (std::size_t i = 0; i < model.inputs.size(); ++i) {
        context.input_store[i].resize(model.inputs[i].layout(*context.shape).bytes);
    }
    for (std::size_t i = 0; i < model.outputs.size(); ++i) {
        context.output_store[i].resize(model.outputs[i].layout(*context.shape).bytes);
    }
}

// Dense rows of bytes into padded ones.
void copy_rows(const Layout& layout, const void* from, std::uint8_t* to) {
    const std::size_t row = layout.extent.w * layout.extent.c;
    const auto* data = static_cast<const std::uint8_t*>(from);
    for (std::size_t i = 0; i < layout.extent.n * layout.extent.h; ++i) {
        std::memcpy(to + i * layout.columns * layout.extent.c, data + i * row, row);
    }
}

int set_input(const Call& call, const rknn::Input& input) {
    auto& context = call.context();
    const auto shape = *context.shape;
    if (input.index >= context.model().inputs.size() || input.buf == nullptr) {
        return call.misuse(status::input_invalid, "no such input, or no buffer");
    }
    const auto& tensor = context.model().inputs[input.index];
    const Bound store{context.input_store[input.index].data(), tensor.layout(shape)};
    const bool flat = tensor.shapes[shape].size() != 4;
    const std::size_t needed = input.pass_through != 0
                                   ? store.layout.bytes
                                   : tensor.extent(shape).elements() * element_size(input.type);
    if (input.pass_through == 0 && element_size(input.type) == 0) {
        return call.misuse(status::input_invalid, tensor.name + ": a type that it cannot have");
    }
    if (!flat && input.pass_through == 0 && input.fmt != format::nhwc && input.fmt != format::nchw) {
        return call.misuse(status::input_invalid, tensor.name + ": neither NHWC nor NCHW");
    }
    if (input.size != needed) {
        return call.misuse(status::input_invalid, tensor.name + ": " + std::to_string(input.size) +
                                                      " bytes where " + std::to_string(needed) +
                                                      " are needed");
    }
    // As the vendor's library does, bytes of an image are only copied: the device normalises them.
    const bool bytes = input.pass_through == 0 && tensor.is_image(shape) && input.fmt == format::nhwc &&
                       input.type == rknn::tensor_type::uint8 && store.layout.fmt == format::nhwc;
    context.bytes_given[input.index] = bytes;
    if (input.pass_through != 0) {
        std::memcpy(store.data, input.buf, needed);
    } else if (bytes) {
        copy_rows(store.layout, input.buf, store.data);
    } else {
        store_input(tensor, shape, input.buf, flat ? format::undefined : input.fmt, input.type, store);
    }
    context.given[input.index] = true;
    ++counters().copies;
    counters().copied_bytes += needed;
    return status::success;
}

int set_inputs(const Call& call, std::uint32_t count, const rknn::Input* inputs) {
    auto& context = call.context();
    if (inputs == nullptr || count == 0 || count > context.model().inputs.size()) {
        return call.misuse(status::input_invalid, "as many inputs as the model has are needed");
    }
    if (context.mode == Mode::zero_copy) {
        return call.misuse(status::fail, "memory is bound to the context; modes are not mixed");
    }
    if (!context.flushes(true)) {
        return call.misuse(status::fail, "never with the flag that turns the input cache's flush off");
    }
    if (!context.shape) return call.misuse(status::param_invalid, "the input shapes are not yet set");
    context.mode = Mode::general;
    make_stores(context);
    for (std::uint32_t i = 0; i < count; ++i) {
        if (const int code = set_input(call, inputs[i]); code != status::success) return code;
    }
    return status::success;
}

// Fills one output's buffer, the caller's or a new one.
int get_output(const Call& call, rknn::Output& output) {
    auto& context = call.context();
    const auto& tensor = context.model().outputs[output.index];
    const Bound store{context.output_store[output.index].data(), tensor.layout(*context.shape)};
    const std::size_t bytes = tensor.extent(*context.shape).elements() *
                              (output.want_float != 0 ? sizeof(float) : element_size(tensor.type));
    if (output.is_prealloc != 0 && (output.buf == nullptr || output.size != bytes)) {
        return call.misuse(status::output_invalid, tensor.name + ": a buffer of " +
                                                       std::to_string(output.size) + " bytes where " +
                                                       std::to_string(bytes) + " are needed");
    }
    const bool moved = context.switches->move_output.next();
    if (output.is_prealloc == 0 || moved) {
        output.buf = std::malloc(bytes);
        output.size = static_cast<std::uint32_t>(bytes);
        context.fetched[output.buf] = output.index;
        ++counters().live_outputs;
    }
    fetch_output(tensor, store, output.want_float != 0, output.buf);
    ++counters().copies;
    counters().copied_bytes += bytes;
    return status::success;
}

int get_outputs(const Call& call, std::uint32_t count, rknn::Output* outputs, rknn::OutputExtend* extend) {
    auto& context = call.context();
    const auto& model = context.model();
    if (outputs == nullptr || count == 0 || count > model.outputs.size()) {
        return call.misuse(status::output_invalid, "as many outputs as the model has are needed");
    }
    if (context.mode != Mode::general) {
        return call.misuse(status::fail, "only after rknn_inputs_set; modes are not mixed");
    }
    if (!context.flushes(false)) {
        return call.misuse(status::fail, "never with the flag that turns the output cache's flush off");
    }
    if (!context.ran) return call.misuse(status::fail, "nothing ran");
    if (!context.fetched.empty()) {
        return call.misuse(status::output_invalid, "the outputs before these are not yet released");
    }
    for (std::uint32_t i = 0; i < count; ++i) {
        if (outputs[i].index >= model.outputs.size()) {
            return call.misuse(status::output_invalid,
                               "there is no output " + std::to_string(outputs[i].index));
        }
    }
    for (std::uint32_t i = 0; i < count; ++i) {
        if (const int code = get_output(call, outputs[i]); code != status::success) return code;
    }
    if (extend != nullptr) extend->frame_id = context.frames - 1;
    return status::success;
}

int release_outputs(const Call& call, std::uint32_t count, const rknn::Output* outputs) {
    auto& context = call.context();
    if (outputs == nullptr || count > context.model().outputs.size()) {
        return call.misuse(status::output_invalid, "as many outputs as were got are needed");
    }
    for (std::uint32_t i = 0; i < count; ++i) {
        const auto found = context.fetched.find(outputs[i].buf);
        if (found != context.fetched.end()) {
            std::free(found->first);
            context.fetched.erase(found);
            --counters().live_outputs;
        } else if (outputs[i].is_prealloc == 0) {
            return call.misuse(status::output_invalid, "a buffer that the library did not hand out");
        }
    }
    return status::success;
}

}  // namespace

}  // namespace standin

using namespace standin;

STANDIN_EXPORT int rknn_inputs_set(rknn::Context handle, std::uint32_t count, rknn::Input* inputs) {
    const CpuTime time(counters().copy_cpu_ns);
    const Call call("rknn_inputs_set", handle, Uses::memory);
    return call.refused() ? call.code() : set_inputs(call, count, inputs);
}

STANDIN_EXPORT int rknn_outputs_get(rknn::Context handle, std::uint32_t count, rknn::Output* outputs,
                                    rknn::OutputExtend* extend) {
    const CpuTime time(counters().copy_cpu_ns);
    const Call call("rknn_outputs_get", handle, Uses::memory);
    return call.refused() ? call.code() : get_outputs(call, count, outputs, extend);
}

STANDIN_EXPORT int rknn_outputs_release(rknn::Context handle, std::uint32_t count, rknn::Output* outputs) {
    const Call call("rknn_outputs_release", handle, Uses::memory);
    return call.refused() ? call.code() : release_outputs(call, count, outputs);
}

static_assert(std::is_same_v<decltype(&rknn_inputs_set), rknn::InputsSetFn>);
static_assert(std::is_same_v<decltype(&rknn_outputs_get), rknn::OutputsGetFn>);
static_assert(std::is_same_v<decltype(&rknn_outputs_release), rknn::OutputsReleaseFn>);
