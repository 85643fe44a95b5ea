// Engine mindspore_lite on the stand-ins of vendor/mindspore_lite: arguments are the library and its
// family, OH_AI or MS. The tests fault_NN are of the faults of the original zero-copy change, by number.
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backends/dylib.hpp"
#include "backends/mindspore_lite.hpp"
#include "check.hpp"
#include "core/ring.hpp"
#include "support.hpp"

using namespace pipeline;

namespace {

constexpr auto seconds = std::chrono::seconds(20);
constexpr const char* model_text =
    "mindspore-lite-standin\n"
    "input image uint8 NHWC 1 4 4 3\n"
    "input extra int32 NCHW 1 5\n"
    "output scores float32 NCHW 1 10\n"
    "output map uint8 NHWC 1 2 3 2\n"
    "output wide int64 NCHW 3 5\n";
constexpr std::size_t image_bytes = 48;
constexpr std::size_t extra_count = 5;
constexpr std::array<std::size_t, 3> output_counts = {10, 12, 15};

struct Library {
    Library(const std::string& path, std::string f) : dylib(path), family(std::move(f)) {}
    [[nodiscard]] std::int64_t count(const char* name) const {
        return dylib.symbol<std::int64_t (*)(const char*)>("standin_mslite_count")(name);
    }
    void reset() const { dylib.symbol<void (*)()>("standin_mslite_reset")(); }
    Dylib dylib;
    std::string family;
};

// Each test begins with the switches it names, and ends with nothing alive and no rule broken.
class Bench {
public:
    explicit Bench(const Library& l) : library(l) {
        folder_ = std::filesystem::temp_directory_path() / ("mslite-" + std::to_string(::getpid()));
        std::filesystem::create_directories(folder_);
        write(model_text);
        library.reset();
    }
    ~Bench() {
        for (const auto& name : set_) ::unsetenv(name.c_str());
        CHECK(library.count("violations") == 0);
        for (const char* kind : {"models_live", "contexts_live", "devices_live", "tensors_live", "lists_live",
                                 "blocks_live", "allocators_live"}) {
            if (renewed && std::string_view(kind) == "allocators_live") continue;
            // The thread that opened a context may be the last to let go of it.
            test::eventually([&] { return library.count(kind) == 0; });
        }
        if (!renewed) {
            test::eventually(
                [&] { return library.count("driver_allocations") == library.count("driver_frees"); });
        }
        std::filesystem::remove_all(folder_);
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;

    void write(const std::string& text) const { std::ofstream(model()) << text; }
    [[nodiscard]] std::string model() const { return (folder_ / "model.ms").string(); }
    void turn(const std::string& name, const std::string& value) {
        set_.push_back("STANDIN_MSLITE_" + name);
        ::setenv(set_.back().c_str(), value.c_str(), 1);
        if (name == "RENEWED") renewed = true;
    }
    [[nodiscard]] bool oh() const { return library.family == "OH_AI"; }

    [[nodiscard]] MindSporeLiteOptions options() const {
        MindSporeLiteOptions result;
        result.library = library.dylib.path();
        result.model = model();
        result.device = "CPU";
        return result;
    }
    [[nodiscard]] std::shared_ptr<Executor> open(std::size_t contexts = 1) const {
        MindSporeLiteOptions result = options();
        result.contexts = contexts;
        return open(result);
    }
    [[nodiscard]] static std::shared_ptr<Executor> open(const MindSporeLiteOptions& o) {
        return std::make_shared<Executor>(open_mindspore_lite(o),
                                          Allocator::Limits{std::size_t{1} << 20, seconds});
    }

    const Library& library;
    bool renewed = false;

private:
    std::filesystem::path folder_;
    std::vector<std::string> set_;
};

struct Values {
    explicit Values(std::size_t seed) {
        for (std::size_t i = 0; i < image.size(); ++i)
            image[i] = static_cast<std::uint8_t>(seed * 31 + i * 7);
        for (std::size_t i = 0; i < extra.size(); ++i)
            extra[i] = static_cast<std::int32_t>(seed % 100 + i) - 50;
    }
    // Element `k` of output `j`, by the stand-in's rule.
    [[nodiscard]] std::int64_t expected(std::size_t j, std::size_t k) const {
        auto sum = static_cast<std::int64_t>(j + 1);
        for (std::size_t i = k; i < image.size(); i += output_counts[j]) sum += image[i];
        for (std::size_t i = k; i < extra.size(); i += output_counts[j]) sum += 2 * extra[i];
        return sum;
    }
    // Whether `data` is output `j` for these inputs.
    [[nodiscard]] bool match(std::size_t j, const std::byte* data) const {
        for (std::size_t k = 0; k < output_counts[j]; ++k) {
            const std::int64_t wanted = expected(j, k);
            float real = 0;
            std::int64_t wide = 0;
            if (j == 0) std::memcpy(&real, data + 4 * k, 4);
            if (j == 2) std::memcpy(&wide, data + 8 * k, 8);
            const bool same = j == 0   ? real == static_cast<float>(wanted)
                              : j == 1 ? data[k] == static_cast<std::byte>(wanted & 0xFF)
                                       : wide == wanted;
            if (!same) return false;
        }
        return true;
    }

