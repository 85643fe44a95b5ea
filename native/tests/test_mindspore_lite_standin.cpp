// The stand-in of vendor/mindspore_lite holds its callers to every rule that it has: each is broken
// here, and has to be counted, told and refused. Arguments are the library and its family.
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "engines/dylib.hpp"
#include "engines/mindspore_lite/api.hpp"
#include "support.hpp"

using namespace pipeline;
namespace lite = pipeline::mindspore_lite;

namespace {

constexpr std::int64_t image_shape[] = {1, 4, 4, 3};
constexpr std::int64_t extra_shape[] = {1, 5};
constexpr std::int64_t output_shape[] = {1, 10};

struct Bench {
    Bench(const std::string& path, const std::string& family)
        : dylib(path), api(path), oh(family == "OH_AI") {
        folder = std::filesystem::temp_directory_path() / ("mslite-strict-" + std::to_string(::getpid()));
        std::filesystem::create_directories(folder);
        file = (folder / "model.ms").string();
        std::ofstream(file) << "mindspore-lite-standin\ninput image uint8 NHWC 1 4 4 3\n"
                               "input extra int32 NCHW 1 5\noutput scores float32 NCHW 1 10\n"
                               "output second float32 NCHW 1 10\n";
    }
    ~Bench() { std::filesystem::remove_all(folder); }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;

    [[nodiscard]] std::int64_t count(const char* name) const {
        return dylib.symbol<std::int64_t (*)(const char*)>("standin_mslite_count")(name);
    }
    [[nodiscard]] std::string last() const {
        return dylib.symbol<const char* (*)()>("standin_mslite_last_violation")();
    }
    void set_data(lite::Handle tensor, void* data) const {
        const char* const name = oh ? "OH_AI_TensorSetData" : "MSTensorSetData";
        dylib.symbol<void (*)(lite::Handle, void*)>(name)(tensor, data);
    }
    [[nodiscard]] lite::Handle context() const {
        const auto made = api.ContextCreate();
        api.ContextAddDeviceInfo(made, api.DeviceInfoCreate(lite::device_cpu));
        return made;
    }
    [[nodiscard]] lite::Owned model() const {
        lite::Owned made(api.ModelCreate(), api.ModelDestroy);
        CHECK(api.ModelBuildFromFile(made.get(), file.c_str(), 0, context()) == lite::success);
        return made;
    }
    [[nodiscard]] lite::Owned tensor(const char* name, std::int32_t type, const std::int64_t* shape,
                                     std::size_t rank) const {
        return {api.TensorCreate(name, type, shape, rank, nullptr, 0), api.TensorDestroy};
    }
    [[nodiscard]] lite::Owned image() const { return tensor("image", lite::type_u8, image_shape, 4); }
    [[nodiscard]] lite::Owned extra() const { return tensor("extra", lite::type_i32, extra_shape, 2); }
    [[nodiscard]] lite::Owned output() const { return tensor("o", lite::type_f32, output_shape, 2); }

    Dylib dylib;
    lite::Api api;
    bool oh;
    std::filesystem::path folder;
    std::string file;
};

// The action breaks one rule, whose text has `part`.
template <class Action>
void broken(const Bench& bench, std::string_view part, Action action) {
    const auto before = bench.count("violations");
    action();
    const std::string told = bench.last();
    if (told.find(part) == std::string::npos)
        test::fail(__FILE__, __LINE__, "another rule was broken", told.c_str());
    CHECK(bench.count("violations") == before + 1);
}

// A model with inputs to run it on.
struct Ready {
    explicit Ready(const Bench& b) : bench(b), model(b.model()), image(b.image()), extra(b.extra()) {
        CHECK(bench.api.TensorGetMutableData(image.get()) != nullptr);
        CHECK(bench.api.TensorGetMutableData(extra.get()) != nullptr);
    }
    [[nodiscard]] lite::Status run(std::vector<lite::Handle> inputs, lite::TensorHandleArray* outputs,
                                   lite::KernelCallBack before = nullptr) const {
        return bench.api.ModelPredict(model.get(), {inputs.size(), inputs.data()}, outputs, before, nullptr);
    }
    [[nodiscard]] lite::Status run(std::vector<lite::Handle> inputs) const {
        lite::TensorHandleArray outputs{0, nullptr};
        return run(std::move(inputs), &outputs);
    }
    [[nodiscard]] std::vector<lite::Handle> inputs() const { return {image.get(), extra.get()}; }
    [[nodiscard]] lite::Handle own(bool input, std::size_t index) const {
        const auto all =
            input ? bench.api.ModelGetInputs(model.get()) : bench.api.ModelGetOutputs(model.get());
        return all.handle_list[index];
    }

