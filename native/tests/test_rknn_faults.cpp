// What goes wrong under engine "rknn": test_rknn_faults LIBRARY_2_3 LIBRARY_1_5
#include "rknn_support.hpp"

namespace {

using namespace pipeline;
using namespace pipeline::test;

void rebinding_is_tried_out() {
    for (const char* how : {"ignore", "refuse"}) {
        const Switch broken("REBIND", how);
        const Standin standin(library);
        RknnOptions o = rknn_options();
        o.binding = RknnBinding::rebind;
        CHECK_THROWS(open_rknn(o), Errc::engine, "use 'context_per_slot'");
        o.binding = RknnBinding::automatic;
        CHECK(!open_rknn(o)->rebinds());
        stream(o, {}, 50);
    }
    RknnOptions o = rknn_options();
    o.binding = RknnBinding::automatic;
    CHECK(open_rknn(o)->rebinds());
}

void cores_are_counted_and_chosen() {
    const auto contexts = [](const RknnOptions& o) { return open_rknn(o)->context_count(); };
    CHECK(contexts(rknn_options()) == 3);
    RknnOptions o = rknn_options();
    o.cores = {1, 2};
    CHECK(contexts(o) == 2);
    o.contexts = 5;
    CHECK(contexts(o) == 5);
    o.contexts.reset();
    {
        const Switch chip("CHIP", "rk3576");
        CHECK(contexts(rknn_options()) == 2);
        CHECK_THROWS(open_rknn(o), Errc::device, "core 2 is not there, the NPU has 2 cores");
    }
    RknnModel model;
    model.platforms = "rk3566";
    const Switch chip("CHIP", "rk3566");
    const Standin standin(library);
    RknnOptions small = rknn_options(model);
    CHECK(contexts(small) == 1);
    small.contexts = 2;
    small.cores = {0};
    const auto executor = open(small);
    const auto ring = Ring::create(executor, 2, true);
    run_one(*ring, model, 1);
    small.cores = {1};
    CHECK_THROWS(open_rknn(small), Errc::device, "core 1 is not there, the NPU has 1 core");
}

void failed_runs_are_told_and_recovered() {
    const Standin standin(library);
    for (const auto mode : {RknnMode::zero_copy, RknnMode::general}) {
        RknnOptions o = rknn_options();
        o.contexts = 1;
        o.mode = mode;
        {
            const Switch fail("FAIL_RUN", "2");
            const auto executor = open(o);
            const auto ring = Ring::create(executor, 1, true);
            CHECK(has(failed_run(*ring, {}), Errc::run, "RKNN_ERR_FAIL (-1)"));
            for (unsigned i = 0; i < 3; ++i) run_one(*ring, {}, i);
        }
        const Switch fail("FAIL_RUN", "2+");
        const Switch code("FAIL_CODE", "2");
        const auto executor = open(o);
        const auto ring = Ring::create(executor, 1, true);
        for (int i = 0; i < 3; ++i) {
            CHECK(
                has(failed_run(*ring, {}), Errc::device, "core 0 (runtime 2.3.2 (stand-in), driver 0.9.8)"));
        }
        const auto calls = standin.stats().calls;
        CHECK(has(failed_run(*ring, {}), Errc::device, "was stopped after 3 failed runs in a row"));
        CHECK(standin.stats().calls - calls <= (mode == RknnMode::general ? 1U : 0U));
    }
}

void refused_memory_leaves_nothing_behind() {
    for (const char* number : {"1", "2", "3", "4", "5", "6"}) {
        const Switch fail("FAIL_ALLOC", number);
        const Standin standin(library);
        const auto executor = open(rknn_options());
        CHECK_THROWS(Ring::create(executor, 4, true), Errc::allocation,
                     "rknn_create_mem gave no memory for ");
        static_cast<void>(Ring::create(executor, 3, true));  // the next try gets it
    }
    for (const char* number : {"1", "2", "3"}) {
        const Switch fail("FAIL_DUP", number);
        const Standin standin(library);
        const auto all = [] { Ring::create(open(rknn_options()), 6, true); };
        CHECK_THROWS(all(), Errc::allocation, "rknn_dup_context: RKNN_ERR_MALLOC_FAIL (-4)");
    }
    const Switch fail("FAIL_SYNC", "9");
    const Standin standin(library);
    RknnOptions o = rknn_options();
    o.explicit_sync = true;
    o.contexts = 1;
    const auto executor = open(o);
    const auto ring = Ring::create(executor, 2, true);
    Error last(Errc::run, "");
    std::size_t failures = 0;
    for (unsigned i = 0; i < 4; ++i) {
        const SlotId id = test::acquire(*ring);
        fill(*ring, id, make_image({}, i));
        ring->submit(id, {}, {});
        const auto done = test::wait_completions(*ring);
        if (done[0].error) {
            ++failures;
            last = *done[0].error;
        }
        ring->release(id);
    }
    CHECK(failures == 1 && has(last, Errc::run, "rknn_mem_sync: RKNN_ERR_FAIL"));
}

void a_hanging_run_does_not_hold_up_closing() {
    const Switch hang("HANG_RUN", "2");
    const Standin standin(library);
    RknnOptions o = rknn_options();
    o.contexts = 1;
    auto executor = open(o);
    auto ring = Ring::create(executor, 1, true);
    const SlotId id = test::acquire(*ring);
    fill(*ring, id, make_image({}, 1));
    ring->submit(id, {}, {});
    test::eventually([&] { return standin.hanging() == 1; });
    ring->close();
    CHECK(!executor->close(std::chrono::milliseconds(20)));
    standin.release_hangs();
    CHECK(executor->close(limit));
}

void a_moved_output_is_an_error() {
    const Switch move("MOVE_OUTPUT", "2");
    const Standin standin(library);
    RknnOptions o = rknn_options();
    o.mode = RknnMode::general;
    o.contexts = 1;
    const auto executor = open(o);
    const auto ring = Ring::create(executor, 1, true);
    CHECK(has(failed_run(*ring, {}), Errc::engine, "output 0 'scores': the runtime moved the buffer"));
    run_one(*ring, {}, 2);
}

void models_that_do_not_fit_say_what_to_do() {
    RknnModel model;
    model.version = 7;
    CHECK_THROWS(open_rknn(rknn_options(model)), Errc::model,
                 "RKNN_ERR_MODEL_INVALID (-6); the file is damaged, or");
    model = {};
    model.platforms = "rk3562";
    CHECK_THROWS(open_rknn(rknn_options(model)), Errc::model, "target_platform");
    RknnOptions o = rknn_options();
    o.model = folder->write("text.rknn", "no model at all\n");
    CHECK_THROWS(open_rknn(o), Errc::model, "text.rknn: not an RKNN model");
    o.model = folder->write("three.rknn", "RKNX and more");
    CHECK_THROWS(open_rknn(o), Errc::model, "RKNPU3");
    o.model = folder->write("empty.rknn", "");
    CHECK_THROWS(open_rknn(o), Errc::model, "the file is empty");
    o.model += ".absent";
    CHECK_THROWS(open_rknn(o), Errc::model, "no such file");
    o.library = "libabsent.so";
    CHECK_THROWS(open_rknn(o), Errc::not_installed, "libabsent.so");
    o = rknn_options();
    o.input_shape = {1, 64, 64, 3};
    CHECK_THROWS(open_rknn(o), Errc::model,
                 "[1,64,64,3] is none that the model was converted for: [1,32,32,3]");
    o.input_shape = {1, 3, 32, 32};
    CHECK(open_rknn(o)->inputs()[0].shape[1] == 32);
}

void growing_into_refused_memory_keeps_the_old_shape() {
    RknnModel large;
    large.dynamic = true;
    RknnModel half = large;
    half.side = large.side / 2;
    const Switch fail("FAIL_ALLOC", "4");  // one input and one output before
    const Standin standin(library);
    RknnOptions o = rknn_options(large);
    o.contexts = 1;
    o.input_shape = {1, 16, 16, 3};
    const auto executor = open(o);
    const auto ring = Ring::create(executor, 1, true);
    CHECK_THROWS(ring->reshape({1, 32, 32, 3}), Errc::allocation, "output 0 'scores'");
    run_one(*ring, half, 1);
    ring->reshape({1, 32, 32, 3});
    run_one(*ring, large, 1);
}

}  // namespace

int main(int argc, char** argv) {
    const Folder models;
    use_libraries(argc, argv, models);
    rebinding_is_tried_out();
    cores_are_counted_and_chosen();
    failed_runs_are_told_and_recovered();
    refused_memory_leaves_nothing_behind();
    a_hanging_run_does_not_hold_up_closing();
    a_moved_output_is_an_error();
    models_that_do_not_fit_say_what_to_do();
    growing_into_refused_memory_keeps_the_old_shape();
}
