// Engine "rknn" on the stand-in: test_rknn LIBRARY_2_3 LIBRARY_1_5
#include <dirent.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "backends/dylib.hpp"
#include "backends/rknn.hpp"
#include "backends/rknn/convert.hpp"
#include "check.hpp"
#include "rknn_model.hpp"
#include "support.hpp"
#include "vendor/rknn/standin.hpp"

namespace {

namespace test = pipeline::test;
using namespace pipeline;
using test::RknnModel;

constexpr auto limit = std::chrono::seconds(20);

// The stand-in's counts; at the end nothing may be left, and no rule may have been broken.
class Standin {
public:
    explicit Standin(const std::string& path) : library_(path) {
        wait_until_empty();
        before_ = stats();
    }
    ~Standin() {
        wait_until_empty();
        const auto now = stats();
        if (now.misuse != before_.misuse) {
            std::string text(512, '\0');
            library_.symbol<standin::LastMisuseFn>("standin_last_misuse")(text.data(), 512);
            test::fail(__FILE__, __LINE__, "misuse", text.c_str());
        }
        CHECK(now.priority_raises == before_.priority_raises);
    }
    Standin(const Standin&) = delete;
    Standin& operator=(const Standin&) = delete;

    [[nodiscard]] standin::Stats stats() const {
        standin::Stats result{};
        CHECK(library_.symbol<standin::StatsFn>("standin_stats")(&result, sizeof result) == 0);
        return result;
    }
    void release_hangs() const { library_.symbol<standin::ReleaseHangsFn>("standin_release_hangs")(); }
    [[nodiscard]] std::uint32_t hanging() const {
        return library_.symbol<standin::HangingFn>("standin_hanging")();
    }

private:
    // Executors that were not closed end by themselves, on threads of their own.
    void wait_until_empty() const {
        test::eventually([this] {
            const auto now = stats();
            return now.live_mems + now.live_contexts + now.live_weights + now.live_outputs == 0;
        });
    }