    std::array<std::uint8_t, image_bytes> image{};
    std::array<std::int32_t, extra_count> extra{};
};

void fill(Ring& ring, SlotId id, const Values& values) {
    std::memcpy(ring.view(id, Direction::input, 0)->data(), values.image.data(), image_bytes);
    std::memcpy(ring.view(id, Direction::input, 1)->data(), values.extra.data(), sizeof values.extra);
}

// One run on the slot's own memory; its error, if it had one.
std::optional<Error> run(Ring& ring, std::size_t seed) {
    const Values values(seed);
    const SlotId id = test::acquire(ring);
    fill(ring, id, values);
    ring.submit(id, {}, {});
    const auto done = test::wait_completions(ring);
    CHECK(done.size() == 1);
    if (!done[0].error) {
        ring.lease(id);
        for (std::size_t j = 0; j < output_counts.size(); ++j) {
            CHECK(values.match(j, ring.view(id, Direction::output, j)->data()));
        }
    }
    ring.release(id);
    return done[0].error;
}

void close(std::shared_ptr<Executor>& executor, std::shared_ptr<Ring>& ring) {
    ring->close();
    CHECK(executor->close(seconds));
    ring.reset();
    executor.reset();
}

// Everything works with these switches; what each tensor is told to take is given to `check`.
template <class Check>
void works(Bench& bench, Check check) {
    auto executor = bench.open(2);
    auto ring = Ring::create(executor, 3, true);
    for (std::size_t seed = 0; seed < 50; ++seed) CHECK(!run(*ring, seed));
    check(*executor);
    close(executor, ring);
}

void runs_in_place_and_allocates_nothing(Bench& bench) {
    auto executor = bench.open(2);
    auto ring = Ring::create(executor, 4, true);
    const auto before = executor->counters();
    const auto driver = bench.library.count("driver_allocations");
    for (std::size_t seed = 0; seed < 2000; ++seed) CHECK(!run(*ring, seed));
    CHECK(executor->counters().allocations == before.allocations);
    CHECK(bench.library.count("driver_allocations") == driver);
    for (std::size_t i = 0; i < 2; ++i) {
        CHECK(executor->zero_copy(Direction::input, i));
        CHECK(executor->route(Direction::input, i) ==
              (bench.oh() ? "zero-copy, memory of the model's allocator" : "zero-copy, read in place"));
    }
    for (std::size_t j = 0; j < 3; ++j) {
        CHECK(executor->zero_copy(Direction::output, j) == bench.oh());
        CHECK(executor->route(Direction::output, j) ==
              (bench.oh() ? "zero-copy, memory of the model's allocator" : "copied by the engine"));
    }
    CHECK(bench.library.count("inputs_copied") == 0);
    CHECK(bench.library.count("outputs_copied") == 0);
    CHECK(bench.library.count("set_data") == 0);
    close(executor, ring);
}

void specs_are_what_the_model_says(Bench& bench) {
    const auto engine = open_mindspore_lite(bench.options());
    CHECK(engine->name() == "mindspore_lite");
    CHECK(engine->device() == "CPU");
    CHECK(engine->inputs().size() == 2 && engine->outputs().size() == 3);
    const auto& image = engine->inputs()[0];
    CHECK(image.name == "image" && image.dtype == DType::u8 && image.layout == "NHWC");
    CHECK((image.shape == std::vector<std::int64_t>{1, 4, 4, 3}));
    CHECK(engine->inputs()[1].layout.empty());
    CHECK(engine->outputs()[2].dtype == DType::i64 && engine->outputs()[2].byte_size() == 120);
}

void pictures_are_converted(Bench& bench) {
    bench.write("mindspore-lite-standin\ninput image float32 NCHW 1 3 4 4\noutput sums float32 NCHW 1 3\n");
    auto options = bench.options();
    options.picture = PictureOptions{true, {8}, {2}};
    auto executor = Bench::open(options);
    CHECK(executor->spec(Direction::input, 0).dtype == DType::u8);
    CHECK((executor->spec(Direction::input, 0).shape == std::vector<std::int64_t>{1, 4, 4, 3}));
    auto ring = Ring::create(executor, 2, true);
    const SlotId id = test::acquire(*ring);
    std::array<std::uint8_t, 48> pixels{};
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 5);
    std::memcpy(ring->view(id, Direction::input, 0)->data(), pixels.data(), pixels.size());
    ring->submit(id, {}, {});
    CHECK(!test::wait_completions(*ring)[0].error);
    ring->lease(id);
    std::array<float, 48> planes{};
    for (std::size_t c = 0; c < 3; ++c) {
        for (std::size_t i = 0; i < 16; ++i)
            planes[c * 16 + i] = (static_cast<float>(pixels[i * 3 + 2 - c]) - 8) / 2;
    }
    for (std::size_t k = 0; k < 3; ++k) {
        float sum = 1;
        for (std::size_t i = k; i < planes.size(); i += 3) sum += planes[i];
        float value = 0;
        std::memcpy(&value, ring->view(id, Direction::output, 0)->data() + 4 * k, 4);
        CHECK(value == sum);
    }
    ring->release(id);
    CHECK(!executor->zero_copy(Direction::input, 0));
    CHECK(executor->route(Direction::input, 0).starts_with("converted from uint8"));
    close(executor, ring);
}

void an_open_shape_is_filled_in(Bench& bench) {
    bench.write("mindspore-lite-standin\ninput image uint8 NHWC 1 -1 -1 3\noutput sums float32 NCHW 1 -1\n");
    auto options = bench.options();
    CHECK_THROWS(open_mindspore_lite(options), Errc::model, "input 0 'image' has the open shape [1,?,?,3]");
    options.input_shape = std::vector<std::int64_t>{1, 6, 8, 3};
    {
        auto executor = Bench::open(options);
        CHECK((executor->spec(Direction::input, 0).shape == std::vector<std::int64_t>{1, 6, 8, 3}));
        // The library tells it after a run only.
        CHECK((executor->spec(Direction::output, 0).shape == std::vector<std::int64_t>{1, 6}));
        auto ring = Ring::create(executor, 2, true);
        close(executor, ring);
    }
    options.input_shape = std::vector<std::int64_t>{1, 6, 8};
    CHECK_THROWS(open_mindspore_lite(options), Errc::model, "input 0 cannot have the shape [1,6,8]");
}

void refusals_are_named(Bench& bench) {
    auto options = bench.options();
    options.contexts = 0;
    CHECK_THROWS(open_mindspore_lite(options), Errc::config, "contexts");
    options = bench.options();
    options.library = "libm.so.6";
    CHECK_THROWS(open_mindspore_lite(options), Errc::not_installed, "libm.so.6: the library has neither");
    options.library = "/nowhere/libmindspore.so";
    CHECK_THROWS(open_mindspore_lite(options), Errc::not_installed, "/nowhere/libmindspore.so");
    options = bench.options();
    options.model = "/nowhere/model.ms";
    CHECK_THROWS(open_mindspore_lite(options), Errc::model, "/nowhere/model.ms: no such model file");
    bench.write("nothing of the kind");
    CHECK_THROWS(open_mindspore_lite(bench.options()), Errc::model, "GRAPH_FILE_ERROR (0xFFFFFF38)");
    bench.write("mindspore-lite-standin\ninput words string NCHW 1\noutput o uint8 NCHW 1\n");
    CHECK_THROWS(open_mindspore_lite(bench.options()), Errc::model,
                 "input 0 'words' has an element type that is not supported: string");
    bench.write("mindspore-lite-standin\ninput i uint8 NCHW 1\n");
    CHECK_THROWS(open_mindspore_lite(bench.options()), Errc::model, "the model has no outputs");
    bench.write(model_text);
    options = bench.options();
    options.device = "TPU";
    CHECK_THROWS(open_mindspore_lite(options), Errc::device, "device 'TPU' is absent");
    options.device = "GPU";
    CHECK_THROWS(open_mindspore_lite(options), Errc::device, "device 'GPU' is absent");
    options = bench.options();
    options.performance = 2;
    CHECK_THROWS(open_mindspore_lite(options), Errc::config, "options.performance: only for device NNRT");
    options = bench.options();
    options.frequency = 1;
    CHECK_THROWS(open_mindspore_lite(options), Errc::config, "options.frequency: only for device NPU");
    options = bench.options();
    options.affinity = 1;
    CHECK_THROWS(open_mindspore_lite(options), Errc::config, "options.affinity: ");
    if (!bench.oh()) {
        options = bench.options();
        options.fp16 = true;
        CHECK_THROWS(open_mindspore_lite(options), Errc::config, "has no MSDeviceInfoSetEnableFP16");
    }
}

void devices_by_id_name_and_type(Bench& bench) {
    auto options = bench.options();
    options.device = "NNRT";
    CHECK_THROWS(open_mindspore_lite(options), Errc::device, "device 'NNRT' is absent");
    bench.turn("DEVICES", "7:small:2,9:large:3");
    if (!bench.oh()) {
        CHECK_THROWS(open_mindspore_lite(options), Errc::device, "finds here: CPU");
        return;
    }
    const auto opened = [&](const char* device, const char* id) {
        options.device = device;
        const auto before = bench.library.count(id);
        const auto engine = open_mindspore_lite(options);
        CHECK(bench.library.count(id) == before + 1);
        return engine->device();
    };
    CHECK(opened("NNRT", "device_9") == "NNRT: large (accelerator, id 9)");
    CHECK(opened("NNRT:7", "device_7") == "NNRT: small (GPU, id 7)");
    CHECK(opened("NNRT:gpu", "device_7") == "NNRT: small (GPU, id 7)");
    CHECK(opened("NNRT:large", "device_9") == "NNRT: large (accelerator, id 9)");
    CHECK(opened("NNRT:LARGE", "device_9") == "NNRT: large (accelerator, id 9)");
    options.device = "NNRT:8";
    CHECK_THROWS(open_mindspore_lite(options), Errc::device,
                 "finds here: CPU, NNRT:small (GPU, id 7), NNRT:large (accelerator, id 9)");
    options.device = "NNRT";
    options.performance = 3;
    options.priority = 2;
    options.fp16 = true;
    options.extensions = {{"CachePath", "/tmp"}};
    options.threads = 3;
    static_cast<void>(open_mindspore_lite(options));
    CHECK(bench.library.count("performance_set") == 3);
    CHECK(bench.library.count("priority_set") == 2);
    CHECK(bench.library.count("fp16_set") == 2);  // of the device and of the CPU that helps out
    CHECK(bench.library.count("extensions_set") == 1);
    CHECK(bench.library.count("threads_set") == 3);
    options.extensions = {{"Nonsense", "1"}};
    CHECK_THROWS(open_mindspore_lite(options), Errc::config, "options.extensions: Nonsense = '1' is refused");
    const auto listed = list_mindspore_lite_devices(options.library);
    CHECK(listed.family == "OH_AI" && listed.devices.size() == 3);
    CHECK(listed.devices[2].first == "NNRT:9");
    options.extensions.clear();
    bench.turn("DEVICES", "3:npu:3,4:NPU:3,5:gpu:0,6:other:2");  // names before types, the same letters first
    CHECK(opened("NNRT:NPU", "device_4") == "NNRT: NPU (accelerator, id 4)");
    CHECK(opened("NNRT:Npu", "device_3") == "NNRT: npu (accelerator, id 3)");
    CHECK(opened("NNRT:GPU", "device_5") == "NNRT: gpu (others, id 5)");
}

void a_failed_run_is_named_and_over_with_it(Bench& bench) {
    auto executor = bench.open();
    auto ring = Ring::create(executor, 2, true);
    const auto next = bench.library.count("runs") + 2;
    bench.turn("FAIL_RUNS", std::to_string(next));
    CHECK(!run(*ring, 1));
    const auto error = run(*ring, 2);
    CHECK(error && error->code() == Errc::run);
    CHECK(std::string_view(error->what()).find("OP_EXECUTE_FAILURE") != std::string_view::npos);
    for (std::size_t seed = 3; seed < 20; ++seed) CHECK(!run(*ring, seed));
    close(executor, ring);
}

void refused_memory_gives_everything_back(Bench& bench) {
    auto executor = bench.open();
    bench.turn("NO_MEMORY", "7");
    CHECK_THROWS(Ring::create(executor, 3, true), Errc::allocation,
                 "bytes needed, MindSpore Lite gives none");
    CHECK(executor->close(seconds));
}

void one_model_ends_while_another_runs(Bench& bench) {
    auto kept = bench.open();
    auto ring = Ring::create(kept, 2, true);
    std::thread other([&] {
        for (int i = 0; i < 20; ++i) {
            auto executor = bench.open();
            auto short_lived = Ring::create(executor, 2, true);
            CHECK(!run(*short_lived, static_cast<std::size_t>(i)));
            close(executor, short_lived);
        }
    });
    for (std::size_t seed = 0; seed < 500; ++seed) CHECK(!run(*ring, seed));
    other.join();
    close(kept, ring);
}

void memory_outlives_a_closed_executor(Bench& bench) {
    auto executor = bench.open();
    auto ring = Ring::create(executor, 2, true);
    const Values values(5);
    const SlotId id = test::acquire(*ring);
    fill(*ring, id, values);
    ring->submit(id, {}, {});
    CHECK(!test::wait_completions(*ring)[0].error);
    ring->lease(id);
    auto view = ring->view(id, Direction::output, 2);
    ring->close();
    CHECK(!executor->close(seconds));
    CHECK(values.match(2, view->data()));
    CHECK(bench.library.count("models_live") == 1);
    view.reset();
    test::eventually([&] { return bench.library.count("models_live") == 0; });
}

// A static registry was cleared with every model: allocators of the others were then unknown.
void fault_01_a_library_that_forgets_allocators(Bench& bench) {
    bench.turn("FORGETFUL", "1");
    auto executor = bench.open();
    auto ring = Ring::create(executor, 1, true);
    static_cast<void>(open_mindspore_lite(bench.options()));  // and it ends
    auto second = Ring::create(executor, 3, true);
    CHECK(!run(*second, 1));
    CHECK(executor->zero_copy(Direction::output, 0));
    second->close();
    second.reset();
    close(executor, ring);
}

// The original's list had no lock. The stand-in's has none for its callers, and counts two at once.
void fault_02_one_thread_at_a_time_lists_allocators(Bench& bench) {
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            for (std::size_t i = 0; i < 10; ++i) {
                auto executor = bench.open(2);
                auto ring = Ring::create(executor, 2, true);
                CHECK(!run(*ring, 10 * t + i));
                CHECK(executor->zero_copy(Direction::output, 0));
                close(executor, ring);
            }
        });
    }
    for (auto& thread : threads) thread.join();
}

