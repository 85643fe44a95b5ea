// The stand-in librknnrt.so itself: test_rknn_standin LIBRARY_2_3 LIBRARY_1_5
#include <dirent.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "engines/dylib.hpp"
#include "engines/rknn/abi.hpp"
#include "rknn_model.hpp"
#include "support.hpp"
#include "vendor/rknn/standin.hpp"

namespace {

using namespace pipeline::rknn;
using pipeline::test::eventually;
using pipeline::test::RknnModel;

// The library's functions.
struct Runtime {
    explicit Runtime(const char* path) : library(path) {}
    pipeline::Dylib library;
    InitFn init = library.symbol<InitFn>("rknn_init");
    DupContextFn dup = library.symbol<DupContextFn>("rknn_dup_context");
    DestroyFn destroy = library.symbol<DestroyFn>("rknn_destroy");
    QueryFn query = library.symbol<QueryFn>("rknn_query");
    InputsSetFn inputs_set = library.symbol<InputsSetFn>("rknn_inputs_set");
    SetCoreMaskFn set_core_mask = library.symbol<SetCoreMaskFn>("rknn_set_core_mask");
    RunFn run = library.symbol<RunFn>("rknn_run");
    WaitFn wait = library.symbol<WaitFn>("rknn_wait");
    OutputsGetFn outputs_get = library.symbol<OutputsGetFn>("rknn_outputs_get");
    OutputsReleaseFn outputs_release = library.symbol<OutputsReleaseFn>("rknn_outputs_release");
    CreateMemFn create_mem = library.symbol<CreateMemFn>("rknn_create_mem");
    CreateMem2Fn create_mem2 = library.find<CreateMem2Fn>("rknn_create_mem2");
    CreateMemFromFdFn create_mem_from_fd = library.symbol<CreateMemFromFdFn>("rknn_create_mem_from_fd");
    DestroyMemFn destroy_mem = library.symbol<DestroyMemFn>("rknn_destroy_mem");
    SetIoMemFn set_io_mem = library.symbol<SetIoMemFn>("rknn_set_io_mem");
    SetInputShapesFn set_input_shapes = library.symbol<SetInputShapesFn>("rknn_set_input_shapes");
    MemSyncFn mem_sync = library.find<MemSyncFn>("rknn_mem_sync");
    standin::StatsFn read_stats = library.symbol<standin::StatsFn>("standin_stats");
    standin::LastMisuseFn last_misuse = library.symbol<standin::LastMisuseFn>("standin_last_misuse");
    standin::ReleaseHangsFn release_hangs = library.symbol<standin::ReleaseHangsFn>("standin_release_hangs");
    standin::HangingFn hanging = library.symbol<standin::HangingFn>("standin_hanging");

    [[nodiscard]] standin::Stats stats() const {
        standin::Stats result{};
        CHECK(read_stats(&result, sizeof result) == 0);
        return result;
    }
    [[nodiscard]] std::string misuse_text() const {
        std::string text(512, '\0');
        static_cast<void>(last_misuse(text.data(), static_cast<std::uint32_t>(text.size())));
        return text.c_str();
    }
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

int open(const Runtime& rt, Context& context, const RknnModel& model = {}, std::uint32_t flags = 0) {
    std::string bytes = model.bytes();
    return rt.init(&context, bytes.data(), static_cast<std::uint32_t>(bytes.size()), flags, nullptr);
}

std::vector<std::uint8_t> make_image(const RknnModel& model, unsigned seed = 1) {
    std::vector<std::uint8_t> image(model.image_bytes());
    unsigned state = seed;
    for (auto& byte : image) {
        state = state * 1664525U + 1013904223U;
        byte = static_cast<std::uint8_t>(state >> 24U);
    }
    return image;
}

// A context with its memory bound, and how a client uses it.
class Bound {
public:
    explicit Bound(const Runtime& rt, std::uint32_t flags = 0, const RknnModel& model = {})
        : rt_(rt), model_(model) {
        CHECK(open(rt, context, model, flags) == status::success);
        bind();
    }
    Bound(const Runtime& rt, const Bound& other) : rt_(rt), model_(other.model_) {
        Context from = other.context;
        CHECK(rt.dup(&from, &context) == status::success);
        bind();
    }
    Bound(const Bound&) = delete;
    Bound& operator=(const Bound&) = delete;
    ~Bound() {
        CHECK(rt_.destroy_mem(context, input) == status::success);
        CHECK(rt_.destroy_mem(context, output) == status::success);
        CHECK(rt_.destroy(context) == status::success);
    }

