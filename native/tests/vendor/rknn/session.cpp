// Contexts: made, asked about, set up and destroyed.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "memory.hpp"

namespace standin {

namespace {

namespace status = rknn::status;
namespace query = rknn::query;
namespace flag = rknn::init_flag;

constexpr std::uint32_t refused_flags = flag::async_mask | flag::mem_alloc_outside | flag::fence_in_outside |
                                        flag::fence_out_outside | flag::internal_alloc_outside |
                                        flag::model_buffer_zero_copy;
constexpr std::uint32_t known_flags = 0xffff | flag::model_buffer_zero_copy;

std::vector<char> read_file(const char* path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

bool runs_on(const Model& model, const std::string& chip) {
    return model.platforms.empty() ||
           std::find(model.platforms.begin(), model.platforms.end(), chip) != model.platforms.end();
}

// The file's bytes to weights; a negative code where the file is not for this runtime.
int load(const std::vector<char>& bytes, const Switches& switches, std::shared_ptr<Loaded>& loaded) {
    const auto version = model_version(bytes.data(), bytes.size());
    if (version == 0 || version > switches.max_model_version) return status::model_invalid;
    try {
        const auto model = parse_model(bytes.data(), bytes.size());
        if (!runs_on(*model, switches.chip)) return status::target_platform_unmatch;
        loaded = std::make_shared<Loaded>(model);
    } catch (const std::runtime_error& error) {
        std::fprintf(stderr, "librknnrt stand-in: the model is invalid: %s\n", error.what());
        return status::model_invalid;
    }
    return status::success;
}

int init(rknn::Context* out, const void* model, std::uint32_t size, std::uint32_t flags,
         const rknn::InitExtend* extend) {
    constexpr const char* name = "rknn_init";
    ++counters().calls;
    if (out == nullptr || model == nullptr) return misuse(status::param_invalid, name, "a null argument");
    if ((flags & ~known_flags) != 0) return misuse(status::param_invalid, name, "unknown flags");
    if ((flags & refused_flags) != 0) {
        return misuse(status::param_invalid, name,
                      "flags that fail in the field, or that are not built here");
    }
    const auto* data = static_cast<const char*>(model);
    const auto bytes = size != 0 ? std::vector<char>(data, data + size) : read_file(data);
    const auto switches = std::make_shared<Switches>();
    std::shared_ptr<Loaded> loaded;
    const int code = load(bytes, *switches, loaded);
    if (code != status::success) return code;
    if ((flags & flag::share_weight_mem) != 0) {
        const auto other = extend != nullptr ? registry().find(extend->ctx) : nullptr;
        if (other == nullptr) return misuse(status::ctx_invalid, name, "no context to share weights with");
        const auto& theirs = other->model().weights;
        const bool same = std::equal(
            theirs.begin(), theirs.end(), loaded->model->weights.begin(), loaded->model->weights.end(),
            [](const Weights& a, const Weights& b) { return a.factors == b.factors && a.bias == b.bias; });
        if (!same) return misuse(status::model_invalid, name, "the weights to share are another model's");
        loaded = other->loaded;
    }
    if ((flags & flag::disable_proc_high_priority) == 0) ++counters().priority_raises;
    hangs().arm();
    *out = registry().add(std::move(loaded), switches, flags);
    return status::success;
}

template <class T>
int fill(const Call& call, void* info, std::uint32_t size, const T& value) {
    if (size != sizeof(T)) {
        return call.misuse(status::param_invalid, "a struct of " + std::to_string(size) + " bytes where " +
                                                      std::to_string(sizeof(T)) + " are needed");
    }
    std::memcpy(info, &value, sizeof value);
    return status::success;
}

using AttrOf = rknn::TensorAttr (Tensor::*)(std::size_t) const;

int attr(const Call& call, const std::vector<Tensor>& tensors, AttrOf of, std::size_t shape, void* info,
         std::uint32_t size) {
    std::uint32_t index = 0;
    if (size == sizeof(rknn::TensorAttr)) std::memcpy(&index, info, sizeof index);
    if (index >= tensors.size()) {
        return call.misuse(status::param_invalid, "there is no tensor " + std::to_string(index));
    }
    return fill(call, info, size, (tensors[index].*of)(shape));
}

int dynamic_range(const Call& call, void* info, std::uint32_t size) {
    const auto& model = call.context().model();
    if (!model.dynamic()) return status::param_invalid;  // how clients find out
    rknn::InputRange range{};
    if (size == sizeof range) std::memcpy(&range.index, info, sizeof range.index);
    if (range.index >= model.inputs.size()) return call.misuse(status::param_invalid, "no such input");
    const auto& tensor = model.inputs[range.index];
    std::copy(tensor.name.begin(), tensor.name.end(), range.name);
    range.shape_number = static_cast<std::uint32_t>(model.shapes());
    for (std::size_t k = 0; k < model.shapes(); ++k) {
        const auto told = tensor.attr(k);
        range.fmt = told.fmt;
        range.n_dims = told.n_dims;
        std::copy(std::begin(told.dims), std::end(told.dims), range.dyn_range[k]);
    }
    return fill(call, info, size, range);
}

int facts(const Call& call, std::int32_t command, void* info, std::uint32_t size) {
    auto& context = call.context();
    const auto& model = context.model();
    switch (command) {
        case query::in_out_num:
            return fill(call, info, size,
                        rknn::InputOutputNum{static_cast<std::uint32_t>(model.inputs.size()),
                                             static_cast<std::uint32_t>(model.outputs.size())});
        case query::sdk_version: {
            rknn::SdkVersion version{};
            std::snprintf(version.api_version, sizeof version.api_version, "%s", runtime_version);
            std::snprintf(version.drv_version, sizeof version.drv_version, "0.9.8");
            return fill(call, info, size, version);
        }
        case query::mem_size: {
            rknn::MemSize memory{};
            memory.total_weight_size = static_cast<std::uint32_t>(model.weight_bytes());
            memory.total_internal_size = static_cast<std::uint32_t>(model.internal_bytes());
            memory.total_dma_allocated_size = memory.total_weight_size + memory.total_internal_size;
            return fill(call, info, size, memory);
        }
        case query::custom_string: {
            rknn::CustomString custom{};
            std::snprintf(custom.string, sizeof custom.string, "%s", model.custom.c_str());
            return fill(call, info, size, custom);
        }
        case query::perf_run:
            if (context.last_us < 0) return call.misuse(status::fail, "asked for its time before a run");
            return fill(call, info, size, rknn::PerfRun{context.last_us});
        case query::perf_detail:
            if ((context.flags & flag::collect_perf) == 0 || context.last_us < 0) {
                return call.misuse(status::fail, "no detail without its flag and a run");
            }
            context.perf = "network " + std::to_string(context.last_us) + " us\n";
            return fill(call, info, size, rknn::PerfDetail{context.perf.data(), context.perf.size()});
        case query::input_dynamic_range:
            return dynamic_range(call, info, size);
        default:
            return status::param_invalid;
    }
}

int ask(const Call& call, std::int32_t command, void* info, std::uint32_t size) {
    const auto& model = call.context().model();
    const bool current = command >= query::current_input_attr && command <= query::current_native_output_attr;
    if (current && (!model.dynamic() || !call.context().shape)) return status::param_invalid;
    const std::size_t shape = current ? *call.context().shape : 0;
    switch (command) {
        case query::input_attr:
        case query::current_input_attr:
            return attr(call, model.inputs, &Tensor::attr, shape, info, size);
        case query::output_attr:
        case query::current_output_attr:
            return attr(call, model.outputs, &Tensor::attr, shape, info, size);
        case query::native_input_attr:
        case query::current_native_input_attr:
            return attr(call, model.inputs, &Tensor::native_attr, shape, info, size);
        case query::native_output_attr:
        case query::current_native_output_attr:
            return attr(call, model.outputs, &Tensor::native_attr, shape, info, size);
        case query::native_nhwc_input_attr:
            return attr(call, model.inputs, &Tensor::nhwc_attr, shape, info, size);
        case query::native_nhwc_output_attr:
            return attr(call, model.outputs, &Tensor::nhwc_attr, shape, info, size);
        default:
            return facts(call, command, info, size);
    }
}

// Whether `given` names this shape of the tensor, in either order of the dimensions.
bool is_shape(const Tensor& tensor, std::size_t shape, const rknn::TensorAttr& given) {
    const auto& nchw = tensor.shapes[shape];
    if (given.n_dims != nchw.size()) return false;
    std::vector<std::uint32_t> dims(given.dims, given.dims + given.n_dims);
    if (given.fmt == rknn::tensor_format::nhwc && dims.size() == 4)
        dims = {dims[0], dims[3], dims[1], dims[2]};
    return dims == nchw;
}

int set_shapes(const Call& call, std::uint32_t count, const rknn::TensorAttr* attrs) {
    auto& context = call.context();
    const auto& model = context.model();
    if (attrs == nullptr || count != model.inputs.size()) {
        return call.misuse(status::param_invalid, "needs the attributes of all inputs");
    }
    if (!model.dynamic()) return call.misuse(status::param_invalid, "the model's shapes are fixed");
    for (std::size_t shape = 0; shape < model.shapes(); ++shape) {
        const bool all = std::all_of(attrs, attrs + count, [&](const rknn::TensorAttr& a) {
            return a.index < model.inputs.size() && is_shape(model.inputs[a.index], shape, a);
        });
        if (!all) continue;
        context.shape = shape;
        // Sizes may have changed: everything is to be bound or set again.
        std::fill(context.inputs.begin(), context.inputs.end(), Binding{});
        std::fill(context.outputs.begin(), context.outputs.end(), Binding{});
        context.given.assign(context.given.size(), false);
        context.ran = false;
        return status::success;
    }
    const auto& first = attrs[0];
    std::string dims;
    for (std::uint32_t i = 0; i < std::min<std::uint32_t>(first.n_dims, rknn::max_dims); ++i) {
        dims += (i == 0 ? "" : "x") + std::to_string(first.dims[i]);
    }
    std::fprintf(stderr, "librknnrt stand-in: the model has no shape %s of format %d for its inputs\n",
                 dims.c_str(), first.fmt);
    return status::input_invalid;
}

int set_cores(const Call& call, std::int32_t mask) {
    auto& context = call.context();
    const int cores = context.switches->cores;
    const bool known = (mask >= 0 && mask <= 4) || mask == 7 || mask == rknn::core_mask::all;
    if (!known) return call.misuse(status::param_invalid, "no core mask: " + std::to_string(mask));
    if (cores == 1) return status::target_platform_unmatch;
    const std::int32_t present = (1 << cores) - 1;
    if (mask != rknn::core_mask::all && (mask & ~present) != 0) return status::param_invalid;
    context.cores = mask & present;
    return status::success;
}

}  // namespace

}  // namespace standin

using namespace standin;

STANDIN_EXPORT int rknn_init(rknn::Context* context, void* model, std::uint32_t size, std::uint32_t flags,
                             rknn::InitExtend* extend) {
    return init(context, model, size, flags, extend);
}

STANDIN_EXPORT int rknn_dup_context(rknn::Context* from, rknn::Context* to) {
    if (from == nullptr || to == nullptr) {
        ++counters().calls;
        return misuse(status::param_invalid, "rknn_dup_context", "a null argument");
    }
    const Call call("rknn_dup_context", *from);
    if (call.refused()) return call.code();
    auto& context = call.context();
    if (context.switches->fail_dup.next()) return status::malloc_fail;
    *to = registry().add(context.loaded, context.switches, context.flags);
    return status::success;
}

STANDIN_EXPORT int rknn_destroy(rknn::Context handle) {
    const Call call("rknn_destroy", handle);
    if (call.refused()) return call.code();
    if (const auto mems = registry().live_mems(handle); mems != 0) {
        return call.misuse(status::fail,
                           std::to_string(mems) + " pieces of its memory are not yet destroyed");
    }
    if (const auto outputs = call.context().fetched.size(); outputs != 0) {
        return call.misuse(status::fail, std::to_string(outputs) + " outputs are not yet released");
    }
    registry().remove(handle);
    return status::success;
}

STANDIN_EXPORT int rknn_query(rknn::Context handle, std::int32_t command, void* info, std::uint32_t size) {
    const Call call("rknn_query", handle);
    if (call.refused()) return call.code();
    if (info == nullptr) return call.misuse(status::param_invalid, "no struct to fill");
    return ask(call, command, info, size);
}

STANDIN_EXPORT int rknn_set_core_mask(rknn::Context handle, std::int32_t mask) {
    const Call call("rknn_set_core_mask", handle);
    return call.refused() ? call.code() : set_cores(call, mask);
}

STANDIN_EXPORT int rknn_set_batch_core_num(rknn::Context handle, int) {
    const Call call("rknn_set_batch_core_num", handle);
    return call.refused() ? call.code()
                          : call.misuse(status::param_invalid, "the model was not built for batches");
}

STANDIN_EXPORT int rknn_set_input_shapes(rknn::Context handle, std::uint32_t count, rknn::TensorAttr* attrs) {
    const Call call("rknn_set_input_shapes", handle, Uses::memory);
    return call.refused() ? call.code() : set_shapes(call, count, attrs);
}

STANDIN_EXPORT int rknn_set_input_shape(rknn::Context handle, rknn::TensorAttr*) {
    const Call call("rknn_set_input_shape", handle);
    return call.refused() ? call.code() : call.misuse(status::param_invalid, "it is withdrawn");
}

static_assert(std::is_same_v<decltype(&rknn_init), rknn::InitFn>);
static_assert(std::is_same_v<decltype(&rknn_dup_context), rknn::DupContextFn>);
static_assert(std::is_same_v<decltype(&rknn_destroy), rknn::DestroyFn>);
static_assert(std::is_same_v<decltype(&rknn_query), rknn::QueryFn>);
static_assert(std::is_same_v<decltype(&rknn_set_core_mask), rknn::SetCoreMaskFn>);
static_assert(std::is_same_v<decltype(&rknn_set_batch_core_num), rknn::SetBatchCoreNumFn>);
static_assert(std::is_same_v<decltype(&rknn_set_input_shapes), rknn::SetInputShapesFn>);