// The allocator had ended, so the tensor silently had none, with success.
void fault_03_an_allocator_that_is_not_taken_is_an_error(Bench& bench) {
    bench.turn("EXPIRED", "1");
    const auto executor = bench.open();
    CHECK_THROWS(Ring::create(executor, 2, true), Errc::allocation,
                 "input 0 'image': MindSpore Lite did not take the model's allocator");
    CHECK(executor->close(seconds));
}

// Null passed for an allocator, as did any other key.
void fault_04_a_null_allocator_is_an_error(Bench& bench) {
    bench.turn("LOST", "map");
    const auto executor = bench.open();
    CHECK_THROWS(Ring::create(executor, 2, true), Errc::allocation, "output 1 'map': the allocator is null");
    CHECK(executor->close(seconds));
}

void fault_04_an_unknown_allocator_is_an_error(Bench& bench) {
    bench.turn("RENEWED", "map");
    const auto executor = bench.open();
    CHECK_THROWS(Ring::create(executor, 2, true), Errc::allocation,
                 "output 1 'map': the allocator is unknown: this model never gave it out");
    CHECK(executor->close(seconds));
}

// The same for memory of the engine's own, which a picture is converted into.
void fault_04_the_engine_s_own_memory_needs_an_allocator_too(Bench& bench) {
    bench.write("mindspore-lite-standin\ninput image float32 NCHW 1 3 4 4\noutput sums float32 NCHW 1 3\n");
    auto options = bench.options();
    options.picture = PictureOptions{true, {}, {}};
    bench.turn("LOST", "image");
    CHECK_THROWS(Bench::open(options), Errc::allocation, "input 0 'image': the allocator is null");
}

