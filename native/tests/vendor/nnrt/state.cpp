#include "tests/vendor/nnrt/state.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace standin {
namespace {

constexpr std::byte guard{0xB7};
constexpr std::size_t limit = std::size_t{1} << 30;

std::string variable(const char* name) {
    const char* value = std::getenv((std::string("STANDIN_NNRT_") + name).c_str());
    return value != nullptr ? value : "";
}

std::uint64_t number(const char* name, std::uint64_t otherwise) {
    const std::string text = variable(name);
    return text.empty() ? otherwise : std::stoull(text);
}

std::set<std::uint64_t> numbers(const char* name) {
    std::set<std::uint64_t> result;
    std::istringstream text(variable(name));
    for (std::string item; std::getline(text, item, ',');) result.insert(std::stoull(item));
    return result;
}

void write_stats(const StandinNnrtStats& stats, const std::string& path) {
    std::FILE* const file = std::fopen(path.c_str(), "w");
    if (file == nullptr) return;
    const std::pair<const char*, std::uint64_t> fields[] = {{"runs", stats.runs},
                                                            {"allocations", stats.allocations},
                                                            {"frees", stats.frees},
                                                            {"live_blocks", stats.live_blocks},
                                                            {"live_bytes", stats.live_bytes},
                                                            {"leaked_blocks", stats.leaked_blocks},
                                                            {"live_executors", stats.live_executors},
                                                            {"live_compilations", stats.live_compilations},
                                                            {"live_descriptions", stats.live_descriptions},
                                                            {"descriptions", stats.descriptions},
                                                            {"binds", stats.binds},
                                                            {"largest_waste", stats.largest_waste},
                                                            {"misuses", stats.misuses}};
    const char* separator = "{";
    for (const auto& [name, value] : fields) {
        std::fprintf(file, "%s\"%s\": %llu", separator, name, static_cast<unsigned long long>(value));
        separator = ", ";
    }
    std::fputs("}\n", file);
    std::fclose(file);
}

}  // namespace

bool Block::intact() const noexcept {
    return std::all_of(base + length, base + mapped, [](std::byte value) { return value == guard; });
}

State& State::get() {
    // Never destroyed: engines may let go of their last executor while the process ends.
    static State& state = *[] {
        auto* made = new State;
        made->read_switches();
        std::atexit([] {
            State& self = get();
            const std::lock_guard lock(self.mutex);
            if (const auto path = variable("STATS"); !path.empty()) write_stats(self.stats, path);
        });
        return made;
    }();
    return state;
}

void State::read_switches() {
    switches.no_devices = variable("DEVICES") == "none";
    switches.refuse_offline = variable("REFUSE_OFFLINE") == "1";
    switches.refuse_cache = variable("REFUSE_CACHE") == "1";
    switches.refuse_options = variable("REFUSE_OPTIONS") == "1";
    switches.refuse_executor = variable("REFUSE_EXECUTOR") == "1";
    switches.stay_dead = variable("STAY_DEAD") == "1";
    switches.refuse_allocation = number("REFUSE_ALLOCATION", ~std::uint64_t{0});
    switches.fail_runs = numbers("FAIL_RUNS");
    switches.unload_runs = numbers("UNLOAD_RUNS");
    switches.die_runs = numbers("DIE_RUNS");
    switches.lose_runs = numbers("LOSE_RUNS");
    switches.hold_runs = numbers("HOLD_RUNS");
    switches.fail_bind = variable("FAIL_BIND");
    switches.silent_output = static_cast<std::int64_t>(number("SILENT_OUTPUT", ~std::uint64_t{0}));
    switches.output_shape = static_cast<std::int32_t>(number("OUTPUT_SHAPE", 0));
    stats.runs = stats.allocations = stats.frees = stats.binds = stats.largest_waste = 0;
    dead = false;
    holding = true;
}

OH_NN_ReturnCode State::misuse(const std::string& what, OH_NN_ReturnCode code) {
    ++stats.misuses;
    last_misuse = what;
    std::fprintf(stderr, "standin nnrt: misuse: %s\n", what.c_str());
    return code;
}

