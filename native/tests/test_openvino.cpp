// Engine "openvino" against the real library: test_openvino LIBRARY CENTERFACE.onnx
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "engines/openvino/engine.hpp"

#ifdef __SANITIZE_ADDRESS__
// OpenVINO's thread library opens a part of itself in a way that the address sanitizer refuses, and
// its plugins are unloaded before the leak check, which then cannot see what their globals hold.
extern "C" void* dlopen(const char* path, int flags) {
    static const auto next = reinterpret_cast<void* (*)(const char*, int)>(::dlsym(RTLD_NEXT, "dlopen"));
    return next(path, (flags & ~RTLD_DEEPBIND) | RTLD_NODELETE);
}
#endif

namespace {

using pipeline::Direction;
using pipeline::DriverBlock;
using pipeline::DType;
using pipeline::Engine;
using pipeline::EngineContext;
using pipeline::Errc;
using pipeline::OpenVinoOptions;

const std::vector<std::int64_t> image_shape{1, 320, 320, 3};

OpenVinoOptions centerface(const char* library, const char* model) {
    OpenVinoOptions options;
    options.library = library;
    options.model = model;
    options.device = "CPU";
    options.input_shape = std::vector<std::int64_t>{1, 3, 320, 320};
    options.swap_rb = true;
    return options;
}

// One block for each tensor of one direction.
class Blocks {
public:
    Blocks(const Engine& engine, EngineContext& context, Direction direction)
        : context_(context), direction_(direction) {
        const auto& specs = direction == Direction::input ? engine.inputs() : engine.outputs();
        for (std::size_t i = 0; i < specs.size(); ++i) {
            blocks_.push_back(context.allocate(direction, i, specs[i].driver_size()));
        }
    }
    Blocks(const Blocks&) = delete;
    Blocks& operator=(const Blocks&) = delete;
    ~Blocks() {
        for (std::size_t i = 0; i < blocks_.size(); ++i) context_.release(direction_, i, blocks_[i]);
    }

    [[nodiscard]] const std::vector<DriverBlock>& all() const { return blocks_; }
    [[nodiscard]] const DriverBlock& operator[](std::size_t i) const { return blocks_[i]; }
    void fill(int value) const {
        for (const auto& block : blocks_) std::memset(block.base, value, block.length);
    }

private:
    EngineContext& context_;
    Direction direction_;
    std::vector<DriverBlock> blocks_;
};

bool same(const DriverBlock& a, const DriverBlock& b) {
    return a.length == b.length && std::memcmp(a.base, b.base, a.length) == 0;
}

bool filled(const DriverBlock& block, int value) {
    return std::all_of(block.base, block.base + block.length,
                       [&](std::byte byte) { return byte == static_cast<std::byte>(value); });
}

// Pixels that differ by row, column and channel.
void draw(const DriverBlock& block, unsigned seed) {
    for (std::size_t i = 0; i < block.length; ++i) {
        block.base[i] = static_cast<std::byte>((i * 31 + i / 960 * 7 + seed * 97) % 251);
    }
}

void test_specs(const OpenVinoOptions& options) {
    const auto engine = pipeline::open_openvino(options);
    CHECK(engine->name() == "openvino");
    CHECK(!engine->device().empty());
    CHECK(engine->context_count() == 1);
    CHECK(engine->inputs().size() == 1);
    const auto& input = engine->inputs()[0];
    CHECK(input.dtype == DType::u8);
    CHECK(input.shape == image_shape);
    CHECK(input.layout == "NHWC");
    CHECK(engine->outputs().size() == 4);
    const std::int64_t channels[] = {1, 2, 2, 10};
    for (std::size_t i = 0; i < 4; ++i) {
        const auto& output = engine->outputs()[i];
        CHECK(output.dtype == DType::f32);
        CHECK((output.shape == std::vector<std::int64_t>{1, channels[i], 80, 80}));
        CHECK(!output.name.empty());
    }
}

void test_declared_input(OpenVinoOptions options) {
    options.image_input = false;
    options.swap_rb = false;
    options.input_shape.reset();
    const auto engine = pipeline::open_openvino(options);
    CHECK(engine->inputs()[0].dtype == DType::f32);
    CHECK((engine->inputs()[0].shape == std::vector<std::int64_t>{10, 3, 32, 32}));
    CHECK(engine->inputs()[0].layout.empty());
}

void test_run(const OpenVinoOptions& options) {
    const auto engine = pipeline::open_openvino(options);
    const auto context = engine->open_context(0);
    const Blocks input_a(*engine, *context, Direction::input);
    const Blocks input_b(*engine, *context, Direction::input);
    const Blocks output_a(*engine, *context, Direction::output);
    const Blocks output_b(*engine, *context, Direction::output);
    for (const auto* blocks : {&input_a, &output_a}) {
        for (const auto& block : blocks->all()) {
            CHECK(reinterpret_cast<std::uintptr_t>(block.base) % 64 == 0);
            CHECK(filled(block, 0));
        }
    }
    draw(input_a[0], 1);
    draw(input_b[0], 1);
    output_a.fill(0xA5);
    output_b.fill(0xA5);

    context->run({input_a.all(), output_a.all()});
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(!filled(output_a[i], 0xA5));
        CHECK(filled(output_b[i], 0xA5));  // not ours to write in this run
        CHECK(context->zero_copy(Direction::output, i));
    }
    CHECK(context->zero_copy(Direction::input, 0));