// Null was passed on as an allocator. The stand-in counts that.
void fault_04_a_tensor_without_allocator_is_copied(Bench& bench) {
    bench.turn("NO_ALLOCATOR", "all");
    works(bench, [](const Executor& executor) {
        for (std::size_t i = 0; i < 2; ++i) CHECK(!executor.zero_copy(Direction::input, i));
        for (std::size_t j = 0; j < 3; ++j) CHECK(!executor.zero_copy(Direction::output, j));
        CHECK(executor.route(Direction::input, 0) == "copied by the library, which has another allocator");
        CHECK(executor.route(Direction::output, 1) == "copied by the library");
    });
}

// A tensor with memory got an allocator that then freed what it had never given.
void fault_05_a_tensor_with_memory_gets_no_allocator(Bench& bench) {
    bench.turn("EAGER", "1");
    works(bench, [](const Executor& executor) { CHECK(!executor.zero_copy(Direction::input, 0)); });
}

// Everything was decided by the allocator of output 0.
void fault_14_each_tensor_is_decided_by_itself(Bench& bench) {
    for (const bool first_output : {true, false}) {
        Bench one(bench.library);
        one.turn("NO_ALLOCATOR", first_output ? "scores,extra" : "map,image");
        works(one, [&](const Executor& executor) {
            CHECK(executor.zero_copy(Direction::input, 0) == first_output);
            CHECK(executor.zero_copy(Direction::input, 1) != first_output);
            CHECK(executor.zero_copy(Direction::output, 0) != first_output);
            CHECK(executor.zero_copy(Direction::output, 1) == first_output);
            CHECK(executor.zero_copy(Direction::output, 2));
        });
    }
}