bool State::usable(const void* object, const char* what) {
    if (object != nullptr && alive.contains(object)) return true;
    misuse(std::string(what) + (object == nullptr ? " is null" : " is not alive"));
    return false;
}

Block* State::allocate(std::size_t length) {
    if (length == 0 || length > limit) return nullptr;
    if (++stats.allocations >= switches.refuse_allocation) return nullptr;
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t mapped = (length + page - 1) / page * page;
    // One page more, out of reach: what is written far past the end ends the process.
    void* const memory = ::mmap(nullptr, mapped + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    ::mprotect(memory, mapped, PROT_READ | PROT_WRITE);
    auto* const base = static_cast<std::byte*>(memory);
    std::memset(base + length, static_cast<int>(guard), mapped - length);
    ++stats.live_blocks;
    stats.live_bytes += length;
    return &(blocks[base] = Block{base, length, mapped, nullptr, false, 0});
}

void State::free(Block& block) {
    if (!block.intact()) misuse("somebody wrote past the end of a block that is freed now");
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    ++stats.frees;
    --stats.live_blocks;
    stats.live_bytes -= block.length;
    const Block gone = block;
    blocks.erase(gone.base);
    ::munmap(gone.base, gone.mapped + page);
}

OH_NN_ReturnCode State::begin_run(const OH_NNExecutor& executor) {
    const std::uint64_t run = ++stats.runs;
    if (dead || executor.generation != generation) return OH_NN_CONNECTION_EXCEPTION;
    if (switches.die_runs.contains(run)) {
        ++generation;
        dead = switches.stay_dead;
        return OH_NN_CONNECTION_EXCEPTION;
    }
    if (switches.lose_runs.contains(run)) {
        ++generation;
        dead = switches.stay_dead;
        return OH_NN_UNAVAILABLE_DEVICE;
    }
    if (switches.fail_runs.contains(run) || switches.unload_runs.contains(run)) return OH_NN_FAILED;
    return OH_NN_SUCCESS;
}

void State::hold_run(std::unique_lock<std::mutex>& lock) {
    if (switches.hold_runs.contains(stats.runs)) released.wait(lock, [this] { return !holding; });
}

void compute(OH_NNExecutor& executor, const std::vector<std::vector<std::int32_t>>& input_shapes,
             const std::vector<const std::byte*>& inputs, const std::vector<std::byte*>& outputs,
             const std::vector<std::vector<std::int32_t>>& output_shapes, const Switches& switches) {
    const Model& model = *executor.model;
    std::vector<Bytes> bytes;
    for (std::size_t i = 0; i < inputs.size(); ++i)
        bytes.emplace_back(inputs[i], byte_size(model.inputs[i].type, input_shapes[i]));
    executor.made = output_shapes;
    for (std::size_t j = 0; j < outputs.size(); ++j) {
        if (switches.output_shape != 0) executor.made[j].at(0) = switches.output_shape;
        if (static_cast<std::int64_t>(j) == switches.silent_output) continue;
        run_network(model, bytes, j, outputs[j], byte_size(model.outputs[j].type, output_shapes[j]));
    }
}

}  // namespace standin

void standin_nnrt_stats(StandinNnrtStats* stats) {
    auto& state = standin::State::get();
    const std::lock_guard lock(state.mutex);
    *stats = state.stats;
}

void standin_nnrt_release() {
    auto& state = standin::State::get();
    {
        const std::lock_guard lock(state.mutex);
        state.holding = false;
    }
    state.released.notify_all();
}

const char* standin_nnrt_last_misuse() { return standin::State::get().last_misuse.c_str(); }

void standin_nnrt_reset() {
    auto& state = standin::State::get();
    const std::lock_guard lock(state.mutex);
    state.stats.misuses = state.stats.leaked_blocks = state.stats.descriptions = 0;
    state.last_misuse.clear();
    state.read_switches();
}