    Dylib library_;
    standin::Stats before_{};
};

// A switch of the stand-in while it lives.
class Switch {
public:
    Switch(const char* name, const char* value) : name_(std::string("STANDIN_RKNN_") + name) {
        CHECK(::setenv(name_.c_str(), value, 1) == 0);
    }
    Switch(const Switch&) = delete;
    Switch& operator=(const Switch&) = delete;
    ~Switch() { ::unsetenv(name_.c_str()); }

private:
    std::string name_;
};

// The folder for models, gone at the end.
class Folder {
public:
    Folder() : path_(std::filesystem::temp_directory_path() / ("test_rknn_" + std::to_string(::getpid()))) {
        std::filesystem::create_directories(path_);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { std::filesystem::remove_all(path_); }

    [[nodiscard]] std::string write(const std::string& name, const std::string& bytes) const {
        const auto path = path_ / name;
        std::ofstream(path, std::ios::binary) << bytes;
        return path.string();
    }

private:
    std::filesystem::path path_;
};

std::string library;
std::string old_library;
const Folder* folder = nullptr;

RknnOptions options(const RknnModel& model = {}) {
    RknnOptions result;
    result.library = library;
    result.model = folder->write("model.rknn", model.bytes());
    return result;
}

std::shared_ptr<Executor> open(const RknnOptions& o) {
    return std::make_shared<Executor>(open_rknn(o), Allocator::Limits{std::size_t{1} << 26, limit});
}

std::vector<std::uint8_t> picture(const RknnModel& model, unsigned seed) {
    std::vector<std::uint8_t> image(model.image_bytes());
    unsigned state = seed;
    for (auto& byte : image) {
        state = state * 1664525U + 1013904223U;
        byte = static_cast<std::uint8_t>(state >> 24U);
    }
    return image;
}

// Into the slot's input, row by row where rows are padded.
void fill(Ring& ring, SlotId id, const std::vector<std::uint8_t>& image) {
    const auto view = ring.view(id, Direction::input, 0);
    for_each_run(view->spec(), [&](std::size_t to, std::size_t from, std::size_t bytes) {
        std::memcpy(view->data() + to, image.data() + from, bytes);
    });
}

// What the slot's output must hold, whatever its strides and type.
void check_output(Ring& ring, SlotId id, const RknnModel& model, const std::vector<std::uint8_t>& image,
                  const std::byte** where = nullptr) {
    const auto expected = model.run(image);
    const auto view = ring.view(id, Direction::output, 0);
    if (where != nullptr) *where = view->data();
    const bool real = view->spec().dtype == DType::f32;
    CHECK(view->spec().byte_size() == expected.size() * (real ? sizeof(float) : 1));
    std::size_t compared = 0;
    for_each_run(view->spec(), [&](std::size_t driver, std::size_t dense, std::size_t bytes) {
        for (std::size_t k = 0; k < bytes; k += real ? sizeof(float) : 1) {
            const auto& quantum = expected[(dense + k) / (real ? sizeof(float) : 1)];
            if (real) {
                float value = 0;
                std::memcpy(&value, view->data() + driver + k, sizeof value);
                CHECK(value == static_cast<float>(quantum - RknnModel::zero) * RknnModel::scale);
            } else {
                CHECK(static_cast<std::int8_t>(view->data()[driver + k]) == quantum);
            }
            ++compared;
        }
    });
    CHECK(compared == expected.size());
}

// One frame: its picture in, awaited, compared.
void run_one(Ring& ring, const RknnModel& model, unsigned seed) {
    const auto image = picture(model, seed);
    const SlotId id = test::acquire(ring);
    fill(ring, id, image);
    ring.submit(id, {}, {});
    const auto done = test::wait_completions(ring);
    CHECK(done.size() == 1);
    if (done[0].error) test::fail(__FILE__, __LINE__, "run", done[0].error->what());
    ring.lease(id);
    check_output(ring, id, model, image);
    ring.release(id);
}

// The error of one frame's run.
Error failed_run(Ring& ring, const RknnModel& model) {
    const SlotId id = test::acquire(ring);
    fill(ring, id, picture(model, 1));
    ring.submit(id, {}, {});
    const auto done = test::wait_completions(ring);
    CHECK(done.size() == 1 && done[0].error);
    ring.release(id);
    return *done[0].error;
}

bool has(const Error& error, Errc code, std::string_view part) {
    if (error.code() == code && std::string_view(error.what()).find(part) != std::string_view::npos)
        return true;
    std::fprintf(stderr, "the error is: %s\n", error.what());
    return false;
}

std::size_t descriptors() {
    std::size_t count = 0;
    DIR* const all = ::opendir("/proc/self/fd");
    CHECK(all != nullptr);
    while (::readdir(all) != nullptr) ++count;
    ::closedir(all);
    return count;
}

// Frames through the ring with as many in flight as it has slots, compared in order.
void stream(const RknnOptions& o, const RknnModel& model, std::size_t frames) {
    const Standin standin(library);
    const auto executor = open(o);
    CHECK(executor->context_count() == 3);
    const auto ring = Ring::create(executor, 5, true);
    std::deque<std::pair<SlotId, unsigned>> flying;
    std::vector<const std::byte*> where(ring->depth());
    const auto allocations = standin.stats().allocations;
    const auto open_files = descriptors();
    for (unsigned next = 0; next < frames || !flying.empty();) {
        const auto id = next < frames ? ring->try_acquire() : std::nullopt;
        if (id) {
            fill(*ring, *id, picture(model, next));
            ring->submit(*id, {}, {});
            flying.emplace_back(*id, next++);
            continue;
        }
        const auto [oldest, seed] = flying.front();
        while (ring->info(oldest).state == SlotState::submitted) {
            test::wait_readable(*ring);
            static_cast<void>(ring->drain());
        }
        ring->lease(oldest);
        const std::byte* at = nullptr;
        check_output(*ring, oldest, model, picture(model, seed), &at);
        CHECK(where[oldest.index] == nullptr || where[oldest.index] == at);
        where[oldest.index] = at;
        ring->release(oldest);
        flying.pop_front();
    }
    CHECK(standin.stats().allocations == allocations);
    CHECK(descriptors() == open_files);
    ring->close();
    CHECK(executor->close(limit));
}

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
                RknnOptions o = options(model);
                o.dequantize = dequantize;
                stream(o, model, 12);
                o.mode = RknnMode::general;
                stream(o, model, 12);
            }
        }
    }
    for (const auto binding : {RknnBinding::context_per_slot, RknnBinding::rebind, RknnBinding::automatic}) {
        for (const bool explicit_sync : {true, false}) {
            RknnOptions o = options();
            o.binding = binding;
            o.explicit_sync = explicit_sync;
            stream(o, {}, 300);
        }
    }
}

void rows_of_the_input_may_be_padded() {
    RknnModel model;
    model.side = 24;
    const auto executor = open(options(model));
    const auto& input = executor->specs(Direction::input)[0];
    CHECK(input.dtype == DType::u8 && input.layout == "NHWC" && input.row_stride == 96);
    CHECK(input.driver_size() == std::size_t{24} * 96);
    const auto ring = Ring::create(executor, 2, true);
    for (unsigned i = 0; i < 4; ++i) run_one(*ring, model, i);
}