// The same for a caller's own arrays: foreign memory beside driver memory.
void fault_14_foreign_arrays_beside_bound_ones(Bench& bench) {
    auto executor = bench.open();
    auto ring = Ring::create(executor, 2, true);
    const Values values(9);
    const SlotId id = test::acquire(*ring);
    fill(*ring, id, Values(1));
    auto image = values.image;
    const auto& allocator = executor->allocator(0, Direction::input, 1);
    BlockRef extra = allocator->lease(sizeof values.extra);
    std::memcpy(extra.block().base, values.extra.data(), sizeof values.extra);
    BlockRef scores = executor->allocator(0, Direction::output, 0)->lease(40);
    std::vector<std::byte> wide(120);
    const std::array<UserArray, 2> inputs = {{{0, reinterpret_cast<std::byte*>(image.data()), image_bytes},
                                              {1, extra.block().base, sizeof values.extra}}};
    const std::array<UserArray, 2> outputs = {{{0, scores.block().base, 40}, {2, wide.data(), wide.size()}}};
    const auto routes = ring->submit(id, inputs, outputs);
    CHECK((routes == std::vector{Route::copied, Route::bound, Route::bound, Route::slot, Route::copied}));
    CHECK(!test::wait_completions(*ring)[0].error);
    ring->lease(id);
    CHECK(values.match(0, scores.block().base));
    CHECK(values.match(1, ring->view(id, Direction::output, 1)->data()));
    ring->copy_output(id, outputs[1]);
    CHECK(values.match(2, wide.data()));
    ring->release(id);
    extra.reset();
    scores.reset();
    close(executor, ring);
}