    [[nodiscard]] TensorAttr attr(std::int32_t command) const {
        TensorAttr result{};
        CHECK(rt_.query(context, command, &result, sizeof result) == status::success);
        return result;
    }
    void write(const std::vector<std::uint8_t>& image) const {
        std::memcpy(input->virt_addr, image.data(), image.size());
    }
    // The output's elements in logical order.
    [[nodiscard]] std::vector<std::int8_t> read() const {
        const auto* data = static_cast<const std::int8_t*>(output->virt_addr);
        const auto& d = out_attr.dims;
        std::vector<std::int8_t> result;
        for (std::size_t c = 0; c < model_.channels; ++c) {
            for (std::size_t y = 0; y < model_.out_side(); ++y) {
                for (std::size_t x = 0; x < model_.out_side(); ++x) {
                    result.push_back(data[((c / d[4] * d[2] + y) * d[3] + x) * d[4] + c % d[4]]);
                }
            }
        }
        return result;
    }

    Context context = 0;
    TensorMem* input = nullptr;
    TensorMem* output = nullptr;
    TensorAttr in_attr{};
    TensorAttr out_attr{};

private:
    void bind() {
        in_attr = attr(query::native_input_attr);
        in_attr.type = tensor_type::uint8;
        out_attr = attr(query::native_output_attr);
        input = rt_.create_mem(context, in_attr.size_with_stride);
        output = rt_.create_mem(context, out_attr.size_with_stride);
        CHECK(input != nullptr && output != nullptr);
        CHECK(rt_.set_io_mem(context, input, &in_attr) == status::success);
        CHECK(rt_.set_io_mem(context, output, &out_attr) == status::success);
    }