    // The same image in other blocks gives the same values, there.
    const std::vector<std::byte> first(output_a[3].base, output_a[3].base + output_a[3].length);
    context->run({input_b.all(), output_b.all()});
    for (std::size_t i = 0; i < 4; ++i) CHECK(same(output_a[i], output_b[i]));

    // Another image in a block used before: its content is read anew, b stays as it was.
    draw(input_a[0], 2);
    context->run({input_a.all(), output_a.all()});
    CHECK(!same(output_a[3], output_b[3]));
    CHECK(std::memcmp(first.data(), output_b[3].base, first.size()) == 0);

    // Mixed: inputs and outputs rotate on their own.
    context->run({input_b.all(), output_a.all()});
    for (std::size_t i = 0; i < 4; ++i) CHECK(same(output_a[i], output_b[i]));
}

void test_release_while_bound(const OpenVinoOptions& options) {
    const auto engine = pipeline::open_openvino(options);
    const auto context = engine->open_context(0);
    const Blocks input(*engine, *context, Direction::input);
    const Blocks kept(*engine, *context, Direction::output);
    draw(input[0], 3);
    context->run({input.all(), kept.all()});
    for (int turn = 0; turn < 3; ++turn) {
        const Blocks brief(*engine, *context, Direction::output);
        context->run({input.all(), brief.all()});
        for (std::size_t i = 0; i < 4; ++i) CHECK(same(kept[i], brief[i]));
    }  // released while they are what was bound last
    kept.fill(0);
    context->run({input.all(), kept.all()});
    CHECK(!filled(kept[0], 0));
}

void test_contexts(OpenVinoOptions options) {
    options.contexts = 2;
    options.properties = {{"PERFORMANCE_HINT", "LATENCY"}, {"NUM_STREAMS", "2"}};
    const auto engine = pipeline::open_openvino(options);
    CHECK(engine->context_count() == 2);
    std::vector<std::vector<std::byte>> heat;
    for (std::size_t i = 0; i < 2; ++i) {
        const auto context = engine->open_context(i);
        const Blocks input(*engine, *context, Direction::input);
        const Blocks output(*engine, *context, Direction::output);
        draw(input[0], 4);
        context->run({input.all(), output.all()});
        heat.emplace_back(output[0].base, output[0].base + output[0].length);
    }
    CHECK(heat[0] == heat[1]);
}

// swap_rb, mean and scale must mean what they say: undone by hand, they give the plain result.
void test_folding(OpenVinoOptions options) {
    const auto heat = [&](auto&& pixel) {
        const auto engine = pipeline::open_openvino(options);
        const auto context = engine->open_context(0);
        const Blocks input(*engine, *context, Direction::input);
        const Blocks output(*engine, *context, Direction::output);
        for (std::size_t i = 0; i < input[0].length; ++i) {
            input[0].base[i] = static_cast<std::byte>(pixel(i / 3, i % 3));
        }
        context->run({input.all(), output.all()});
        std::vector<float> values(output[0].length / sizeof(float));
        std::memcpy(values.data(), output[0].base, output[0].length);
        return values;
    };
    const auto close = [](const std::vector<float>& a, const std::vector<float>& b) {
        return std::ranges::equal(a, b, [](float x, float y) { return std::abs(x - y) < 1e-4F; });
    };
    const auto color = [](std::size_t i, std::size_t c) { return (i * 5 + i / 320 * 3 + c * 40) % 101; };
    options.swap_rb = false;
    const auto plain = heat(color);
    options.swap_rb = true;
    CHECK(close(plain, heat([&](std::size_t i, std::size_t c) { return color(i, 2 - c); })));
    CHECK(!close(plain, heat(color)));
    options.swap_rb = false;
    options.mean = {10.0F, 20.0F, 30.0F};
    options.scale = {2.0F};
    CHECK(close(plain, heat([&](std::size_t i, std::size_t c) { return color(i, c) * 2 + 10 * (c + 1); })));
}

