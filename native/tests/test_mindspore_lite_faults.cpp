// The faults of the original zero-copy change, by number, which engine mindspore_lite must not have.
// Arguments are a stand-in of vendor/mindspore_lite and its family, OH_AI or MS.
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
            for (std::size_t i = 0; i < 5; ++i) {
                auto executor = bench.open(2);
                auto ring = Ring::create(executor, 2, true);
                CHECK(!run(*ring, 5 * t + i));
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

// The same for memory of the engine's own, which an image is converted into.
void fault_04_the_engine_s_own_memory_needs_an_allocator_too(Bench& bench) {
    bench.write("mindspore-lite-standin\ninput image float32 NCHW 1 3 4 4\noutput sums float32 NCHW 1 3\n");
    auto options = bench.options();
    options.image = ImageOptions{true, {}, {}};
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

// An error left the outputs that were bound before it bound to the caller's memory.
void fault_12_outputs_refused_halfway_are_unbound(Bench& bench) {
    bench.turn("OUTPUTS", "half");
    works(bench, [](const Executor& executor) {
        CHECK(executor.route(Direction::output, 0) == "zero-copy, external memory of the model's output");
    });
    bench.turn("USER_DATA", "refuse");
    const auto executor = bench.open();
    CHECK_THROWS(Ring::create(executor, 1, true), Errc::run,
                 "output 0 'scores' still points to the slot after MindSpore Lite refused it");
    // The stand-in looks for memory that is freed while an output of a model points to it.
    CHECK(executor->close(seconds));
    CHECK(bench.library.count("violations") == 1);
    bench.library.reset();
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

}  // namespace

int main(int count, char** arguments) {
    CHECK(count == 3);
    const Library library(arguments[1], arguments[2]);
    const auto test = [&](auto function) {
        Bench bench(library);
        function(bench);
    };
    test(fault_14_foreign_arrays_beside_bound_ones);
    test(fault_15_only_the_base_of_a_live_block_is_bound);
    test(fault_17_dropped_outputs_are_found_out);
    test(fault_17_an_output_without_data_is_an_error);
    test(fault_16_an_output_array_that_is_not_whole_is_an_error);
    if (library.family != "OH_AI") return 0;
    test(fault_01_a_library_that_forgets_allocators);
    test(fault_02_one_thread_at_a_time_lists_allocators);
    test(fault_03_an_allocator_that_is_not_taken_is_an_error);
    test(fault_04_a_null_allocator_is_an_error);
    test(fault_04_the_engine_s_own_memory_needs_an_allocator_too);
    test(fault_04_a_tensor_without_allocator_is_copied);
    test(fault_05_a_tensor_with_memory_gets_no_allocator);
    test(fault_12_no_run_leaves_a_slot_bound);
    test(fault_12_outputs_refused_halfway_are_unbound);
    test(fault_14_each_tensor_is_decided_by_itself);
    test(fault_16_the_output_array_is_always_initialised);
    // Last, for allocators that were replaced are kept.
    test(fault_04_an_unknown_allocator_is_an_error);
}
