// Engine "rknn" on the stand-in: test_rknn LIBRARY_2_3 LIBRARY_1_5
#include <sys/mman.h>

#include "rknn_support.hpp"

namespace {

using namespace pipeline;
using namespace pipeline::test;

void every_mode_computes() {
    const Switch strict("ONE_THREAD", "1");
    for (const bool dequantize : {true, false}) {
        for (const auto& native : {"nc1hwc2", "nhwc", "nchw"}) {
            for (const std::size_t channels : {5, 20, 40}) {
                RknnModel model;
                model.side = 80;  // 20 columns: more than a tile, and no whole number of them
                model.channels = channels;
                model.native = native;
                model.more = "w_align=16 h_align=3";
                RknnOptions o = rknn_options(model);
                o.dequantize = dequantize;
                stream(o, model, 12);
                o.mode = RknnMode::general;
                stream(o, model, 12);
            }
        }
    }
    for (const auto binding : {RknnBinding::context_per_slot, RknnBinding::rebind, RknnBinding::automatic}) {
        for (const bool explicit_sync : {true, false}) {
            RknnOptions o = rknn_options();
            o.binding = binding;
            o.explicit_sync = explicit_sync;
            stream(o, {}, 300);
        }
    }
}

void rows_of_the_input_may_be_padded() {
    RknnModel model;
    model.side = 24;
    const auto executor = open(rknn_options(model));
    const auto& input = executor->specs(Direction::input)[0];
    CHECK(input.dtype == DType::u8 && input.layout == "NHWC" && input.row_stride == 96);
    CHECK(input.driver_size() == std::size_t{24} * 96);
    const auto ring = Ring::create(executor, 2, true);
    for (unsigned i = 0; i < 4; ++i) run_one(*ring, model, i);
}

void views_where_strides_allow() {
    RknnOptions o = rknn_options();
    o.dequantize = false;
    const auto executor = open(o);
    const auto& output = executor->specs(Direction::output)[0];
    CHECK(output.dtype == DType::i8 && output.layout == "NCHW");
    CHECK((output.strides() == std::vector<std::int64_t>{1024, 1, 128, 16}));
    CHECK(output.quantization && output.quantization->zero_point == 3 && output.quantization->scale == 0.5F);
    CHECK(executor->zero_copy(Direction::output, 0) && executor->zero_copy(Direction::input, 0));
    CHECK(!open(rknn_options())->zero_copy(Direction::output, 0));
    o.mode = RknnMode::general;
    CHECK(!open(o)->zero_copy(Direction::input, 0));
}

void slots_share_or_have_contexts() {
    const Standin standin(library);
    RknnOptions o = rknn_options();
    const auto contexts = [&] { return standin.stats().live_contexts; };
    {
        const auto executor = open(o);
        CHECK(!executor->rebinds() && contexts() == 3);
        auto ring = Ring::create(executor, 7, true);
        CHECK(contexts() == 7);
        const auto binds = standin.stats().binds;
        for (unsigned i = 0; i < 20; ++i) run_one(*ring, {}, i);
        CHECK(standin.stats().binds == binds);  // once before the first run, and never again
        ring->close();
        ring.reset();
        test::eventually([&] { return contexts() == 3; });
        ring = Ring::create(executor, 2, true);  // bound contexts are not used again
        CHECK(contexts() == 5);
        run_one(*ring, {}, 1);
        // Memory of a caller belongs to no slot, and is copied.
        const auto before = contexts();
        const auto mine = executor->allocator(0, Direction::input, 0)->lease(RknnModel{}.image_bytes());
        CHECK(contexts() == before);  // nor does it need one
        const SlotId id = test::acquire(*ring);
        const auto image = make_image({}, 9);
        std::memcpy(mine.block().base, image.data(), image.size());
        const UserArray array{0, mine.block().base, image.size()};
        CHECK(ring->submit(id, {&array, 1}, {})[0] == Route::copied);
        CHECK(test::wait_completions(*ring).size() == 1);
        ring->lease(id);
        check_output(*ring, id, {}, image);
        ring->release(id);
        ring->close();
        CHECK(contexts() >= 3);
    }
    o.binding = RknnBinding::rebind;
    const auto executor = open(o);
    const auto ring = Ring::create(executor, 7, true);
    CHECK(executor->rebinds());
    test::eventually([&] { return contexts() == 3; });  // those of the executor before are gone
    for (unsigned i = 0; i < 20; ++i) run_one(*ring, {}, i);
}

void older_runtimes_do() {
    const Standin standin(old_library);
    RknnOptions o = rknn_options();
    o.library = old_library;
    for (const auto binding : {RknnBinding::context_per_slot, RknnBinding::rebind}) {
        o.binding = binding;
        const auto executor = open(o);
        const auto ring = Ring::create(executor, 4, true);
        for (unsigned i = 0; i < 5; ++i) run_one(*ring, {}, i);
    }
    o.explicit_sync = true;
    CHECK_THROWS(open_rknn(o), Errc::not_installed, "has no rknn_mem_sync");
}

void shapes_change() {
    const Switch strict("ONE_THREAD", "1");
    RknnModel large;
    large.dynamic = true;
    RknnModel half = large;
    half.side = large.side / 2;
    const std::vector<std::int64_t> small_shape{1, 16, 16, 3};
    const std::vector<std::int64_t> large_shape{1, 3, 32, 32};
    for (const auto mode : {RknnMode::zero_copy, RknnMode::general}) {
        for (const auto binding : {RknnBinding::context_per_slot, RknnBinding::rebind}) {
            const Standin standin(library);
            RknnOptions o = rknn_options(large);
            o.mode = mode;
            o.binding = binding;
            o.input_shape = small_shape;
            const auto executor = open(o);
            const auto ring = Ring::create(executor, 4, true);
            run_one(*ring, half, 1);
            const auto small_memory = executor->counters().allocations;
            ring->reshape(large_shape);
            CHECK(executor->specs(Direction::input)[0].shape == (std::vector<std::int64_t>{1, 32, 32, 3}));
            for (unsigned i = 0; i < 8; ++i) run_one(*ring, large, i);
            const auto memory = executor->counters().allocations;
            CHECK(memory == 2 * small_memory);
            ring->reshape(small_shape);
            for (unsigned i = 0; i < 8; ++i) run_one(*ring, half, i);
            ring->reshape(large_shape);
            for (unsigned i = 0; i < 8; ++i) run_one(*ring, large, i);
            CHECK(executor->counters().allocations == memory);  // they only ever grow

            CHECK_THROWS(ring->reshape({1, 48, 48, 3}), Errc::model, "[1,32,32,3], [1,16,16,3]");
            run_one(*ring, large, 9);
            const SlotId id = test::acquire(*ring);
            auto view = ring->view(id, Direction::input, 0);
            ring->release(id);
            CHECK_THROWS(ring->reshape(small_shape), Errc::slot_state, "with 1 views");
            view.reset();
            const auto other = Ring::create(executor, 1, true);
            CHECK_THROWS(ring->reshape(small_shape), Errc::slot_state, "another ring");
            other->close();
            ring->reshape(small_shape);
            CHECK_THROWS(static_cast<void>(ring->view(id, Direction::input, 0)), Errc::slot_state);
            run_one(*ring, half, 10);
        }
    }
    const auto fixed = test::executor();
    CHECK_THROWS(Ring::create(fixed, 1, true)->reshape({1, 4, 4, 3}), Errc::config, "one shape");
}

// Where only the input grows, a slot's output stays with the runtime context that it was made for.
void a_later_ring_grows_in_part() {
    RknnModel model;
    model.dynamic = true;
    std::string bytes = model.bytes();
    const std::string both = "dims=1,5,8,8|1,5,4,4";
    bytes.replace(bytes.find(both), both.size(), "dims=1,5,8,8|1,5,8,8");
    const Standin standin(library);
    RknnOptions o = rknn_options(model);
    o.model = folder->write("grows.rknn", bytes);
    o.contexts = 1;
    o.input_shape = {1, 16, 16, 3};
    const auto executor = open(o);
    const auto run_all = [](Ring& ring) {
        for (std::size_t i = 0; i < ring.depth(); ++i) {
            const SlotId id = test::acquire(ring);
            ring.submit(id, {}, {});
            const auto done = test::wait_completions(ring);
            if (done[0].error) test::fail(__FILE__, __LINE__, "run", done[0].error->what());
            ring.release(id);
        }
    };
    for (int turn = 0; turn < 2; ++turn) {
        Ring::create(executor, 2, true)->close();
        const auto ring = Ring::create(executor, 3, true);
        run_all(*ring);
        ring->reshape({1, 32, 32, 3});
        for (unsigned i = 0; i < 3; ++i) run_one(*ring, model, i);
        ring->reshape({1, 16, 16, 3});
        run_all(*ring);
        ring->close();
    }
    test::eventually([&] { return standin.stats().live_contexts == 1; });
}

void a_dma_buf_is_an_input() {
    const Standin standin(library);
    RknnOptions o = rknn_options();
    o.contexts = 1;
    CHECK_THROWS(open(o)->allocator(0, Direction::input, 0)->import(3072, {0, 0}), Errc::config, "rebind");
    o.binding = RknnBinding::rebind;
    const auto executor = open(o);
    const auto ring = Ring::create(executor, 2, true);
    const std::size_t offset = 4096;
    const int fd = ::memfd_create("camera", MFD_CLOEXEC);
    const auto image = make_image({}, 5);
    CHECK(::ftruncate(fd, static_cast<off_t>(offset + image.size())) == 0);
    CHECK(::pwrite(fd, image.data(), image.size(), static_cast<off_t>(offset)) ==
          static_cast<ssize_t>(image.size()));
    const auto open_files = descriptors();
    const auto& allocator = executor->allocator(0, Direction::input, 0);
    CHECK_THROWS(allocator->import(image.size(), {fd, offset + 1}), Errc::allocation,
                 "3072 bytes needed from offset 4097, it has 7168");
    CHECK_THROWS(allocator->import(image.size(), {9999, 0}), Errc::allocation, "dma-buf 9999");
    for (int turn = 0; turn < 3; ++turn) {
        const BlockRef block = allocator->import(image.size(), {fd, offset});
        const SlotId id = test::acquire(*ring);
        const UserArray array{0, block.block().base, image.size()};
        CHECK(ring->submit(id, {&array, 1}, {})[0] == Route::bound);
        CHECK(test::wait_completions(*ring).size() == 1);
        ring->lease(id);
        check_output(*ring, id, {}, image);
        ring->release(id);
        run_one(*ring, {}, 6);
    }
    ::close(fd);
    ring->close();
    CHECK(executor->close(limit));
    CHECK(descriptors() <= open_files - 1);
}

void notes_tell_what_it_costs() {
    const auto engine = open_rknn(rknn_options());
    const auto executor = std::make_shared<Executor>(engine, Allocator::Limits{1 << 26, limit});
    const auto ring = Ring::create(executor, 4, true);
    std::string text;
    for (const auto& [name, value] : engine->notes()) text += name + ": " + value + "\n";
    for (const char* part :
         {"binding: context_per_slot\n", "internal memory: 4 runtime contexts of ", "cores: 0, 1, 2\n",
          "output 0 'scores': int8 NC1HWC2 [1,1,8,8,16] to float32 NCHW"}) {
        if (text.find(part) == std::string::npos) test::fail(__FILE__, __LINE__, part, text.c_str());
    }
}

}  // namespace

int main(int argc, char** argv) {
    const Folder models;
    use_libraries(argc, argv, models);
    every_mode_computes();
    rows_of_the_input_may_be_padded();
    views_where_strides_allow();
    slots_share_or_have_contexts();
    older_runtimes_do();
    shapes_change();
    a_later_ring_grows_in_part();
    a_dma_buf_is_an_input();
    notes_tell_what_it_costs();
}
