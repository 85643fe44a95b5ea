// The simulated device: its clock of runs, its scripted faults, and the values it computes.
#include "engines/simulated/engine.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "core/error.hpp"

namespace pipeline {
namespace {

constexpr std::size_t guard_bytes = 64;
constexpr std::byte guard_value{0xC7};

// Half-precision bits of a whole number up to 2047.
std::uint16_t half_bits(std::uint32_t value) {
    if (value == 0) return 0;
    const auto exponent = static_cast<std::uint32_t>(std::bit_width(value)) - 1;
    const std::uint32_t fraction = (value << (10 - exponent)) & 0x3FFU;
    return static_cast<std::uint16_t>(((exponent + 15) << 10) | fraction);
}

template <typename T>
void store(std::byte* target, std::size_t index, T value) {
    std::memcpy(target + index * sizeof(T), &value, sizeof(T));
}

void store_value(DType dtype, std::byte* target, std::size_t index, std::uint32_t value) {
    switch (dtype) {
        case DType::boolean:
            return store(target, index, static_cast<std::uint8_t>(value & 1U));
        case DType::u8:
        case DType::i8:
            return store(target, index, static_cast<std::uint8_t>(value));
        case DType::u16:
        case DType::i16:
            return store(target, index, static_cast<std::uint16_t>(value));
        case DType::u32:
        case DType::i32:
            return store(target, index, value);
        case DType::u64:
        case DType::i64:
            return store(target, index, std::uint64_t{value});
        case DType::f16:
            return store(target, index, half_bits(value));
        case DType::f32:
            return store(target, index, static_cast<float>(value));
        case DType::f64:
            return store(target, index, static_cast<double>(value));
    }
}

// The cores of the NPU: what locks one waits until one is free, first come, first served.
class Cores {
public:
    explicit Cores(std::size_t count) : count_(count) {}

    void lock() {
        if (count_ == 0) return;
        std::unique_lock lock(mutex_);
        const std::size_t mine = came_++;
        left_changed_.wait(lock, [&] { return mine < left_ + count_; });
    }
    void unlock() {
        if (count_ == 0) return;
        const std::lock_guard lock(mutex_);
        ++left_;
        left_changed_.notify_all();
    }

private:
    const std::size_t count_;
    std::mutex mutex_;
    std::condition_variable left_changed_;
    std::size_t came_ = 0;
    std::size_t left_ = 0;
};

class Simulated final : public Engine {
public:
    explicit Simulated(SimulatedOptions o) : options(std::move(o)), cores(options.cores) {}

    [[nodiscard]] std::string_view name() const noexcept override { return "simulated"; }
    [[nodiscard]] std::string device() const override { return "simulated NPU"; }
    [[nodiscard]] std::size_t context_count() const noexcept override { return options.contexts; }
    [[nodiscard]] const std::vector<TensorSpec>& inputs() const noexcept override { return options.inputs; }
    [[nodiscard]] const std::vector<TensorSpec>& outputs() const noexcept override { return options.outputs; }
    [[nodiscard]] std::unique_ptr<EngineContext> open_context(std::size_t index) override;

    const SimulatedOptions options;
    Cores cores;
    std::atomic<std::uint64_t> runs{0};
    std::atomic<std::uint64_t> allocations{0};
};

class SimulatedContext final : public EngineContext {
public:
    SimulatedContext(Simulated& engine, std::size_t index)
        : engine_(engine), random_(engine.options.seed + index) {}

    DriverBlock allocate(Direction direction, std::size_t index, std::size_t bytes) override {
        const auto& refuse = engine_.options.refuse_allocation;
        if (engine_.allocations++ >= refuse.value_or(~std::uint64_t{0})) {
            throw Error(Errc::allocation, "the simulated driver refused " + std::to_string(bytes) + " bytes");
        }
        Memory memory{std::make_unique<std::byte[]>(bytes + 2 * guard_bytes), bytes, direction, index};
        std::memset(memory.whole.get(), static_cast<int>(guard_value), guard_bytes);
        std::memset(memory.whole.get() + guard_bytes + bytes, static_cast<int>(guard_value), guard_bytes);
        std::byte* const base = memory.whole.get() + guard_bytes;
        memory_.emplace(base, std::move(memory));
        return {base, bytes, nullptr};
    }

    void release(Direction /*direction*/, std::size_t /*index*/, DriverBlock block) noexcept override {
        memory_.erase(block.base);
    }