struct Blocks {
    Blocks(const Engine& engine, EngineContext& c) : context(c) {
        for (const auto direction : {Direction::input, Direction::output}) {
            const auto& specs = direction == Direction::input ? engine.inputs() : engine.outputs();
            auto& list = direction == Direction::input ? inputs : outputs;
            for (std::size_t i = 0; i < specs.size(); ++i)
                list.push_back(context.allocate(direction, i, specs[i].byte_size()));
        }
    }
    ~Blocks() {
        for (std::size_t i = 0; i < inputs.size(); ++i) context.release(Direction::input, i, inputs[i]);
        for (std::size_t j = 0; j < outputs.size(); ++j) context.release(Direction::output, j, outputs[j]);
    }
    Blocks(const Blocks&) = delete;
    Blocks& operator=(const Blocks&) = delete;

    EngineContext& context;
    std::vector<DriverBlock> inputs;
    std::vector<DriverBlock> outputs;
};

// Any pointer was taken for the base of a block.
void fault_15_only_the_base_of_a_live_block_is_bound(Bench& bench) {
    const auto engine = open_mindspore_lite(bench.options());
    const auto context = engine->open_context(0);
    const Blocks blocks(*engine, *context);
    const auto refused = [&](std::size_t index, DriverBlock block, const char* part) {
        auto outputs = blocks.outputs;
        outputs[index] = block;
        const auto runs = bench.library.count("runs");
        CHECK_THROWS(context->run({blocks.inputs, outputs}), Errc::run, part);
        CHECK(bench.library.count("runs") == runs);
    };
    std::vector<std::byte> heap(120);
    auto inside = blocks.outputs[2];
    inside.base += 8;
    refused(2, {heap.data(), heap.size(), nullptr}, "output 2 'wide': the memory bound is no block");
    refused(2, inside, "output 2 'wide': the memory bound is no block");
    refused(0, blocks.outputs[1], "output 0 'scores': the memory bound is another tensor's");
    const auto extra = context->allocate(Direction::output, 0, 40);
    context->release(Direction::output, 0, extra);
    refused(0, extra, "output 0 'scores': the memory bound is no block");
    CHECK_THROWS(context->allocate(Direction::output, 0, 41), Errc::allocation, "41 bytes asked for");
    context->run({blocks.inputs, blocks.outputs});
}

