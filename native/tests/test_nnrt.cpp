// Engine nnrt on the stand-in of vendor/nnrt: arguments are the library and v1 or v2.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "core/ring.hpp"
#include "engines/dylib.hpp"
#include "engines/nnrt/abi.hpp"
#include "engines/nnrt/engine.hpp"
#include "support.hpp"
#include "tests/vendor/nnrt/state.hpp"

using namespace pipeline;

namespace {

constexpr auto seconds = std::chrono::seconds(20);
constexpr const char* model_text =
    "standin-nnrt 1\nweights 3 1 4\ninput image uint8 NHWC 1 4 4 3\noutput scores float32 NONE 1 10\n"
    "output mask uint8 NONE 1 7\n";

struct Library {
    explicit Library(const std::string& path) : dylib(path) {}
    [[nodiscard]] StandinNnrtStats stats() const {
        StandinNnrtStats result{};
        dylib.symbol<decltype(&::standin_nnrt_stats)>("standin_nnrt_stats")(&result);
        return result;
    }
    void reset() const { dylib.symbol<decltype(&::standin_nnrt_reset)>("standin_nnrt_reset")(); }
    Dylib dylib;
};

// Each test begins with the switches it names and ends with nothing alive and nothing misused.
struct Bench {
    Bench(const Library& l, bool is_v2) : library(l), v2(is_v2) {
        folder = std::filesystem::temp_directory_path() / ("nnrt-" + std::to_string(::getpid()));
        std::filesystem::create_directories(folder);
        write(model_text);
        library.reset();
    }
    ~Bench() {
        for (const auto& name : set) ::unsetenv(name.c_str());
        const auto stats = library.stats();
        CHECK(stats.misuses == misuses);
        CHECK(stats.leaked_blocks == 0);
        // The thread that opened a context may be the last to let go of it.
        test::eventually([&] {
            const auto now = library.stats();
            return now.live_blocks == 0 && now.live_bytes == 0 && now.live_executors == 0 &&
                   now.live_compilations == 0 && now.live_descriptions == 0;
        });
        std::filesystem::remove_all(folder);
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;

    void write(const std::string& text) const { std::ofstream(model()) << text; }
    [[nodiscard]] std::string model() const { return (folder / "model.om").string(); }

    void turn(const std::string& name, const std::string& value) {
        set.push_back("STANDIN_NNRT_" + name);
        ::setenv(set.back().c_str(), value.c_str(), 1);
    }
    void unturn() {
        for (const auto& name : set) ::unsetenv(name.c_str());
        set.clear();
    }

    [[nodiscard]] NnrtOptions options() const {
        NnrtOptions result;
        result.library = library.dylib.path();
        result.model = model();
        result.device = "NPU";
        if (!v2) {
            result.inputs = {{"image", DType::u8, {1, 4, 4, 3}, "NHWC", 0, {}}};
            result.outputs = {{"scores", DType::f32, {1, 10}, "", 0, {}},
                              {"mask", DType::u8, {1, 7}, "", 0, {}}};
        }
        return result;
    }
    [[nodiscard]] static std::shared_ptr<Executor> open(const NnrtOptions& o) {
        return std::make_shared<Executor>(open_nnrt(o), Allocator::Limits{std::size_t{1} << 20, seconds});
    }

    const Library& library;
    bool v2;
    std::uint64_t misuses = 0;
    std::filesystem::path folder;
    std::vector<std::string> set;
};

std::uint32_t expected(const std::vector<std::byte>& image, std::size_t output, std::size_t count,
                       std::size_t element) {
    constexpr std::uint32_t weights[] = {3, 1, 4};
    auto sum = static_cast<std::uint32_t>(output);
    for (std::size_t i = element; i < image.size(); i += count)
        sum += std::to_integer<std::uint32_t>(image[i]) * weights[i / count % 3];
    return sum;
}

std::vector<std::byte> make_image(std::size_t seed) {
    std::vector<std::byte> image(48);
    for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<std::byte>(seed * 31 + i * 7);
    return image;
}

// One run on the slot's own memory; its error, if it had one.
std::optional<Error> run(Ring& ring, std::size_t seed) {
    const SlotId id = test::acquire(ring);
    const auto image = make_image(seed);
    {
        const auto view = ring.view(id, Direction::input, 0);
        std::memcpy(view->data(), image.data(), image.size());
    }
    ring.submit(id, {}, {});
    const auto done = test::wait_completions(ring);
    CHECK(done.size() == 1);
    if (!done[0].error) {
        ring.lease(id);
        const auto scores = ring.view(id, Direction::output, 0);
        const auto mask = ring.view(id, Direction::output, 1);
        for (std::size_t k = 0; k < 10; ++k) {
            float value = 0;
            std::memcpy(&value, scores->data() + 4 * k, 4);
            CHECK(value == static_cast<float>(expected(image, 0, 10, k)));
        }
        for (std::size_t k = 0; k < 7; ++k)
            CHECK(std::to_integer<std::uint32_t>(mask->data()[k]) == (expected(image, 1, 7, k) & 0xFFU));
    }
    ring.release(id);
    return done[0].error;
}

void expect_failure(Ring& ring, std::size_t seed, Errc code, std::string_view part) {
    const auto error = run(ring, seed);
    CHECK(error && error->code() == code);
    if (std::string_view(error->what()).find(part) == std::string_view::npos)
        test::fail(__FILE__, __LINE__, "the message", error->what());
}

void close(const std::shared_ptr<Executor>& executor, const std::shared_ptr<Ring>& ring) {
    ring->close();
    CHECK(executor->close(seconds));
    CHECK(executor->counters().live_blocks == 0);
}

void runs_in_place_and_allocates_nothing(Bench& bench) {
    auto options = bench.options();
    options.contexts = 2;
    const auto executor = bench.open(options);
    const auto ring = Ring::create(executor, 4, true);
    const auto before = bench.library.stats();
    CHECK(before.live_blocks == 12 && before.allocations == 12);
    CHECK(before.live_executors == 2 && before.live_compilations == 0);
    for (std::size_t i = 0; i < 500; ++i) CHECK(!run(*ring, i));
    const auto after = bench.library.stats();
    CHECK(after.allocations == before.allocations && after.frees == 0);
    CHECK(after.descriptions == before.descriptions);
    CHECK(after.runs == before.runs + 500);
    CHECK(after.largest_waste == 0);
    CHECK(executor->zero_copy(Direction::input, 0) && executor->zero_copy(Direction::output, 1));
    close(executor, ring);
}

void specs_are_what_the_model_has(Bench& bench) {
    const auto engine = open_nnrt(bench.options());
    CHECK(engine->name() == "nnrt" && engine->device() == "stand-in NPU (accelerator)");
    CHECK(engine->inputs().size() == 1 && engine->outputs().size() == 2);
    CHECK(engine->inputs()[0].name == "image" && engine->inputs()[0].layout == "NHWC");
    CHECK(engine->outputs()[0].dtype == DType::f32 && engine->outputs()[1].shape.back() == 7);
}

void devices_by_id_name_and_type(Bench& bench) {
    const auto found = list_nnrt_devices(bench.library.dylib.path());
    CHECK(found.version == (bench.v2 ? "API 11+" : "API 9-10"));
    CHECK(found.devices.size() == 2 && found.devices[1].second == "stand-in CPU (cpu)");
    auto options = bench.options();
    const std::pair<std::string, std::string> wanted[] = {
        {"7", "CPU"},   {"cpu", "CPU"},         {"Stand-In CPU", "CPU"},
        {"npu", "NPU"}, {"Accelerator", "NPU"}, {found.devices[0].first, "NPU"}};
    for (const auto& [device, name] : wanted) {
        options.device = device;
        CHECK(open_nnrt(options)->device().starts_with("stand-in " + name));
    }
    options.device = "gpu";
    CHECK_THROWS(open_nnrt(options), Errc::device, "7 stand-in CPU (cpu)");
    bench.turn("DEVICES", "none");
    CHECK_THROWS(open_nnrt(bench.options()), Errc::device, "NNRT finds here: none");
}

void refusals_are_named(Bench& bench) {
    auto options = bench.options();
    const auto refused = [&](const char* name, const char* value, Errc code, std::string_view part) {
        bench.turn(name, value);
        CHECK_THROWS(bench.open(options), code, part);
        bench.unturn();
        bench.library.reset();
    };
    refused("REFUSE_OFFLINE", "1", Errc::model, "refuses this model file: OH_NN_FAILED (1)");
    refused("REFUSE_EXECUTOR", "1", Errc::model, "cannot make an executor");
    options.cache_dir = bench.folder.string();
    refused("REFUSE_CACHE", "1", Errc::config,
            "options.cache_dir: cache_dir is refused by device 'stand-in NPU'");
    options.cache_dir.clear();
    options.performance = 3;
    refused("REFUSE_OPTIONS", "1", Errc::config, "options.performance: performance is refused");
    options.performance.reset();
    options.model = (bench.folder / "gone.om").string();
    CHECK_THROWS(bench.open(options), Errc::model, "gone.om: no such file");
    bench.write("something else\n");
    options.model = bench.model();
    CHECK_THROWS(bench.open(options), Errc::model, "OH_NN_INVALID_FILE (6)");
    options.library = "libnone.so";
    CHECK_THROWS(bench.open(options), Errc::not_installed, "libnone.so");
    options.library = "libm.so.6";
    CHECK_THROWS(bench.open(options), Errc::not_installed, "OH_NNDevice_GetAllDevicesID");
}

void a_cache_replaces_the_model(Bench& bench) {
    auto options = bench.options();
    options.cache_dir = bench.folder.string();
    options.cache_version = 3;
    CHECK(bench.open(options)->close(seconds));  // writes it
    options.model.clear();
    const auto executor = bench.open(options);
    const auto ring = Ring::create(executor, 1, true);
    CHECK(!run(*ring, 5));
    close(executor, ring);
    options.cache_version = 4;
    CHECK_THROWS(bench.open(options), Errc::model, "no compiled model of version 4");
    options.cache_dir.clear();
    CHECK_THROWS(bench.open(options), Errc::config, "cache_dir");
}

void refused_memory_gives_everything_back(Bench& bench) {
    bench.turn("REFUSE_ALLOCATION", "5");
    const auto executor = bench.open(bench.options());
    CHECK_THROWS(Ring::create(executor, 2, true), Errc::allocation,
                 "output 0 'scores': device 'stand-in NPU' refused 40 bytes");
    CHECK(executor->counters().live_bytes == 48 + 40 + 7 + 48);
    executor->trim();
    CHECK(executor->close(seconds));
    const auto limited = bench.open(bench.options());
    const auto& allocator = limited->allocator(0, Direction::output, 0);
    CHECK_THROWS(static_cast<void>(allocator->malloc(39)), Errc::allocation, "at least 40");
    CHECK(limited->close(seconds));
}

void failures_of_a_run_are_named_and_over_with_it(Bench& bench) {
    bench.turn("FAIL_RUNS", "2");  // the first one probes the slot
    const auto executor = bench.open(bench.options());
    const auto ring = Ring::create(executor, 1, true);
    expect_failure(*ring, 1, Errc::run, "device 'stand-in NPU' failed to run the model: OH_NN_FAILED (1)");
    CHECK(!run(*ring, 2));
    close(executor, ring);
}

void a_rested_model_is_tried_again(Bench& bench) {
    bench.turn("UNLOAD_RUNS", "2,5,6");
    auto options = bench.options();
    options.idle = std::chrono::nanoseconds(0);
    const auto executor = bench.open(options);
    const auto ring = Ring::create(executor, 1, true);
    CHECK(!run(*ring, 1));  // 2 fails, 3 is the same once more
    CHECK(!run(*ring, 2));
    expect_failure(*ring, 3, Errc::run, "OH_NN_FAILED");  // once more, not for ever
    CHECK(!run(*ring, 4));
    close(executor, ring);
}

void a_busy_model_is_not(Bench& bench) {
    bench.turn("UNLOAD_RUNS", "2");
    const auto executor = bench.open(bench.options());
    const auto ring = Ring::create(executor, 1, true);
    expect_failure(*ring, 1, Errc::run, "OH_NN_FAILED");
    close(executor, ring);
}

void a_lost_device_is_an_error_and_can_be_had_again(Bench& bench, const char* how, const char* told) {
    bench.turn(how, "3");
    auto executor = bench.open(bench.options());
    auto ring = Ring::create(executor, 1, true);
    CHECK(!run(*ring, 1));
    expect_failure(*ring, 2, Errc::device, told);
    if (bench.v2) {
        // The executor was reopened behind the same memory.
        const auto allocations = executor->counters().allocations;
        for (std::size_t i = 0; i < 5; ++i) CHECK(!run(*ring, i));
        CHECK(executor->counters().allocations == allocations);
    } else {
        expect_failure(*ring, 3, Errc::device, "has to be closed and reopened");
        // While the lost one is still there.
        bench.unturn();
        const auto other = bench.open(bench.options());
        const auto fresh = Ring::create(other, 1, true);
        CHECK(!run(*fresh, 4));
        close(other, fresh);
    }
    close(executor, ring);
}

void a_service_that_stays_dead_is_asked_each_time(Bench& bench) {
    bench.turn("DIE_RUNS", "2");
    bench.turn("STAY_DEAD", "1");
    const auto executor = bench.open(bench.options());
    const auto ring = Ring::create(executor, 1, true);
    expect_failure(*ring, 1, Errc::device, "the NNRT service died");
    const char* told = bench.v2 ? "cannot be reopened" : "closed and reopened";
    expect_failure(*ring, 2, Errc::device, told);
    bench.unturn();
    bench.library.reset();  // it is back
    if (bench.v2) CHECK(!run(*ring, 3));
    close(executor, ring);
}

void an_unwritten_output_is_found_at_the_start(Bench& bench) {
    bench.turn("SILENT_OUTPUT", "1");
    const auto executor = bench.open(bench.options());
    CHECK_THROWS(Ring::create(executor, 2, true), Errc::engine, "output 1 'mask'");
    CHECK(executor->close(seconds));
}

void memory_that_is_not_bound_is_named(Bench& bench) {
    if (bench.v2) return;
    bench.turn("FAIL_BIND", "output");
    const auto executor = bench.open(bench.options());
    CHECK_THROWS(Ring::create(executor, 1, true), Errc::run,
                 "output 0 'scores': not bound: device 'stand-in NPU' failed to run the model: "
                 "OH_NN_MEMORY_ERROR (3)");
    CHECK(executor->close(seconds));
}

void wrong_declarations_are_named(Bench& bench) {
    auto options = bench.options();
    if (bench.v2) {
        options.inputs = {{"image", DType::f32, {1, 4, 4, 3}, "", 0, {}}};
        CHECK_THROWS(bench.open(options), Errc::config, "float32 declared, the model has uint8");
        options.inputs = {};
        options.outputs = {{"scores", DType::f32, {1, 10}, "", 0, {}}};
        CHECK_THROWS(bench.open(options), Errc::config, "options.outputs: 1 declared, the model has 2");
        options = bench.options();
        options.input_shape = {1, 4, 5, 3};
        CHECK_THROWS(bench.open(options), Errc::model,
                     "input_shape: input 0 'image': 5 was given for dimension 2, the model has 4");
        options.input_shape = {1, 4};
        CHECK_THROWS(bench.open(options), Errc::model, "2 dimensions were given, the model has 4");
        return;
    }
    options.inputs.clear();
    CHECK_THROWS(bench.open(options), Errc::config, "options.inputs: needed");
    options = bench.options();
    options.input_shape = {1, 4, 5, 3};
    const auto executor = bench.open(options);  // nobody knows better before the first run
    CHECK_THROWS(Ring::create(executor, 1, true), Errc::run, "input 0 'image': not bound");
    CHECK(executor->close(seconds));
    options = bench.options();
    options.outputs[1].shape = {1, 9};  // more than the model makes, which binding cannot see
    const auto longer = bench.open(options);
    CHECK_THROWS(Ring::create(longer, 1, true), Errc::run, "output 1 'mask': the model made [1, 7]");
    CHECK(longer->close(seconds));
}

void open_sizes_are_filled_in(Bench& bench) {
    if (!bench.v2) return;
    bench.write(
        "standin-nnrt 1\nweights 3 1 4\ninput image uint8 NHWC 1 -1 -1 3\nrange 2 8\n"
        "output scores float32 NONE 1 10\noutput mask uint8 NONE 1 -1\n");
    auto options = bench.options();
    CHECK_THROWS(bench.open(options), Errc::model, "input 0 'image': the model leaves its size open");
    options.input_shape = {1, 4, 4, 3};
    CHECK_THROWS(bench.open(options), Errc::model, "output 1 'mask': the model leaves its size open");
    options.outputs = {{"scores", DType::f32, {1, 10}, "", 0, {}}, {"mask", DType::u8, {1, 7}, "", 0, {}}};
    options.input_shape = {1, 16, 1, 3};
    CHECK_THROWS(bench.open(options), Errc::model, "size 16 of dimension 1 is not between 2 and 8");
    options.input_shape = {1, 4, 4, 3};
    auto executor = bench.open(options);
    auto ring = Ring::create(executor, 2, true);
    CHECK(!run(*ring, 9));
    close(executor, ring);
    bench.turn("OUTPUT_SHAPE", "2");
    executor = bench.open(options);
    CHECK_THROWS(Ring::create(executor, 1, true), Errc::run, "the model made [2, 10]");
    CHECK(executor->close(seconds));
}

void memory_outlives_a_closed_executor(Bench& bench) {
    auto executor = bench.open(bench.options());
    BlockRef block = executor->allocator(0, Direction::output, 0)->lease(40);
    CHECK(!executor->close(seconds));
    executor.reset();
    CHECK(bench.library.stats().live_executors == 1);  // v1: it owns the block
    block.block().base[39] = std::byte{1};
    block.reset();
    test::eventually([&] { return bench.library.stats().live_executors == 0; });
}

void one_model_dies_while_another_runs(Bench& bench) {
    const auto executor = bench.open(bench.options());
    const auto ring = Ring::create(executor, 2, true);
    std::thread other([&] {
        for (int i = 0; i < 20; ++i) {
            const auto brief = bench.open(bench.options());
            const auto its = Ring::create(brief, 2, true);
            CHECK(!run(*its, static_cast<std::size_t>(i)));
            close(brief, its);
        }
    });
    for (std::size_t i = 0; i < 300; ++i) CHECK(!run(*ring, i));
    other.join();
    CHECK(!run(*ring, 1));
    close(executor, ring);
}

// Best fit gave any block that was large enough, and the driver was told its whole length.
void fault_08_a_much_larger_block_is_not_bound(Bench& bench) {
    const auto executor = bench.open(bench.options());
    const auto& allocator = executor->allocator(0, Direction::output, 0);
    std::byte* const large = allocator->malloc(4000);
    allocator->free(large);
    std::byte* const near = allocator->malloc(48);  // a fifth more than the tensor's 40 bytes
    allocator->free(near);
    const auto ring = Ring::create(executor, 2, true);
    for (std::size_t i = 0; i < 10; ++i) CHECK(!run(*ring, i));
    CHECK(bench.library.stats().largest_waste == 8);  // the near one was taken, not the large one
    CHECK(allocator->malloc(4000) == large);
    allocator->free(large);
    close(executor, ring);
}

void the_stand_in_is_strict(Bench& bench) {
    // What the engine never does, to see that the checks above can fail.
    const auto engine = open_nnrt(bench.options());
    const auto context = engine->open_context(0);
    const DriverBlock in = context->allocate(Direction::input, 0, 48);
    const DriverBlock scores = context->allocate(Direction::output, 0, 40);
    const DriverBlock mask = context->allocate(Direction::output, 1, 7);
    const DriverBlock spare = context->allocate(Direction::output, 1, 7);
    const auto attempt = [&](DriverBlock i, DriverBlock s, DriverBlock m) {
        const DriverBlock outputs[] = {s, m};
        context->run({{&i, 1}, outputs});
    };
    const auto misused = [&](DriverBlock i, DriverBlock s, DriverBlock m) {
        CHECK_THROWS(attempt(i, s, m), Errc::run, "OH_NN_INVALID_PARAMETER (2)");
        ++bench.misuses;
        CHECK(bench.library.stats().misuses == bench.misuses);
    };
    attempt(in, scores, mask);
    std::vector<std::byte> heap(48);
    int no_tensor = 0;
    misused({heap.data(), heap.size(), &no_tensor}, scores, mask);       // not driver memory
    if (!bench.v2) misused({in.base + 8, 40, in.handle}, scores, mask);  // inside a block
    misused(in, mask, scores);                                           // another tensor's memory
    context->release(Direction::output, 1, spare);
    misused(in, scores, spare);  // memory that is gone
    in.base[48] = std::byte{1};
    misused(in, scores, mask);  // written past the end
    in.base[48] = std::byte{0xB7};
    attempt(in, scores, mask);
    context->release(Direction::input, 0, in);
    context->release(Direction::output, 0, scores);
    context->release(Direction::output, 1, mask);
}

void asynchronous_calls_are_forbidden(Bench& bench) {
    // Which is why the engine waits on a thread of its own.
    if (!bench.v2) return;
    const auto& library = bench.library.dylib;
    CHECK(library.symbol<decltype(&::OH_NNExecutor_RunAsync)>("OH_NNExecutor_RunAsync")(
              nullptr, nullptr, 0, nullptr, 0, 0, nullptr) == OH_NN_OPERATION_FORBIDDEN);
    CHECK(library.symbol<decltype(&::OH_NNExecutor_SetOnServiceDied)>("OH_NNExecutor_SetOnServiceDied")(
              nullptr, nullptr) == OH_NN_OPERATION_FORBIDDEN);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const Library library(argv[1]);
    const bool v2 = std::string(argv[2]) == "v2";
    const auto with = [&](auto&& test) {
        Bench bench(library, v2);
        test(bench);
    };
    with(runs_in_place_and_allocates_nothing);
    with(specs_are_what_the_model_has);
    with(devices_by_id_name_and_type);
    with(refusals_are_named);
    with(a_cache_replaces_the_model);
    with(refused_memory_gives_everything_back);
    with(failures_of_a_run_are_named_and_over_with_it);
    with(a_rested_model_is_tried_again);
    with(a_busy_model_is_not);
    with([](Bench& b) {
        a_lost_device_is_an_error_and_can_be_had_again(b, "DIE_RUNS", "the NNRT service died");
    });
    with([](Bench& b) { a_lost_device_is_an_error_and_can_be_had_again(b, "LOSE_RUNS", "was lost"); });
    with(a_service_that_stays_dead_is_asked_each_time);
    with(an_unwritten_output_is_found_at_the_start);
    with(memory_that_is_not_bound_is_named);
    with(wrong_declarations_are_named);
    with(open_sizes_are_filled_in);
    with(memory_outlives_a_closed_executor);
    with(one_model_dies_while_another_runs);
    with(fault_08_a_much_larger_block_is_not_bound);
    with(the_stand_in_is_strict);
    with(asynchronous_calls_are_forbidden);
}