void views_where_strides_allow() {
    RknnOptions o = options();
    o.dequantize = false;
    const auto executor = open(o);
    const auto& output = executor->specs(Direction::output)[0];
    CHECK(output.dtype == DType::i8 && output.layout == "NCHW");
    CHECK((output.strides() == std::vector<std::int64_t>{1024, 1, 128, 16}));
    CHECK(output.quantization && output.quantization->zero_point == 3 && output.quantization->scale == 0.5F);
    CHECK(executor->zero_copy(Direction::output, 0) && executor->zero_copy(Direction::input, 0));
    CHECK(!open(options())->zero_copy(Direction::output, 0));
    o.mode = RknnMode::general;
    CHECK(!open(o)->zero_copy(Direction::input, 0));
}

void slots_share_or_have_contexts() {
    const Standin standin(library);
    RknnOptions o = options();
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
        ring = Ring::create(executor, 2, true);  // bound contexts are not used again
        run_one(*ring, {}, 1);
        // Memory of a caller belongs to no slot, and is copied.
        const auto mine = executor->allocator(0, Direction::input, 0)->lease(RknnModel{}.image_bytes());
        const SlotId id = test::acquire(*ring);
        const auto image = picture({}, 9);
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

void rebinding_is_tried_out() {
    for (const char* how : {"ignore", "refuse"}) {
        const Switch broken("REBIND", how);
        const Standin standin(library);
        RknnOptions o = options();
        o.binding = RknnBinding::rebind;
        CHECK_THROWS(open_rknn(o), Errc::engine, "use 'context_per_slot'");
        o.binding = RknnBinding::automatic;
        CHECK(!open_rknn(o)->rebinds());
        stream(o, {}, 50);
    }
    RknnOptions o = options();
    o.binding = RknnBinding::automatic;
    CHECK(open_rknn(o)->rebinds());
}

void cores_are_counted_and_chosen() {
    const auto contexts = [](const RknnOptions& o) { return open_rknn(o)->context_count(); };
    CHECK(contexts(options()) == 3);
    RknnOptions o = options();
    o.cores = {1, 2};
    CHECK(contexts(o) == 2);
    o.contexts = 5;
    CHECK(contexts(o) == 5);
    o.contexts.reset();
    {
        const Switch chip("CHIP", "rk3576");
        CHECK(contexts(options()) == 2);
        CHECK_THROWS(open_rknn(o), Errc::device, "core 2 is not there, the NPU has 2 cores");
    }
    RknnModel model;
    model.platforms = "rk3566";
    const Switch chip("CHIP", "rk3566");
    const Standin standin(library);
    RknnOptions small = options(model);
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
        RknnOptions o = options();
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
        const auto executor = open(options());
        CHECK_THROWS(Ring::create(executor, 4, true), Errc::allocation,
                     "rknn_create_mem gave no memory for ");
        static_cast<void>(Ring::create(executor, 3, true));  // the next try gets it
    }
    for (const char* number : {"1", "2", "3"}) {
        const Switch fail("FAIL_DUP", number);
        const Standin standin(library);
        const auto all = [] { Ring::create(open(options()), 6, true); };
        CHECK_THROWS(all(), Errc::allocation, "rknn_dup_context: RKNN_ERR_MALLOC_FAIL (-4)");
    }
    const Switch fail("FAIL_SYNC", "9");
    const Standin standin(library);
    RknnOptions o = options();
    o.explicit_sync = true;
    o.contexts = 1;
    const auto executor = open(o);
    const auto ring = Ring::create(executor, 2, true);
    Error last(Errc::run, "");
    std::size_t failures = 0;
    for (unsigned i = 0; i < 4; ++i) {
        const SlotId id = test::acquire(*ring);
        fill(*ring, id, picture({}, i));
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
    RknnOptions o = options();
    o.contexts = 1;
    auto executor = open(o);
    auto ring = Ring::create(executor, 1, true);
    const SlotId id = test::acquire(*ring);
    fill(*ring, id, picture({}, 1));
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
    RknnOptions o = options();
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
    CHECK_THROWS(open_rknn(options(model)), Errc::model,
                 "RKNN_ERR_MODEL_INVALID (-6); the file is damaged, or");
    model = {};
    model.platforms = "rk3562";
    CHECK_THROWS(open_rknn(options(model)), Errc::model, "target_platform");
    RknnOptions o = options();
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
    o = options();
    o.input_shape = {1, 64, 64, 3};
    CHECK_THROWS(open_rknn(o), Errc::model,
                 "[1,64,64,3] is none that the model was converted for: [1,32,32,3]");
    o.input_shape = {1, 3, 32, 32};
    CHECK(open_rknn(o)->inputs()[0].shape[1] == 32);
}

void older_runtimes_do() {
    const Standin standin(old_library);
    RknnOptions o = options();
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
            RknnOptions o = options(large);
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

void growing_into_refused_memory_keeps_the_old_shape() {
    RknnModel large;
    large.dynamic = true;
    RknnModel half = large;
    half.side = large.side / 2;
    const Switch fail("FAIL_ALLOC", "4");  // one input and one output before
    const Standin standin(library);
    RknnOptions o = options(large);
    o.contexts = 1;
    o.input_shape = {1, 16, 16, 3};
    const auto executor = open(o);
    const auto ring = Ring::create(executor, 1, true);
    CHECK_THROWS(ring->reshape({1, 32, 32, 3}), Errc::allocation, "output 0 'scores'");
    run_one(*ring, half, 1);
    ring->reshape({1, 32, 32, 3});
    run_one(*ring, large, 1);
}

void a_dma_buf_is_an_input() {
    const Standin standin(library);
    RknnOptions o = options();
    o.contexts = 1;
    CHECK_THROWS(open(o)->allocator(0, Direction::input, 0)->import(3072, {0, 0}), Errc::config, "rebind");
    o.binding = RknnBinding::rebind;
    const auto executor = open(o);
    const auto ring = Ring::create(executor, 2, true);
    const std::size_t offset = 4096;
    const int fd = ::memfd_create("camera", MFD_CLOEXEC);
    const auto image = picture({}, 5);
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
    const auto engine = open_rknn(options());
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

template <class T>
void check_conversion(rknn::Conversion conversion, DType type) {
    conversion.type = type;
    conversion.quantization = {0.25F, 7};
    const rknn::Placement& p = conversion.from;
    std::vector<T> native(p.span());
    for (std::size_t i = 0; i < native.size(); ++i) native[i] = static_cast<T>(i * 37 + i / 251);
    const std::size_t count = p.images * p.channels * p.rows * p.columns;
    std::vector<std::byte> dense(count * (conversion.dequantize ? sizeof(float) : sizeof(T)));
    rknn::convert(conversion, reinterpret_cast<const std::byte*>(native.data()), dense.data());
    for (std::size_t i = 0; i < count; ++i) {
        const bool last = conversion.channels_last;
        const std::size_t c = last ? i % p.channels : i / p.columns / p.rows % p.channels;
        const std::size_t w = last ? i / p.channels % p.columns : i % p.columns;
        const std::size_t h = last ? i / p.channels / p.columns % p.rows : i / p.columns % p.rows;
        const std::size_t n = i / p.channels / p.columns / p.rows;
        const T value = native[n * p.image + c / p.block * p.block_stride + c % p.block * p.channel +
                               h * p.row + w * p.column];
        if (conversion.dequantize) {
            float real = 0;
            std::memcpy(&real, dense.data() + i * sizeof real, sizeof real);
            CHECK(real == (static_cast<float>(value) - 7.0F) * 0.25F);
        } else {
            CHECK(std::memcmp(&value, dense.data() + i * sizeof value, sizeof value) == 0);
        }
    }
}

void conversions_are_exact() {
    for (const std::size_t channels : {1, 3, 16, 17, 40}) {
        for (const std::size_t columns : {1, 15, 16, 33}) {
            const std::size_t rows = 3;
            const std::size_t row = columns + 2;
            const std::size_t blocks = (channels + 15) / 16;
            const rknn::Placement placements[] = {
                // NC1HWC2 of 16, NHWC and NCHW, with padded rows
                {2, channels, rows, columns, 16, blocks * rows * row * 16, rows * row * 16, 1, row * 16, 16},
                {2, channels, rows, columns, channels, rows * row * channels, 0, 1, row * channels, channels},
                {2, channels, rows, columns, channels, channels * rows * row, 0, rows * row, row, 1}};
            for (const auto& placement : placements) {
                for (const bool last : {true, false}) {
                    check_conversion<std::int8_t>({placement, last, DType::i8, true, {}}, DType::i8);
                    check_conversion<std::uint8_t>({placement, last, DType::u8, true, {}}, DType::u8);
                    check_conversion<std::int8_t>({placement, last, DType::i8, false, {}}, DType::i8);
                    check_conversion<std::int16_t>({placement, last, DType::i16, true, {}}, DType::i16);
                    check_conversion<std::uint16_t>({placement, last, DType::f16, false, {}}, DType::f16);
                    check_conversion<std::uint32_t>({placement, last, DType::f32, false, {}}, DType::f32);
                }
            }
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    CHECK(argc == 3);
    library = argv[1];
    old_library = argv[2];
    const Folder models;
    folder = &models;
    conversions_are_exact();
    every_mode_computes();
    rows_of_the_input_may_be_padded();
    views_where_strides_allow();
    slots_share_or_have_contexts();
    rebinding_is_tried_out();
    cores_are_counted_and_chosen();
    failed_runs_are_told_and_recovered();
    refused_memory_leaves_nothing_behind();
    a_hanging_run_does_not_hold_up_closing();
    a_moved_output_is_an_error();
    models_that_do_not_fit_say_what_to_do();
    older_runtimes_do();
    shapes_change();
    growing_into_refused_memory_keeps_the_old_shape();
    a_dma_buf_is_an_input();
    notes_tell_what_it_costs();
}