void test_bad_files(const OpenVinoOptions& good, const std::filesystem::path& folder) {
    const auto with_model = [&](const std::filesystem::path& path) {
        OpenVinoOptions options = good;
        options.model = path.string();
        return options;
    };
    const auto corrupt = folder / "corrupt.onnx";
    std::filesystem::copy_file(good.model, corrupt);
    std::filesystem::resize_file(corrupt, std::filesystem::file_size(corrupt) / 2);
    CHECK_THROWS(pipeline::open_openvino(with_model(corrupt)), Errc::model, "corrupt.onnx");
    for (const char* name : {"text.onnx", "text.xml", "text.tflite", "text.txt"}) {
        std::ofstream(folder / name) << "no model at all\n";
        CHECK_THROWS(pipeline::open_openvino(with_model(folder / name)), Errc::model, name);
    }
    std::ofstream(folder / "empty.onnx").close();
    CHECK_THROWS(pipeline::open_openvino(with_model(folder / "empty.onnx")), Errc::model, "empty.onnx");
    CHECK_THROWS(pipeline::open_openvino(with_model(folder / "absent.onnx")), Errc::model, "no such file");
    CHECK_THROWS(pipeline::open_openvino(with_model(folder)), Errc::model, "a folder");
}

void test_bad_options(const OpenVinoOptions& good) {
    const auto open = [&](auto&& change) {
        OpenVinoOptions options = good;
        change(options);
        return pipeline::open_openvino(options);
    };
    CHECK_THROWS(open([](auto& o) { o.device = "GPU.7"; }), Errc::device, "CPU");
    CHECK_THROWS(open([](auto& o) { o.device = "AUTO:TPU,CPU"; }), Errc::device, "'TPU'");
    CHECK_THROWS(open([](auto& o) { o.device = ""; }), Errc::device, "CPU");
    CHECK_THROWS(open([](auto& o) { o.input_shape = {3, 320, 320}; }), Errc::model, "rank 4 [10,3,32,32]");
    CHECK_THROWS(open([](auto& o) { o.input_shape = {3, 320, 320}; }), Errc::model, "rank 3 [3,320,320]");
    CHECK_THROWS(open([](auto& o) { o.input_shape = {1, 3, 0, 320}; }), Errc::config,
                 "input_shape.2: 0 is not above 0");
    CHECK_THROWS(open([](auto& o) { o.input_shape = {1, 5, 320, 320}; }), Errc::model,
                 "declares [10,3,32,32] NCHW");
    CHECK_THROWS(open([](auto& o) { o.mean = {1.0F, 2.0F}; }), Errc::config, "image.mean: 2 values");
    CHECK_THROWS(open([](auto& o) { o.scale = {1, 2, 3, 4}; }), Errc::config, "3 channels");
    CHECK_THROWS(open([](auto& o) { o.scale = {0.0F}; }), Errc::config, "scale");
    CHECK_THROWS(open([](auto& o) { o.contexts = 0; }), Errc::config, "contexts");
    CHECK_THROWS(open([](auto& o) { o.properties = {{"NO_SUCH_KEY", "1"}}; }), Errc::config, "NO_SUCH_KEY");
    CHECK_THROWS(open([](auto& o) { o.properties = {{"NUM_STREAMS", "many"}}; }), Errc::config,
                 "NUM_STREAMS");
    CHECK_THROWS(open([](auto& o) { o.library = "libabsent_c.so"; }), Errc::not_installed, "libabsent_c.so");
    CHECK_THROWS(open([](auto& o) { o.library = "libc.so.6"; }), Errc::not_installed, "ov_");
}

// An IR of one float vector x that is handed out as it is and, twice, as max(x, 0).
std::string aliases_ir(const std::string& extent, const std::string& type) {
    const auto port = [&](int id, const std::string& names) {
        return "<port id='" + std::to_string(id) + "' precision='" + type + "' names='" + names + "'><dim>" +
               extent + "</dim></port>";
    };
    std::string layers = "<layer id='0' name='x' type='Parameter' version='opset1'><data shape='" + extent +
                         "' element_type='" + (type == "FP32" ? "f32" : "bf16") + "'/><output>" +
                         port(0, "x") +
                         "</output></layer><layer id='1' name='relu' type='ReLU' version='opset1'><input>" +
                         port(0, "") + "</input><output>" + port(1, "relu") + "</output></layer>";
    std::string edges = "<edge from-layer='0' from-port='0' to-layer='1' to-port='0'/>";
    const std::pair<int, int> sources[] = {{0, 0}, {1, 1}, {1, 1}};
    int id = 2;
    for (const auto& [layer, from] : sources) {
        const std::string own = std::to_string(id++);
        layers += "<layer id='" + own + "' name='result" + own + "' type='Result' version='opset1'><input>" +
                  port(0, "") + "</input></layer>";
        edges += "<edge from-layer='" + std::to_string(layer) + "' from-port='" + std::to_string(from) +
                 "' to-layer='" + own + "' to-port='0'/>";
    }
    return "<?xml version='1.0'?><net name='aliases' version='11'><layers>" + layers + "</layers><edges>" +
           edges + "</edges></net>";
}