// The number in the array of outputs was read without having been set. The stand-in counts that.
void fault_16_the_output_array_is_always_initialised(Bench& bench) {
    for (const char* mode : {"honour", "replace", "drop"}) {
        Bench one(bench.library);
        one.turn("OUTPUTS", mode);
        works(one, [](const Executor&) {});
    }
}

// What comes back in it was not looked at either.
void fault_16_an_output_array_that_is_not_whole_is_an_error(Bench& bench) {
    for (const auto& [mode, part] :
         {std::pair("null", "output 0 'scores': MindSpore Lite gave 3 outputs of 3"),
          std::pair("hole", "output 2 'wide': MindSpore Lite gave 3 outputs of 3"),
          std::pair("short", "output 0 'scores': MindSpore Lite gave 2 outputs of 3")}) {
        Bench one(bench.library);
        one.turn("OUTPUTS", mode);
        const auto executor = one.open();
        CHECK_THROWS(Ring::create(executor, 2, true), Errc::run, part);
        CHECK(executor->close(seconds));
    }
}

void outputs_that_are_refused_take_another_way(Bench& bench) {
    bench.turn("OUTPUTS", "refuse");
    works(bench, [&](const Executor& executor) {
        for (std::size_t j = 0; j < 3; ++j) {
            CHECK(executor.route(Direction::output, j) ==
                  (bench.oh() ? "zero-copy, external memory of the model's output" : "copied by the engine"));
        }
    });
    if (!bench.oh()) return;
    bench.turn("USER_DATA", "refuse");
    works(bench, [](const Executor& executor) {
        CHECK(executor.route(Direction::output, 1) == "copied by the engine");
    });
}

// A first run that fails with and without them is the model's failure.
void a_model_that_cannot_run_is_not_taken_for_one_that_refuses_outputs(Bench& bench) {
    bench.turn("FAIL_RUNS", "all");
    const auto executor = bench.open();
    CHECK_THROWS(Ring::create(executor, 1, true), Errc::run, "OP_EXECUTE_FAILURE");
    CHECK(executor->close(seconds));
}

// With data missing in one output, all of the caller's were dropped, and the run succeeded.
void fault_17_dropped_outputs_are_found_out(Bench& bench) {
    bench.turn("OUTPUTS", "drop");
    works(bench, [&](const Executor& executor) {
        for (std::size_t j = 0; j < 3; ++j) {
            CHECK(executor.zero_copy(Direction::output, j) == bench.oh());
            CHECK(executor.route(Direction::output, j) ==
                  (bench.oh() ? "zero-copy, external memory of the model's output" : "copied by the engine"));
        }
    });
}

void fault_17_an_output_without_data_is_an_error(Bench& bench) {
    const auto engine = open_mindspore_lite(bench.options());
    const auto context = engine->open_context(0);
    const Blocks blocks(*engine, *context);
    context->run({blocks.inputs, blocks.outputs});
    for (auto side : {Direction::input, Direction::output}) {
        auto inputs = blocks.inputs;
        auto outputs = blocks.outputs;
        (side == Direction::input ? inputs : outputs)[1].base = nullptr;
        const auto runs = bench.library.count("runs");
        CHECK_THROWS(context->run({inputs, outputs}), Errc::run,
                     side == Direction::input ? "input 1 'extra': no memory" : "output 1 'map': no memory");
        CHECK(bench.library.count("runs") == runs);
    }
    CHECK_THROWS(context->run({blocks.inputs, std::span(blocks.outputs).first(2)}), Errc::run,
                 "outputs: the model has 3, the run 2");
}

// The library may or may not take external memory for its outputs.
void outputs_are_copied_where_nothing_else_works(Bench& bench) {
    bench.turn("OUTPUTS", "replace");
    bench.turn("USER_DATA", "refuse");
    works(bench, [](const Executor& executor) {
        for (std::size_t j = 0; j < 3; ++j) {
            CHECK(!executor.zero_copy(Direction::output, j));
            CHECK(executor.route(Direction::output, j) == "copied by the engine");
        }
    });
}

// The model's output kept the caller's memory after the run, and the next run wrote into it.
void fault_12_no_run_leaves_a_slot_bound(Bench& bench) {
    bench.turn("OUTPUTS", "replace");
    const auto engine = open_mindspore_lite(bench.options());
    const auto context = engine->open_context(0);
    {
        const Blocks gone(*engine, *context);
        context->run({gone.inputs, gone.outputs});
        bench.turn("FAIL_RUNS", std::to_string(bench.library.count("runs") + 1));
        CHECK_THROWS(context->run({gone.inputs, gone.outputs}), Errc::run);
    }
    // Whatever a run writes to besides its own outputs is freed now: the stand-in's guards, its
    // poison and the address sanitizer watch.
    const Blocks blocks(*engine, *context);
    std::memset(blocks.inputs[0].base, 1, image_bytes);
    context->run({blocks.inputs, blocks.outputs});
    CHECK(context->zero_copy(Direction::output, 0));
}