    void run(const RunRequest& request) override {
        const auto& options = engine_.options;
        check(request.inputs, Direction::input, options.inputs);
        check(request.outputs, Direction::output, options.outputs);
        if (!request.probe) {
            const std::uint64_t number = ++engine_.runs;
            const auto scripted = [number](const std::vector<std::uint64_t>& runs) {
                return std::find(runs.begin(), runs.end(), number) != runs.end();
            };
            if (scripted(options.hang_runs)) {
                std::this_thread::sleep_for(std::chrono::duration<double>(options.hang_seconds));
            }
            if (scripted(options.fail_runs)) {
                throw Error(Errc::run, "simulated: run " + std::to_string(number) + " fails, as scripted");
            }
            const std::lock_guard core(engine_.cores);
            work();
        }
        compute(request);
        check(request.outputs, Direction::output, options.outputs);
    }

private:
    struct Memory {
        std::unique_ptr<std::byte[]> whole;
        std::size_t bytes = 0;
        Direction direction = Direction::input;
        std::size_t index = 0;
    };

    // A real driver takes any pointer and writes; this one knows its memory and says what is wrong.
    void check(std::span<const DriverBlock> blocks, Direction direction,
               const std::vector<TensorSpec>& specs) const {
        const auto fail = [&](std::size_t i, const std::string& what) {
            throw Error(Errc::run, "simulated: " + std::string(direction_name(direction)) + " " +
                                       std::to_string(i) + " '" + specs[i].name + "': " + what);
        };
        if (blocks.size() != specs.size()) throw Error(Errc::run, "simulated: wrong number of tensors bound");
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            const auto found = memory_.find(blocks[i].base);
            if (found == memory_.end()) fail(i, "bound to memory that is not this context's");
            const Memory& memory = found->second;
            if (memory.direction != direction || memory.index != i)
                fail(i, "bound to another tensor's memory");
            if (memory.bytes < specs[i].driver_size()) fail(i, "bound to too small a block");
            const auto intact = [](std::byte value) { return value == guard_value; };
            const std::byte* const end = found->first + memory.bytes;
            if (!std::all_of(memory.whole.get(), memory.whole.get() + guard_bytes, intact) ||
                !std::all_of(end, end + guard_bytes, intact)) {
                fail(i, "somebody wrote past the ends of its memory");
            }
        }
    }

    void work() {
        const auto& o = engine_.options;
        double microseconds = o.latency_us;
        switch (o.distribution) {
            case LatencyDistribution::fixed:
                break;
            case LatencyDistribution::uniform:
                microseconds += std::uniform_real_distribution<>(-o.jitter_us, o.jitter_us)(random_);
                break;
            case LatencyDistribution::normal:
                if (o.jitter_us > 0) microseconds += std::normal_distribution<>(0, o.jitter_us)(random_);
                break;
            case LatencyDistribution::exponential:
                if (o.jitter_us > 0)
                    microseconds += std::exponential_distribution<>(1 / o.jitter_us)(random_);
                break;
        }
        if (microseconds > 0)
            std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(microseconds));
    }

    void compute(const RunRequest& request) const {
        const auto& options = engine_.options;
        const TensorSpec& source = options.inputs[0];
        const std::size_t bytes = source.byte_size();
        const std::size_t row = source.row_stride == 0
                                    ? bytes
                                    : bytes / static_cast<std::size_t>(source.shape[0] * source.shape[1]);
        const std::size_t row_stride = source.row_stride == 0 ? bytes : source.row_stride;
        for (std::size_t j = 0; j < options.outputs.size(); ++j) {
            const TensorSpec& spec = options.outputs[j];
            const std::size_t count = spec.byte_size() / item_size(spec.dtype);
            for (std::size_t k = 0; k < count; ++k) {
                const std::size_t at = k * bytes / count;
                const auto value =
                    std::to_integer<std::uint32_t>(request.inputs[0].base[at / row * row_stride + at % row]);
                store_value(spec.dtype, request.outputs[j].base, k, value + static_cast<std::uint32_t>(j));
            }
        }
    }

    Simulated& engine_;  // outlives its contexts: their threads hold it
    std::mt19937_64 random_;
    std::map<std::byte*, Memory> memory_;
};

std::unique_ptr<EngineContext> Simulated::open_context(std::size_t index) {
    return std::make_unique<SimulatedContext>(*this, index);
}

}  // namespace

std::shared_ptr<Engine> open_simulated(SimulatedOptions options) {
    const auto fail = [](const std::string& what) { throw Error(Errc::config, "simulated: " + what); };
    if (options.inputs.empty()) fail("no inputs");
    if (options.outputs.empty()) fail("no outputs");
    if (options.outputs.size() > 1024) fail("more than 1024 outputs");
    if (options.contexts == 0) fail("contexts: 0 is not above 0");
    if (options.latency_us < 0 || options.jitter_us < 0) fail("latency and jitter cannot be negative");
    for (const auto& spec : options.outputs) {
        if (spec.row_stride != 0) fail("output '" + spec.name + "': row strides are for inputs");
    }
    for (const auto& spec : options.inputs) spec.validate();
    for (const auto& spec : options.outputs) spec.validate();
    return std::make_shared<Simulated>(std::move(options));
}

}  // namespace pipeline
