// Engine mindspore_lite on the stand-ins of vendor/mindspore_lite: arguments are the library and its
// family, OH_AI or MS.
#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "mindspore_lite_support.hpp"

using namespace pipeline;
using namespace pipeline::test;

namespace {

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

void images_are_converted(Bench& bench) {
    bench.write("mindspore-lite-standin\ninput image float32 NCHW 1 3 4 4\noutput sums float32 NCHW 1 3\n");
    auto options = bench.options();
    options.image = ImageOptions{true, {8}, {2}};
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
    CHECK(listed.version == "OH_AI" && listed.devices.size() == 3);
    CHECK(listed.devices[2].first == "NNRT:9");
    options.extensions.clear();
    bench.turn("DEVICES", "3:npu:3,4:NPU:3,5:gpu:0,6:other:2");  // names before types, the same letters first
    CHECK(opened("NNRT:NPU", "device_4") == "NNRT: NPU (accelerator, id 4)");
    CHECK(opened("NNRT:Npu", "device_3") == "NNRT: npu (accelerator, id 3)");
    CHECK(opened("NNRT:GPU", "device_5") == "NNRT: gpu (others, id 5)");
}

void the_kirin_npu_has_the_cpu_for_what_it_lacks(Bench& bench) {
    auto options = bench.options();
    options.device = "NPU";
    for (const bool fallback : {true, false}) {
        options.cpu_fallback = fallback;
        const auto before = bench.library.count("devices_given");
        auto executor = Bench::open(options);
        CHECK(bench.library.count("devices_given") == before + (fallback ? 2 : 1));
        auto ring = Ring::create(executor, 2, true);
        CHECK(!run(*ring, 1));
        close(executor, ring);
    }
    CHECK(open_mindspore_lite(options)->device() == "Kirin NPU");
    options.frequency = 3;
    if (bench.oh()) {
        static_cast<void>(open_mindspore_lite(options));
        CHECK(bench.library.count("frequency_set") == 3);
    } else {
        CHECK_THROWS(open_mindspore_lite(options), Errc::config,
                     "options.frequency: " + options.library + " has no MSDeviceInfoSetFrequency");
    }
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
    test(images_are_converted);
    test(an_open_shape_is_filled_in);
    test(refusals_are_named);
    test(devices_by_id_name_and_type);
    test(the_kirin_npu_has_the_cpu_for_what_it_lacks);
    test(a_failed_run_is_named_and_over_with_it);
    test(one_model_ends_while_another_runs);
    test(memory_outlives_a_closed_executor);
    test(outputs_that_are_refused_take_another_way);
    test(a_model_that_cannot_run_is_not_taken_for_one_that_refuses_outputs);
    if (library.family != "OH_AI") return 0;
    test(refused_memory_gives_everything_back);
    test(outputs_are_copied_where_nothing_else_works);
    test(a_slot_that_stays_bound_or_cannot_be_bound_is_an_error);
    // Last, for allocators that were replaced are kept.
    test(a_foreign_allocator_means_copies);
}