void a_slot_that_stays_bound_or_cannot_be_bound_is_an_error(Bench& bench) {
    bench.turn("OUTPUTS", "replace");
    auto executor = bench.open();
    auto ring = Ring::create(executor, 2, true);
    const auto failing = [&](std::int64_t call, std::string_view part) {
        bench.turn("USER_DATA", std::to_string(bench.library.count("user_data_calls") + call));
        const auto error = run(*ring, 1);
        CHECK(error && error->code() == Errc::run);
        if (std::string_view(error->what()).find(part) == std::string_view::npos)
            test::fail(__FILE__, __LINE__, "the message", error->what());
        for (std::size_t seed = 2; seed < 6; ++seed) CHECK(!run(*ring, seed));
        CHECK(executor->zero_copy(Direction::output, 1));
    };
    // Three outputs are bound, then pointed away again.
    failing(2, "output 1 'map' cannot be bound: NOT_SUPPORT (0xFFFFFFF9)");
    failing(5, "output 1 'map' still points to the slot, unbinding it failed: NOT_SUPPORT (0xFFFFFFF9)");
    close(executor, ring);
}

// A slot whose allocator is not the one that the model's tensor has now has a foreign one.
void a_foreign_allocator_means_copies(Bench& bench) {
    auto executor = bench.open();
    auto ring = Ring::create(executor, 2, true);
    CHECK(executor->zero_copy(Direction::input, 0) && executor->zero_copy(Direction::output, 1));
    bench.turn("RENEWED", "image,map");
    CHECK(executor->route(Direction::input, 0) == "copied by the library, which has another allocator");
    CHECK(executor->route(Direction::output, 1) == "copied by the library");
    for (std::size_t seed = 0; seed < 20; ++seed) CHECK(!run(*ring, seed));
    CHECK(bench.library.count("inputs_copied") >= 20 && bench.library.count("outputs_copied") >= 20);
    CHECK(executor->zero_copy(Direction::input, 1) && executor->zero_copy(Direction::output, 0));
    close(executor, ring);
}

}  // namespace

int main(int count, char** arguments) {
    CHECK(count == 3);
    const Library library(arguments[1], arguments[2]);
    const auto test = [&](auto function) {
        Bench bench(library);
        function(bench);
    };
    test(runs_in_place_and_allocates_nothing);
    test(specs_are_what_the_model_says);
    test(pictures_are_converted);
    test(an_open_shape_is_filled_in);
    test(refusals_are_named);
    test(devices_by_id_name_and_type);
    test(a_failed_run_is_named_and_over_with_it);
    test(one_model_ends_while_another_runs);
    test(memory_outlives_a_closed_executor);
    test(fault_14_foreign_arrays_beside_bound_ones);
    test(fault_15_only_the_base_of_a_live_block_is_bound);
    test(fault_17_dropped_outputs_are_found_out);
    test(fault_17_an_output_without_data_is_an_error);
    test(fault_16_an_output_array_that_is_not_whole_is_an_error);
    test(outputs_that_are_refused_take_another_way);
    test(a_model_that_cannot_run_is_not_taken_for_one_that_refuses_outputs);
    if (library.family != "OH_AI") return 0;
    test(refused_memory_gives_everything_back);
    test(fault_01_a_library_that_forgets_allocators);
    test(fault_02_one_thread_at_a_time_lists_allocators);
    test(fault_03_an_allocator_that_is_not_taken_is_an_error);
    test(fault_04_a_null_allocator_is_an_error);
    test(fault_04_the_engine_s_own_memory_needs_an_allocator_too);
    test(fault_04_a_tensor_without_allocator_is_copied);
    test(fault_05_a_tensor_with_memory_gets_no_allocator);
    test(fault_12_no_run_leaves_a_slot_bound);
    test(fault_14_each_tensor_is_decided_by_itself);
    test(fault_16_the_output_array_is_always_initialised);
    test(outputs_are_copied_where_nothing_else_works);
    test(a_slot_that_stays_bound_or_cannot_be_bound_is_an_error);
    // Last, for allocators that were replaced are kept.
    test(fault_04_an_unknown_allocator_is_an_error);
    test(a_foreign_allocator_means_copies);
}