// OpenVINO knows one tensor by one name, however often the model hands it out: each of our blocks
// must get its values all the same.
void test_aliases(OpenVinoOptions options, const std::filesystem::path& folder) {
    options.input_shape.reset();
    options.swap_rb = false;
    options.model = (folder / "aliases.xml").string();
    std::ofstream(folder / "aliases.bin").close();
    std::ofstream(options.model) << aliases_ir("4", "FP32");
    const auto engine = pipeline::open_openvino(options);
    CHECK(engine->outputs().size() == 3);
    const auto context = engine->open_context(0);
    const Blocks input(*engine, *context, Direction::input);
    const Blocks first(*engine, *context, Direction::output);
    const Blocks second(*engine, *context, Direction::output);
    for (const Blocks* output : {&first, &second, &first}) {
        const std::array<float, 4> x =
            output == &first ? std::array{-1.0F, 2.0F, -3.0F, 4.0F} : std::array{5.0F, -6.0F, 7.0F, -8.0F};
        std::array<float, 4> relu = x;
        for (auto& value : relu) value = std::max(value, 0.0F);
        std::memcpy(input[0].base, x.data(), sizeof(x));
        output->fill(0xA5);
        context->run({input.all(), output->all()});
        CHECK(std::memcmp(input[0].base, x.data(), sizeof(x)) == 0);
        CHECK(std::memcmp((*output)[0].base, x.data(), sizeof(x)) == 0);
        CHECK(std::memcmp((*output)[1].base, relu.data(), sizeof(x)) == 0);
        CHECK(std::memcmp((*output)[2].base, relu.data(), sizeof(x)) == 0);
    }
    CHECK(!context->zero_copy(Direction::input, 0));  // it has to go through output 0's block

    std::ofstream(options.model) << aliases_ir("-1", "FP32");
    CHECK_THROWS(pipeline::open_openvino(options), Errc::model, "[?], but buffers need a fixed one");
    options.input_shape = {6};
    CHECK(pipeline::open_openvino(options)->outputs()[2].shape == options.input_shape);
    std::ofstream(options.model) << aliases_ir("6", "BF16");
    CHECK_THROWS(pipeline::open_openvino(options), Errc::model, "bfloat16");
}

void test_auto_device(OpenVinoOptions options) {
    options.device = "AUTO";
    const auto engine = pipeline::open_openvino(options);
    CHECK(engine->device().starts_with("AUTO on "));
    const auto context = engine->open_context(0);
    const Blocks input(*engine, *context, Direction::input);
    const Blocks output(*engine, *context, Direction::output);
    draw(input[0], 5);
    context->run({input.all(), output.all()});
    CHECK(!filled(output[0], 0));
}

void test_devices(const std::string& library) {
    const auto found = pipeline::list_openvino_devices(library);
    CHECK(found.version.starts_with("20"));
    CHECK(std::ranges::any_of(found.devices, [](const auto& device) { return device.first == "CPU"; }));
    for (const auto& [id, name] : found.devices) CHECK(!name.empty());
}

// A folder of its own, gone at the end.
class TemporaryFolder {
public:
    TemporaryFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "openvino-test-XXXXXX").string();
        CHECK(::mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder() { std::filesystem::remove_all(path_); }
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

}  // namespace

int main(int argc, char** argv) {
#ifdef __SANITIZE_THREAD__
    // Neither the library nor its thread pool is built for this sanitizer, which would only guess.
    return 77;
#endif
    if (argc != 3) {
        std::fprintf(stderr, "skipped: needs the path of libopenvino_c and of centerface.onnx\n");
        return 77;
    }
    const auto options = centerface(argv[1], argv[2]);
    const TemporaryFolder folder;
    test_devices(options.library);
    test_specs(options);
    test_declared_input(options);
    test_run(options);
    test_release_while_bound(options);
    test_contexts(options);
    test_folding(options);
    test_bad_files(options, folder.path());
    test_bad_options(options);
    test_aliases(options, folder.path());
    test_auto_device(options);
    std::puts("openvino: all passed");
}
