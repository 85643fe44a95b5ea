// Runs.
#include <time.h>

#include <bit>
#include <chrono>
#include <cstring>

#include "memory.hpp"

namespace standin {

namespace {

namespace status = rknn::status;
namespace type = rknn::tensor_type;

using Clock = std::chrono::steady_clock;

std::uint64_t thread_cpu_ns() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000000U + static_cast<std::uint64_t>(now.tv_nsec);
}

// The chip's cores, which contexts take for a run.
class Cores {
public:
    // All of `mask`, or for 0 the first free of `count`; waits for them.
    std::uint32_t take(std::uint32_t mask, int count) {
        std::unique_lock lock(mutex_);
        const std::uint32_t present = (1U << static_cast<unsigned>(count)) - 1;
        changed_.wait(lock, [&] { return mask != 0 ? (busy_ & mask) == 0 : (busy_ & present) != present; });
        const std::uint32_t taken = mask != 0 ? mask : std::bit_floor(present & ~busy_);
        busy_ |= taken;
        return taken;
    }
    void give(std::uint32_t taken) {
        const std::lock_guard lock(mutex_);
        busy_ &= ~taken;
        changed_.notify_all();
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::uint32_t busy_ = 0;
};

Cores& cores() {
    static auto* const all = new Cores;
    return *all;
}

class CoreLease {
public:
    explicit CoreLease(const ContextState& context)
        : taken_(cores().take(static_cast<std::uint32_t>(context.cores), context.switches->cores)) {}
    CoreLease(const CoreLease&) = delete;
    CoreLease& operator=(const CoreLease&) = delete;
    ~CoreLease() { cores().give(taken_); }

private:
    std::uint32_t taken_;
};

// Whether a run reads or writes memory of this layout only after a conversion on the processor.
bool converted(const Tensor& tensor, std::size_t shape, const Layout& layout) {
    const bool fused = tensor.is_input && tensor.is_image(shape) && layout.type == type::uint8;
    return layout.fmt != tensor.native || (layout.type != tensor.type && !fused);
}

// The memory of one binding as the device sees it; empty after telling what is wrong with it.
std::optional<Bound> bound(const Call& call, const Tensor& tensor, const Binding& binding) {
    auto& context = call.context();
    Mem* const mem = binding.mem;
    std::string wrong;
    if (mem == nullptr) {
        wrong = "no memory is bound";
    } else if (!mem->live) {
        wrong = "the bound memory was destroyed";
    } else if (mem->tampered()) {
        wrong = "the bound memory's struct was changed";
    } else if (mem->overrun()) {
        wrong = "something wrote beyond the bound memory's end";
    }
    const bool shadowed = mem != nullptr && !mem->shadow.empty() && !context.flushes(tensor.is_input);
    if (wrong.empty() && shadowed && tensor.is_input) {
        if (!mem->synced) {
            wrong = "never synchronised to the device";
        } else if (std::memcmp(mem->shadow.data(), mem->data(), binding.layout.bytes) != 0) {
            wrong = "written since it was synchronised to the device";
        }
    }
    if (!wrong.empty()) {
        call.misuse(status::param_invalid, tensor.name + ": " + wrong);
        return std::nullopt;
    }
    if (converted(tensor, *context.shape, binding.layout)) ++counters().conversions;
    if (!tensor.is_input) mem->device_wrote = true;
    return Bound{shadowed ? mem->shadow.data() : mem->data(), binding.layout};
}

bool bind_all(const Call& call, std::vector<Bound>& inputs, std::vector<Bound>& outputs) {
    auto& context = call.context();
    const auto& model = context.model();
    for (const bool input : {true, false}) {
        const auto& tensors = input ? model.inputs : model.outputs;
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            auto& to = input ? inputs : outputs;
            if (context.mode == Mode::zero_copy) {
                const auto one = bound(call, tensors[i], (input ? context.inputs : context.outputs)[i]);
                if (!one) return false;
                to.push_back(*one);
                continue;
            }
            if (input && !context.given[i]) {
                call.misuse(status::input_invalid, tensors[i].name + ": was never set");
                return false;
            }
            auto& store = (input ? context.input_store : context.output_store)[i];
            auto layout = tensors[i].layout(*context.shape);
            if (input && context.bytes_given[i]) layout.type = type::uint8;
            to.push_back({store.data(), layout});
        }
    }
    return true;
}

int compute(const Call& call, const std::vector<Bound>& inputs, const std::vector<Bound>& outputs) {
    auto& context = call.context();
    auto& switches = *context.switches;
    const CoreLease lease(context);
    const auto start = Clock::now();
    if (switches.fail_run.next()) return switches.fail_code;
    if (switches.hang_run.next()) {
        hangs().wait();
        return status::timeout;
    }
    context.network.run(context.model(), *context.shape, inputs, outputs);
    const auto us = std::chrono::microseconds(switches.run_us.value_or(context.model().run_us));
    if (us.count() != 0) std::this_thread::sleep_until(start + us);
    context.last_us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
    context.ran = true;
    ++counters().runs;
    return status::success;
}

int run(const Call& call, rknn::RunExtend* extend) {
    auto& context = call.context();
    if (extend != nullptr && extend->non_block != 0) {
        return call.misuse(status::fail, "runs that do not block fail in the field");
    }
    if ((context.flags & rknn::init_flag::collect_model_info_only) != 0) {
        return call.misuse(status::fail, "the context is for questions only");
    }
    if (!context.shape) return call.misuse(status::param_invalid, "the input shapes are not yet set");
    if (context.mode == Mode::none) return call.misuse(status::input_invalid, "nothing was bound or set");
    std::vector<Bound> inputs;
    std::vector<Bound> outputs;
    if (!bind_all(call, inputs, outputs)) return status::param_invalid;
    if (extend != nullptr) extend->frame_id = context.frames;
    ++context.frames;
    return compute(call, inputs, outputs);
}

}  // namespace

CpuTime::CpuTime(std::atomic<std::uint64_t>& sum) noexcept : sum_(sum), start_(thread_cpu_ns()) {}
CpuTime::~CpuTime() { sum_ += thread_cpu_ns() - start_; }

}  // namespace standin

using namespace standin;

STANDIN_EXPORT int rknn_run(rknn::Context handle, rknn::RunExtend* extend) {
    const CpuTime time(counters().device_cpu_ns);
    const Call call("rknn_run", handle, Uses::memory);
    return call.refused() ? call.code() : run(call, extend);
}

STANDIN_EXPORT int rknn_wait(rknn::Context handle, rknn::RunExtend*) {
    const Call call("rknn_wait", handle);
    return call.refused() ? call.code() : call.misuse(status::fail, "no chip supports it");
}

static_assert(std::is_same_v<decltype(&rknn_run), rknn::RunFn>);
static_assert(std::is_same_v<decltype(&rknn_wait), rknn::WaitFn>);