    const Bench& bench;
    lite::Owned model;
    lite::Owned image;
    lite::Owned extra;
};

void rules_of_handles(const Bench& bench) {
    const auto& api = bench.api;
    auto context = bench.context();
    const lite::Owned model(api.ModelCreate(), api.ModelDestroy);
    CHECK(api.ModelBuildFromFile(model.get(), bench.file.c_str(), 0, context) == lite::success);
    const lite::Owned other(api.ModelCreate(), api.ModelDestroy);
    const auto build = [&](lite::Handle given) {
        return [&api, &bench, &other, given] {
            CHECK(api.ModelBuildFromFile(other.get(), bench.file.c_str(), 0, given) != lite::success);
        };
    };
    broken(bench, "a dead or wrong handle for a context", build(context));  // a second build with it
    broken(bench, "null for a context", build(nullptr));
    broken(bench, "a dead or wrong handle for a context", build(model.get()));
    broken(bench, "a dead or wrong handle for a context", [&] { api.ContextDestroy(&context); });
    auto tensor = api.TensorCreate("t", lite::type_u8, image_shape, 4, nullptr, 0);
    auto again = tensor;
    api.TensorDestroy(&tensor);
    broken(bench, "a dead or wrong handle for a tensor", [&] { api.TensorDestroy(&again); });
    broken(bench, "a dead or wrong handle for a tensor",
           [&] { CHECK(api.TensorGetMutableData(again) == nullptr); });
    broken(bench, "destroyed by the caller", [&] {
        auto own = api.ModelGetInputs(model.get()).handle_list[0];
        api.TensorDestroy(&own);
    });
    auto dead = api.ModelCreate();
    auto kept = dead;
    api.ModelDestroy(&dead);
    broken(bench, "a dead or wrong handle for a model", [&] { api.ModelDestroy(&kept); });
}

void rules_of_inputs(const Bench& bench) {
    const Ready ready(bench);
    const auto refused = [&](std::string_view part, std::vector<lite::Handle> inputs) {
        broken(bench, part, [&] { CHECK(ready.run(inputs) != lite::success); });
    };
    CHECK(ready.run(ready.inputs()) == lite::success);
    refused("got 1 inputs", {ready.image.get()});
    refused("null for a tensor", {ready.image.get(), nullptr});
    refused("input image has another size, type or shape", {ready.extra.get(), ready.image.get()});
    const auto empty = bench.image();
    refused("input image has no data", {empty.get(), ready.extra.get()});
}

void rules_of_outputs(const Bench& bench) {
    const Ready ready(bench);
    const auto refused = [&](std::string_view part, lite::TensorHandleArray outputs) {
        broken(bench, part, [&] { CHECK(ready.run(ready.inputs(), &outputs) != lite::success); });
    };
    broken(bench, "no array for the outputs",
           [&] { CHECK(ready.run(ready.inputs(), nullptr) != lite::success); });
    refused("it says 77 tensors", {77, nullptr});
    refused("it says 2 tensors", {2, nullptr});
    const auto first = bench.output();
    const auto second = bench.output();
    CHECK(bench.api.TensorGetMutableData(first.get()) != nullptr);
    std::array<lite::Handle, 2> list{first.get(), nullptr};
    refused("the output array is filled partly", {2, list.data()});
    list[1] = second.get();
    lite::TensorHandleArray outputs{2, list.data()};
    // Not refused, which is how the original loses outputs.
    broken(bench, "output o has no data, so all of the caller's are dropped",
           [&] { CHECK(ready.run(ready.inputs(), &outputs) == lite::success); });
    constexpr std::int64_t smaller[] = {1, 9};
    const auto small = bench.tensor("small", lite::type_f32, smaller, 2);
    CHECK(bench.api.TensorGetMutableData(small.get()) != nullptr);
    list[1] = small.get();
    refused("output small is too small", {2, list.data()});
}

std::atomic<bool> inside{false};
std::atomic<bool> go_on{false};

bool stay(lite::TensorHandleArray /*inputs*/, lite::TensorHandleArray /*outputs*/, lite::CallBackParam) {
    inside = true;
    while (!go_on) std::this_thread::yield();
    return true;
}

void rules_of_threads(const Bench& bench) {
    const Ready ready(bench);
    CHECK(ready.run(ready.inputs()) == lite::success);
    std::thread([&] {
        broken(bench, "another thread than before", [&] { static_cast<void>(ready.run(ready.inputs())); });
    }).join();

    const Ready busy(bench);
    std::thread first([&] {
        lite::TensorHandleArray outputs{0, nullptr};
        CHECK(busy.run(busy.inputs(), &outputs, stay) == lite::success);
    });
    test::eventually([] { return inside.load(); });
    broken(bench, "two threads run one model at the same time",
           [&] { CHECK(busy.run(busy.inputs()) != lite::success); });
    go_on = true;
    first.join();
}

void rules_of_memory(const Bench& bench) {
    const auto& api = bench.api;
    const Ready ready(bench);
    const auto taker = bench.image();
    broken(bench, "memory that another tensor owns",
           [&] { bench.set_data(taker.get(), api.TensorGetMutableData(ready.image.get())); });
    CHECK(bench.count("set_data") == 1);
}

// What only the family of OpenHarmony has: allocators, and memory of the caller's.

void rules_of_allocators(const Bench& bench) {
    const auto& api = bench.api;
    Ready ready(bench);
    const auto key = api.TensorGetAllocator(ready.own(true, 0));
    const auto taker = bench.image();
    broken(bench, "TensorSetAllocator got null",
           [&] { CHECK(api.TensorSetAllocator(taker.get(), nullptr) != lite::success); });
    broken(bench, "a tensor that has data",
           [&] { CHECK(api.TensorSetAllocator(ready.image.get(), key) != lite::success); });
    CHECK(api.TensorSetAllocator(taker.get(), ready.image.get()) != lite::success);  // unknown
    CHECK(api.TensorSetAllocator(taker.get(), key) == lite::success);
    auto* const block = static_cast<std::byte*>(api.TensorGetMutableData(taker.get()));

    // Memory that is said to be the allocator's, but is a part of a block, or was written past.
    lite::Handle inner = api.TensorCreate("image", lite::type_u8, image_shape, 4, nullptr, 0);
    CHECK(api.TensorSetAllocator(inner, key) == lite::success);
    bench.set_data(inner, block + 8);
    const auto run = [&](lite::Handle image, bool works) {
        CHECK((ready.run({image, ready.extra.get()}) == lite::success) == works);
    };
    broken(bench, "a pointer into a block, not its base", [&] { run(inner, false); });
    broken(bench, "no block in use", [&] { api.TensorDestroy(&inner); });  // which would free it
    std::array<std::byte, 48> heap{};
    inner = api.TensorCreate("image", lite::type_u8, image_shape, 4, nullptr, 0);
    CHECK(api.TensorSetAllocator(inner, key) == lite::success);
    bench.set_data(inner, heap.data());
    broken(bench, "a foreign pointer", [&] { run(inner, false); });
    broken(bench, "no block in use", [&] { api.TensorDestroy(&inner); });
    const auto guard = std::exchange(block[48], std::byte{1});
    broken(bench, "somebody wrote past the ends of a block", [&] { run(taker.get(), true); });
    block[48] = guard;
    run(taker.get(), true);

    auto other = api.TensorCreate("image", lite::type_u8, image_shape, 4, nullptr, 0);
    CHECK(api.TensorSetAllocator(other, key) == lite::success);
    auto* const freed = api.TensorGetMutableData(other);
    api.TensorDestroy(&other);
    inner = api.TensorCreate("image", lite::type_u8, image_shape, 4, nullptr, 0);
    CHECK(api.TensorSetAllocator(inner, key) == lite::success);
    bench.set_data(inner, freed);
    broken(bench, "a block that was freed", [&] { run(inner, false); });
    broken(bench, "no block in use", [&] { api.TensorDestroy(&inner); });

    broken(bench, "a model ends while memory of its allocators is in use", [&] { ready.model.reset(); });
}

void rules_of_the_caller_s_memory(const Bench& bench) {
    const auto& api = bench.api;
    const Ready ready(bench);
    std::vector<std::byte> memory(48);
    broken(bench, "TensorSetUserData got 47 bytes",
           [&] { CHECK(api.TensorSetUserData(ready.image.get(), memory.data(), 47) != lite::success); });
    auto lent = bench.output();
    auto* const data = api.TensorGetMutableData(lent.get());
    CHECK(api.TensorSetUserData(ready.own(false, 0), data, 40) == lite::success);
    broken(bench, "memory is freed that output scores of a model points to", [&] { lent.reset(); });
}

void rules_of_the_list_of_allocators(const Bench& bench) {
    const auto& api = bench.api;
    const auto before = bench.count("violations");
    // Until two threads meet there; that they may is the point.
    std::array<std::thread, 2> threads;
    for (auto& thread : threads) {
        thread = std::thread([&] {
            const Ready ready(bench);
            test::eventually([&] {
                static_cast<void>(api.TensorGetAllocator(ready.own(true, 0)));
                return bench.count("violations") > before;
            });
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(bench.last().find("two threads are in the list of allocators") != std::string::npos);
}

}  // namespace

int main(int count, char** arguments) {
    CHECK(count == 3);
    const Bench bench(arguments[1], arguments[2]);
    rules_of_handles(bench);
    rules_of_inputs(bench);
    rules_of_outputs(bench);
    rules_of_threads(bench);
    rules_of_memory(bench);
    if (!bench.oh) return 0;
    rules_of_allocators(bench);
    rules_of_the_caller_s_memory(bench);
    rules_of_the_list_of_allocators(bench);
}