    const Runtime& rt_;
    RknnModel model_;
};

// `call` must return `code`, count as one misuse and be told with `part`.
void refused(const Runtime& rt, int code, const char* part, const std::function<int()>& call) {
    const auto before = rt.stats().misuse;
    const int returned = call();
    if (returned != code || rt.stats().misuse != before + 1 ||
        rt.misuse_text().find(part) == std::string::npos) {
        pipeline::test::fail(__FILE__, __LINE__, part, rt.misuse_text().c_str());
    }
}

// The same for functions that return memory.
void refused(const Runtime& rt, const char* part, const std::function<TensorMem*()>& call) {
    refused(rt, -1, part, [&] { return call() == nullptr ? -1 : 0; });
}

std::size_t descriptors() {
    std::size_t count = 0;
    DIR* const folder = ::opendir("/proc/self/fd");
    CHECK(folder != nullptr);
    while (::readdir(folder) != nullptr) ++count;
    ::closedir(folder);
    return count;
}

void test_zero_copy_results(const Runtime& rt) {
    const auto before = rt.stats();
    const auto open_files = descriptors();
    RknnModel model;
    model.channels = 20;
    model.more = "w_align=16 extra=64";
    {
        const Bound bound(rt, 0, model);
        CHECK(bound.out_attr.fmt == tensor_format::nc1hwc2 && bound.out_attr.n_dims == 5);
        CHECK(bound.out_attr.dims[1] == 2 && bound.out_attr.dims[3] == 16 && bound.out_attr.dims[4] == 16);
        CHECK(bound.out_attr.size_with_stride == 2 * 8 * 16 * 16 + 64);
        for (unsigned seed = 0; seed < 20; ++seed) {
            const auto image = make_image(model, seed);
            bound.write(image);
            CHECK(rt.run(bound.context, nullptr) == status::success);
            CHECK(bound.read() == model.run(image));
        }
        CHECK(descriptors() == open_files + 2);
    }
    const auto after = rt.stats();
    CHECK(descriptors() == open_files);
    CHECK(after.runs - before.runs == 20 && after.allocations - before.allocations == 2);
    CHECK(after.copies == before.copies && after.conversions == before.conversions);
    CHECK(after.live_mems == before.live_mems && after.live_contexts == before.live_contexts);
    CHECK(after.live_weights == before.live_weights && after.misuse == before.misuse);
}

Input image_input(std::vector<std::uint8_t>& image) {
    return {0, image.data(),       static_cast<std::uint32_t>(image.size()),
            0, tensor_type::uint8, tensor_format::nhwc};
}

void test_general_results(const Runtime& rt) {
    const RknnModel model;
    Context context = 0;
    CHECK(open(rt, context) == status::success);
    auto image = make_image(model);
    Input input = image_input(image);
    CHECK(rt.inputs_set(context, 1, &input) == status::success);
    CHECK(rt.run(context, nullptr) == status::success);
    const auto expected = model.run(image);

    std::vector<std::int8_t> raw(model.elements());
    Output output{0, 1, 0, raw.data(), static_cast<std::uint32_t>(raw.size())};
    CHECK(rt.outputs_get(context, 1, &output, nullptr) == status::success);
    CHECK(output.buf == raw.data() && raw == expected);
    CHECK(rt.outputs_release(context, 1, &output) == status::success);

    Output made{1, 0, 0, nullptr, 0};
    CHECK(rt.outputs_get(context, 1, &made, nullptr) == status::success);
    CHECK(made.size == model.elements() * sizeof(float) && rt.stats().live_outputs == 1);
    const auto* reals = static_cast<const float*>(made.buf);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(reals[i] == static_cast<float>(expected[i] - RknnModel::zero) * RknnModel::scale);
    }
    refused(rt, status::output_invalid, "not yet released",
            [&] { return rt.outputs_get(context, 1, &output, nullptr); });
    refused(rt, status::fail, "outputs are not yet released", [&] { return rt.destroy(context); });
    CHECK(rt.outputs_release(context, 1, &made) == status::success);
    refused(rt, status::output_invalid, "did not hand out",
            [&] { return rt.outputs_release(context, 1, &made); });
    CHECK(rt.destroy(context) == status::success);
    CHECK(rt.stats().live_outputs == 0);
}

void test_general_misuse(const Runtime& rt) {
    const RknnModel model;
    Context context = 0;
    CHECK(open(rt, context) == status::success);
    auto image = make_image(model);
    std::vector<std::uint8_t> buffer(model.elements() * sizeof(float));
    Input input = image_input(image);
    Output output{0, 1, 0, buffer.data(), static_cast<std::uint32_t>(buffer.size())};
    refused(rt, status::fail, "only after rknn_inputs_set",
            [&] { return rt.outputs_get(context, 1, &output, nullptr); });
    refused(rt, status::input_invalid, "nothing was bound or set", [&] { return rt.run(context, nullptr); });
    --input.size;
    refused(rt, status::input_invalid, "3071 bytes where 3072",
            [&] { return rt.inputs_set(context, 1, &input); });
    refused(rt, status::param_invalid, "was never set", [&] { return rt.run(context, nullptr); });
    ++input.size;
    input.index = 1;
    refused(rt, status::input_invalid, "no such input", [&] { return rt.inputs_set(context, 1, &input); });
    input.index = 0;
    CHECK(rt.inputs_set(context, 1, &input) == status::success);
    refused(rt, status::fail, "nothing ran", [&] { return rt.outputs_get(context, 1, &output, nullptr); });
    RunExtend later{0, 1, 0, 0};
    refused(rt, status::fail, "do not block", [&] { return rt.run(context, &later); });
    CHECK(rt.run(context, nullptr) == status::success);
    refused(rt, status::fail, "no chip supports it", [&] { return rt.wait(context, nullptr); });
    refused(rt, status::output_invalid, "1280 bytes where 320",
            [&] { return rt.outputs_get(context, 1, &output, nullptr); });
    output.index = 1;
    refused(rt, status::output_invalid, "no output 1",
            [&] { return rt.outputs_get(context, 1, &output, nullptr); });
    TensorAttr attr{};
    CHECK(rt.query(context, query::native_input_attr, &attr, sizeof attr) == status::success);
    TensorMem* const mem = rt.create_mem(context, attr.size_with_stride);
    refused(rt, status::fail, "modes are not mixed", [&] { return rt.set_io_mem(context, mem, &attr); });
    CHECK(rt.destroy_mem(context, mem) == status::success);
    CHECK(rt.destroy(context) == status::success);
}

void test_query_misuse(const Runtime& rt) {
    Context context = 0;
    CHECK(open(rt, context) == status::success);
    TensorAttr attr{};
    const auto before = rt.stats().misuse;
    InputRange range{};
    CHECK(rt.query(context, query::input_dynamic_range, &range, sizeof range) == status::param_invalid);
    CHECK(rt.query(context, query::current_input_attr, &attr, sizeof attr) == status::param_invalid);
    CHECK(rt.query(context, query::device_mem_info, &attr, sizeof attr) == status::param_invalid);
    CustomString custom{};
    CHECK(rt.query(context, query::custom_string, &custom, sizeof custom) == status::success);
    CHECK(std::string(custom.string) == "from a test");
    CHECK(rt.stats().misuse == before);
    refused(rt, status::param_invalid, "a struct of 375 bytes where 376",
            [&] { return rt.query(context, query::input_attr, &attr, sizeof attr - 1); });
    attr.index = 1;
    refused(rt, status::param_invalid, "no tensor 1",
            [&] { return rt.query(context, query::output_attr, &attr, sizeof attr); });
    refused(rt, status::param_invalid, "no struct",
            [&] { return rt.query(context, query::input_attr, nullptr, sizeof attr); });
    PerfRun time{};
    refused(rt, status::fail, "before a run",
            [&] { return rt.query(context, query::perf_run, &time, sizeof time); });
    CHECK(rt.destroy(context) == status::success);
    refused(rt, status::ctx_invalid, "no such context", [&] { return rt.destroy(context); });
}

void test_memory_misuse(const Runtime& rt) {
    const Bound bound(rt);
    const Bound other(rt, bound);
    CHECK(rt.stats().live_weights == 1 && rt.stats().live_contexts == 2);
    auto attr = bound.in_attr;
    TensorMem own = *bound.input;
    refused(rt, status::param_invalid, "not made by this library",
            [&] { return rt.set_io_mem(bound.context, &own, &attr); });
    refused(rt, status::param_invalid, "another context's",
            [&] { return rt.set_io_mem(bound.context, other.input, &attr); });
    refused(rt, status::param_invalid, "another context's",
            [&] { return rt.destroy_mem(bound.context, other.input); });
    auto out_attr = bound.out_attr;
    refused(rt, status::param_invalid, "bound elsewhere",
            [&] { return rt.set_io_mem(bound.context, bound.input, &out_attr); });
    attr.index = 1;
    refused(rt, status::param_invalid, "no tensor 'image' of index 1",
            [&] { return rt.set_io_mem(bound.context, bound.input, &attr); });
    attr = bound.in_attr;
    attr.type = tensor_type::int64;
    refused(rt, status::param_invalid, "a type or format",
            [&] { return rt.set_io_mem(bound.context, bound.input, &attr); });
    attr.type = tensor_type::float32;
    refused(rt, status::param_invalid, "3072 bytes where 12288",
            [&] { return rt.set_io_mem(bound.context, bound.input, &attr); });
    attr.pass_through = 1;
    refused(rt, status::param_invalid, "not as it is native",
            [&] { return rt.set_io_mem(bound.context, bound.input, &attr); });
    bound.input->size += 16;
    refused(rt, status::param_invalid, "struct was changed", [&] { return rt.run(bound.context, nullptr); });
    bound.input->size -= 16;
    refused(rt, "no memory can have 0 bytes", [&] { return rt.create_mem(bound.context, 0); });
    refused(rt, "no such context", [&] { return rt.create_mem(0, 64); });
    refused(rt, status::fail, "2 pieces of its memory", [&] { return rt.destroy(bound.context); });
    auto image = std::vector<std::uint8_t>(3072);
    Input input = image_input(image);
    refused(rt, status::fail, "modes are not mixed", [&] { return rt.inputs_set(bound.context, 1, &input); });
}

void test_freed_and_overrun_memory(const Runtime& rt) {
    const Bound bound(rt);
    auto attr = bound.out_attr;
    TensorMem* const mem = rt.create_mem(bound.context, attr.size_with_stride);
    CHECK(rt.set_io_mem(bound.context, mem, &attr) == status::success);
    CHECK(rt.run(bound.context, nullptr) == status::success);
    auto* const end = static_cast<std::uint8_t*>(mem->virt_addr) + mem->size;
    *end = 1;
    refused(rt, status::param_invalid, "beyond the bound memory's end",
            [&] { return rt.run(bound.context, nullptr); });
    refused(rt, status::param_invalid, "beyond the memory's end",
            [&] { return rt.destroy_mem(bound.context, mem); });
    refused(rt, status::param_invalid, "was destroyed", [&] { return rt.destroy_mem(bound.context, mem); });
    refused(rt, status::param_invalid, "was destroyed",
            [&] { return rt.set_io_mem(bound.context, mem, &attr); });
    refused(rt, status::param_invalid, "the bound memory was destroyed",
            [&] { return rt.run(bound.context, nullptr); });
}

void test_memory_from_a_descriptor(const Runtime& rt) {
    const RknnModel model;
    const Bound bound(rt);
    constexpr std::size_t offset = 4096;
    const int fd = ::memfd_create("test", 0);
    CHECK(fd >= 0 && ::ftruncate(fd, 2 * offset) == 0);
    void* const base = ::mmap(nullptr, 2 * offset, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(base != MAP_FAILED);
    refused(rt, "not open", [&] { return rt.create_mem_from_fd(bound.context, -1, base, 3072, 0); });
    refused(rt, "beyond the file's end",
            [&] { return rt.create_mem_from_fd(bound.context, fd, base, 3072, 3 * offset); });
    std::vector<std::uint8_t> heap(3072);
    refused(rt, "no mapping of the descriptor",
            [&] { return rt.create_mem_from_fd(bound.context, fd, heap.data(), 3072, 0); });
    TensorMem* const mem = rt.create_mem_from_fd(bound.context, fd, base, 3072, offset);
    CHECK(mem != nullptr && mem->flags == mem_origin::from_fd);
    auto attr = bound.in_attr;
    CHECK(rt.set_io_mem(bound.context, mem, &attr) == status::success);
    const auto image = make_image(model, 7);
    std::memcpy(static_cast<char*>(base) + offset, image.data(), image.size());
    CHECK(rt.run(bound.context, nullptr) == status::success);
    CHECK(bound.read() == model.run(image));
    CHECK(rt.destroy_mem(bound.context, mem) == status::success);
    CHECK(::munmap(base, 2 * offset) == 0 && ::close(fd) == 0);
}

void test_init_misuse(const Runtime& rt) {
    Context context = 0;
    for (const auto flag :
         {init_flag::async_mask, init_flag::mem_alloc_outside, init_flag::fence_out_outside}) {
        refused(rt, status::param_invalid, "flags that fail", [&] { return open(rt, context, {}, flag); });
    }
    refused(rt, status::param_invalid, "unknown flags", [&] { return open(rt, context, {}, 0x20000); });
    refused(rt, status::param_invalid, "null", [&] { return rt.init(&context, nullptr, 4, 0, nullptr); });
    const auto before = rt.stats();
    char path[] = "/nonexistent/model.rknn";
    CHECK(rt.init(&context, path, 0, 0, nullptr) == status::model_invalid);
    CHECK(open(rt, context, {.version = 7}) == status::model_invalid);
    CHECK(open(rt, context, {.more = "c2=x"}) == status::model_invalid);
    CHECK(open(rt, context, {.platforms = "rk3576"}) == status::target_platform_unmatch);
    CHECK(rt.stats().misuse == before.misuse && rt.stats().live_contexts == before.live_contexts);
}

void test_core_masks(const Runtime& rt) {
    Context context = 0;
    {
        const Switch one("CORES", "1");
        CHECK(open(rt, context) == status::success);
        CHECK(rt.set_core_mask(context, core_mask::automatic) == status::target_platform_unmatch);
        CHECK(rt.destroy(context) == status::success);
    }
    const Switch chip("CHIP", "rk3576");
    CHECK(open(rt, context) == status::success);
    CHECK(rt.set_core_mask(context, core_mask::core_1) == status::success);
    CHECK(rt.set_core_mask(context, core_mask::core_0_1) == status::success);
    CHECK(rt.set_core_mask(context, core_mask::core_2) == status::param_invalid);
    for (const int mask : {5, 6, -1}) {
        refused(rt, status::param_invalid, "no core mask", [&] { return rt.set_core_mask(context, mask); });
    }
    CHECK(rt.destroy(context) == status::success);
}

// While a run hangs in one context, nothing else may enter it, but other contexts run.
void test_two_threads(const Runtime& rt) {
    const Switch hang("HANG_RUN", "1");
    const Bound bound(rt);
    const Bound other(rt, bound);
    CHECK(rt.set_core_mask(bound.context, core_mask::core_0) == status::success);
    CHECK(rt.set_core_mask(other.context, core_mask::core_1) == status::success);
    int code = 0;
    std::thread runner([&] { code = rt.run(bound.context, nullptr); });
    eventually([&] { return rt.hanging() == 1; });
    auto attr = bound.in_attr;
    constexpr const char* inside = "while rknn_run is inside";
    refused(rt, status::fail, inside, [&] { return rt.run(bound.context, nullptr); });
    refused(rt, status::fail, inside, [&] { return rt.destroy_mem(bound.context, bound.input); });
    refused(rt, status::fail, inside, [&] { return rt.set_io_mem(bound.context, bound.input, &attr); });
    refused(rt, status::fail, inside, [&] { return rt.destroy(bound.context); });
    refused(rt, inside, [&] { return rt.create_mem(bound.context, 64); });
    CHECK(rt.run(other.context, nullptr) == status::success);
    rt.release_hangs();
    runner.join();
    CHECK(code == status::timeout);
    CHECK(rt.run(bound.context, nullptr) == status::success);
}

void test_contexts_share_cores(const Runtime& rt) {
    const Switch slow("RUN_US", "20000");
    const Bound first(rt);
    const Bound second(rt, first);
    for (const auto* bound : {&first, &second}) {
        CHECK(rt.set_core_mask(bound->context, core_mask::core_2) == status::success);
    }
    const auto start = std::chrono::steady_clock::now();
    std::thread runner([&] { CHECK(rt.run(first.context, nullptr) == status::success); });
    CHECK(rt.run(second.context, nullptr) == status::success);
    runner.join();
    CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(40));
    PerfRun time{};
    CHECK(rt.query(first.context, query::perf_run, &time, sizeof time) == status::success);
    CHECK(time.run_duration >= 20000);
}

void test_two_cores_run_at_once(const Runtime& rt) {
    const Switch hang("HANG_RUN", "1+");
    const Bound first(rt);
    const Bound second(rt, first);
    std::thread one([&] { CHECK(rt.run(first.context, nullptr) == status::timeout); });
    std::thread two([&] { CHECK(rt.run(second.context, nullptr) == status::timeout); });
    eventually([&] { return rt.hanging() == 2; });
    rt.release_hangs();
    one.join();
    two.join();
}

void test_caches(const Runtime& rt) {
    const RknnModel model;
    const Bound bound(rt,
                      init_flag::disable_flush_input_mem_cache | init_flag::disable_flush_output_mem_cache);
    const auto first = make_image(model, 1);
    const auto second = make_image(model, 2);
    bound.write(first);
    refused(rt, status::param_invalid, "never synchronised", [&] { return rt.run(bound.context, nullptr); });
    CHECK(rt.mem_sync(bound.context, bound.input, mem_sync::to_device) == status::success);
    CHECK(rt.run(bound.context, nullptr) == status::success);
    const auto stale = bound.read();
    CHECK(stale != model.run(first));
    CHECK(rt.mem_sync(bound.context, bound.output, mem_sync::from_device) == status::success);
    CHECK(bound.read() == model.run(first));
    bound.write(second);
    refused(rt, status::param_invalid, "written since", [&] { return rt.run(bound.context, nullptr); });
    CHECK(rt.mem_sync(bound.context, bound.input, mem_sync::bidirectional) == status::success);
    CHECK(rt.run(bound.context, nullptr) == status::success);
    CHECK(bound.read() == model.run(first));
    CHECK(rt.mem_sync(bound.context, bound.output, mem_sync::bidirectional) == status::success);
    CHECK(bound.read() == model.run(second));
    refused(rt, status::param_invalid, "no mode: 4",
            [&] { return rt.mem_sync(bound.context, bound.input, 4); });
    refused(rt, "contradict, leak", [&] { return rt.create_mem2(bound.context, 64, mem_alloc::no_context); });

    Context context = 0;
    CHECK(open(rt, context, {}, init_flag::disable_flush_input_mem_cache) == status::success);
    auto image = make_image(model);
    Input input = image_input(image);
    refused(rt, status::fail, "never with the flag", [&] { return rt.inputs_set(context, 1, &input); });
    CHECK(rt.destroy(context) == status::success);
}

void test_rebinding(const Runtime& rt) {
    const RknnModel model;
    const auto image = make_image(model);
    for (const char* how : {"honour", "ignore", "refuse"}) {
        const Switch rebind("REBIND", how);
        const Bound bound(rt);
        auto attr = bound.out_attr;
        bound.write(image);
        CHECK(rt.run(bound.context, nullptr) == status::success);
        std::memset(bound.output->virt_addr, 0, bound.output->size);
        TensorMem* const mem = rt.create_mem(bound.context, attr.size_with_stride);
        const bool refuses = std::string(how) == "refuse";
        CHECK(rt.set_io_mem(bound.context, mem, &attr) ==
              (refuses ? status::param_invalid : status::success));
        CHECK(rt.run(bound.context, nullptr) == status::success);
        CHECK((bound.read() == model.run(image)) == (std::string(how) != "honour"));
        CHECK(rt.destroy_mem(bound.context, mem) == status::success);
        if (std::string(how) != "honour") CHECK(rt.run(bound.context, nullptr) == status::success);
    }
}

void test_fault_switches(const Runtime& rt) {
    const RknnModel model;
    const auto image = make_image(model);
    const auto before = rt.stats().misuse;
    {
        const Switch run("FAIL_RUN", "2");
        const Switch code("FAIL_CODE", "3");
        const Switch dup("FAIL_DUP", "1");
        const Switch sync("FAIL_SYNC", "1+");
        const Bound bound(rt);
        bound.write(image);
        CHECK(rt.run(bound.context, nullptr) == status::success);
        std::memset(bound.output->virt_addr, 0, bound.output->size);
        CHECK(rt.run(bound.context, nullptr) == status::device_unavailable);
        CHECK(bound.read() == std::vector<std::int8_t>(model.elements()));
        CHECK(rt.run(bound.context, nullptr) == status::success);
        CHECK(bound.read() == model.run(image));
        Context from = bound.context;
        Context to = 0;
        CHECK(rt.dup(&from, &to) == status::malloc_fail);
        CHECK(rt.mem_sync(bound.context, bound.input, mem_sync::to_device) == status::fail);
    }
    const Switch alloc("FAIL_ALLOC", "2+");
    Context context = 0;
    CHECK(open(rt, context) == status::success);
    TensorMem* const mem = rt.create_mem(context, 64);
    CHECK(mem != nullptr);
    CHECK(rt.create_mem(context, 64) == nullptr && rt.create_mem(context, 64) == nullptr);
    CHECK(rt.destroy_mem(context, mem) == status::success);
    CHECK(rt.destroy(context) == status::success);
    CHECK(rt.stats().misuse == before);
}

void test_moved_output(const Runtime& rt) {
    const Switch move("MOVE_OUTPUT", "1");
    const RknnModel model;
    Context context = 0;
    CHECK(open(rt, context) == status::success);
    auto image = make_image(model);
    Input input = image_input(image);
    CHECK(rt.inputs_set(context, 1, &input) == status::success);
    CHECK(rt.run(context, nullptr) == status::success);
    std::vector<std::int8_t> raw(model.elements());
    Output output{0, 1, 0, raw.data(), static_cast<std::uint32_t>(raw.size())};
    CHECK(rt.outputs_get(context, 1, &output, nullptr) == status::success);
    CHECK(output.buf != raw.data());
    CHECK(rt.outputs_release(context, 1, &output) == status::success);
    CHECK(rt.destroy(context) == status::success);
}

void test_one_thread(const Runtime& rt) {
    const Switch one("ONE_THREAD", "1");
    const Bound bound(rt);
    std::thread([&] {
        refused(rt, status::fail, "another thread", [&] { return rt.run(bound.context, nullptr); });
        refused(rt, "another thread", [&] { return rt.create_mem(bound.context, 64); });
    }).join();
    CHECK(rt.run(bound.context, nullptr) == status::success);
}

void test_dynamic_shapes(const Runtime& rt) {
    RknnModel model;
    model.dynamic = true;
    Context context = 0;
    CHECK(open(rt, context, model) == status::success);
    InputRange range{};
    CHECK(rt.query(context, query::input_dynamic_range, &range, sizeof range) == status::success);
    CHECK(range.shape_number == 2 && range.n_dims == 4 && range.fmt == tensor_format::nhwc);
    CHECK(range.dyn_range[0][1] == 32 && range.dyn_range[1][1] == 16);
    auto image = make_image(model);
    Input input = image_input(image);
    refused(rt, status::param_invalid, "not yet set", [&] { return rt.inputs_set(context, 1, &input); });
    TensorAttr attr{};
    CHECK(rt.query(context, query::input_attr, &attr, sizeof attr) == status::success);
    attr.dims[1] = attr.dims[2] = 24;
    CHECK(rt.set_input_shapes(context, 1, &attr) == status::input_invalid);
    attr.dims[1] = attr.dims[2] = 16;
    CHECK(rt.set_input_shapes(context, 1, &attr) == status::success);
    CHECK(rt.query(context, query::current_native_output_attr, &attr, sizeof attr) == status::success);
    CHECK(attr.dims[2] == 4 && attr.size_with_stride == 4 * 4 * 16);
    RknnModel half;
    half.side = 16;
    image = make_image(half);
    input = image_input(image);
    CHECK(rt.inputs_set(context, 1, &input) == status::success);
    CHECK(rt.run(context, nullptr) == status::success);
    std::vector<std::int8_t> raw(half.elements());
    Output output{0, 1, 0, raw.data(), static_cast<std::uint32_t>(raw.size())};
    CHECK(rt.outputs_get(context, 1, &output, nullptr) == status::success);
    CHECK(raw == half.run(image));
    CHECK(rt.destroy(context) == status::success);
}

void test_old_version(const Runtime& rt) {
    CHECK(rt.create_mem2 == nullptr && rt.mem_sync == nullptr);
    Context context = 0;
    CHECK(open(rt, context) == status::success);
    SdkVersion version{};
    CHECK(rt.query(context, query::sdk_version, &version, sizeof version) == status::success);
    CHECK(std::string(version.api_version).rfind("1.5.2", 0) == 0);
    CHECK(rt.destroy(context) == status::success);
    test_zero_copy_results(rt);
    test_general_results(rt);
}

void test_priority(const Runtime& rt) {
    const auto before = rt.stats().priority_raises;
    Context context = 0;
    CHECK(open(rt, context, {}, init_flag::disable_proc_high_priority) == status::success);
    CHECK(rt.destroy(context) == status::success);
    CHECK(rt.stats().priority_raises == before);
    CHECK(open(rt, context) == status::success);
    CHECK(rt.destroy(context) == status::success);
    CHECK(rt.stats().priority_raises == before + 1);
}

}  // namespace

int main(int argc, char** argv) {
    CHECK(argc == 3);
    const Runtime rt(argv[1]);
    test_zero_copy_results(rt);
    test_general_results(rt);
    test_general_misuse(rt);
    test_query_misuse(rt);
    test_memory_misuse(rt);
    test_freed_and_overrun_memory(rt);
    test_memory_from_a_descriptor(rt);
    test_init_misuse(rt);
    test_core_masks(rt);
    test_two_threads(rt);
    test_contexts_share_cores(rt);
    test_two_cores_run_at_once(rt);
    test_caches(rt);
    test_rebinding(rt);
    test_fault_switches(rt);
    test_moved_output(rt);
    test_one_thread(rt);
    test_dynamic_shapes(rt);
    test_priority(rt);
    const auto left = rt.stats();
    CHECK(left.live_mems == 0 && left.live_contexts == 0 && left.live_weights == 0);
    CHECK(left.live_outputs == 0 && left.internal_bytes == 0);
    test_old_version(Runtime(argv[2]));
    return 0;
}
