// The stand-in of vendor/nnrt holds its callers to every rule that it has: each is broken here, and
// has to be counted, told and refused. Arguments are the library and v1 or v2.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "engines/dylib.hpp"
#include "engines/nnrt/api.hpp"
#include "support.hpp"
#include "tests/vendor/nnrt/state.hpp"

using namespace pipeline;

namespace {

constexpr std::size_t npu = 0x51A0DE71CE0001;
constexpr std::size_t cpu = 7;
constexpr std::size_t image_bytes = 48;

struct Bench {
    explicit Bench(const std::string& path) : dylib(path), api(path) {
        folder = std::filesystem::temp_directory_path() / ("nnrt-strict-" + std::to_string(::getpid()));
        std::filesystem::create_directories(folder);
        model = (folder / "model.om").string();
        std::ofstream(model) << "standin-nnrt 1\nweights 3 1 4\ninput image uint8 NHWC 1 4 4 3\n"
                                "output scores float32 NONE 1 10\noutput mask uint8 NONE 1 7\n";
        reset();
    }
    ~Bench() { std::filesystem::remove_all(folder); }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;

    void reset() const { dylib.symbol<decltype(&::standin_nnrt_reset)>("standin_nnrt_reset")(); }
    void release() const { dylib.symbol<decltype(&::standin_nnrt_release)>("standin_nnrt_release")(); }
    [[nodiscard]] StandinNnrtStats stats() const {
        StandinNnrtStats result{};
        dylib.symbol<decltype(&::standin_nnrt_stats)>("standin_nnrt_stats")(&result);
        return result;
    }
    [[nodiscard]] std::string last() const {
        return dylib.symbol<decltype(&::standin_nnrt_last_misuse)>("standin_nnrt_last_misuse")();
    }

    [[nodiscard]] nnrt::OwnedCompilation compilation() const {
        nnrt::OwnedCompilation made(api.OH_NNCompilation_ConstructWithOfflineModelFile(model.c_str()),
                                    {api.OH_NNCompilation_Destroy});
        CHECK(api.OH_NNCompilation_SetDevice(made.get(), npu) == OH_NN_SUCCESS);
        return made;
    }
    [[nodiscard]] nnrt::OwnedExecutor executor() const {
        const auto built = compilation();
        CHECK(api.OH_NNCompilation_Build(built.get()) == OH_NN_SUCCESS);
        return {api.OH_NNExecutor_Construct(built.get()), {api.OH_NNExecutor_Destroy}};
    }

    Dylib dylib;
    nnrt::Api api;
    std::filesystem::path folder;
    std::string model;
};

// The action breaks one rule, whose text has `part`.
template <class Action>
void broken(const Bench& bench, std::string_view part, Action action) {
    const auto before = bench.stats().misuses;
    action();
    CHECK(bench.stats().misuses == before + 1);
    const std::string told = bench.last();
    if (told.find(part) == std::string::npos)
        test::fail(__FILE__, __LINE__, "another rule was broken", told.c_str());
}

// The same, and the call refuses what it was told.
template <class Action>
void refused(const Bench& bench, std::string_view part, Action action) {
    broken(bench, part, [&] { CHECK(action() != OH_NN_SUCCESS); });
}

void rules_of_devices_and_compilations(const Bench& bench) {
    const auto& api = bench.api;
    const std::size_t* ids = nullptr;
    std::uint32_t count = 0;
    CHECK(api.OH_NNDevice_GetAllDevicesID(&ids, &count) == OH_NN_SUCCESS);
    refused(bench, "the list is not null", [&] { return api.OH_NNDevice_GetAllDevicesID(&ids, &count); });
    const char* name = "something";
    refused(bench, "the name is not null", [&] { return api.OH_NNDevice_GetName(npu, &name); });

    broken(bench, "no path",
           [&] { CHECK(api.OH_NNCompilation_ConstructWithOfflineModelFile(nullptr) == nullptr); });
    auto* unset = api.OH_NNCompilation_ConstructWithOfflineModelFile(bench.model.c_str());
    refused(bench, "no device was set", [&] { return api.OH_NNCompilation_Build(unset); });
    broken(bench, "not built", [&] { CHECK(api.OH_NNExecutor_Construct(unset) == nullptr); });
    auto* dead = unset;
    api.OH_NNCompilation_Destroy(&unset);
    CHECK(unset == nullptr);
    refused(bench, "compilation is not alive", [&] { return api.OH_NNCompilation_SetDevice(dead, npu); });
    broken(bench, "compilation is not alive", [&] { api.OH_NNCompilation_Destroy(&dead); });
    refused(bench, "compilation is null", [&] { return api.OH_NNCompilation_Build(nullptr); });

    nnrt::OwnedCompilation cache(api.OH_NNCompilation_ConstructForCache(), {api.OH_NNCompilation_Destroy});
    CHECK(api.OH_NNCompilation_SetDevice(cache.get(), npu) == OH_NN_SUCCESS);
    refused(bench, "neither model nor cache", [&] { return api.OH_NNCompilation_Build(cache.get()); });
    const auto twice = bench.compilation();
    CHECK(api.OH_NNCompilation_Build(twice.get()) == OH_NN_SUCCESS);
    refused(bench, "a second time", [&] { return api.OH_NNCompilation_Build(twice.get()); });
}

void rules_of_output_shapes(const Bench& bench) {
    const auto& api = bench.api;
    const auto executor = bench.executor();
    std::int32_t* shape = nullptr;
    std::uint32_t count = 0;
    const auto ask = [&] { return api.OH_NNExecutor_GetOutputShape(executor.get(), 0, &shape, &count); };
    refused(bench, "no run", ask);
    std::int32_t mine = 0;
    shape = &mine;
    refused(bench, "the shape is not null", ask);
}

// A run of `executor` that is held on another thread until it is told to go on.
template <class Run>
class HeldRun {
public:
    HeldRun(const Bench& bench, Run run) : bench_(bench) {
        ::setenv("STANDIN_NNRT_HOLD_RUNS", "1", 1);
        bench.reset();
        thread_ = std::thread([run] { CHECK(run() == OH_NN_SUCCESS); });
        test::eventually([&] { return bench_.stats().runs == 1; });
    }
    ~HeldRun() {
        bench_.release();
        thread_.join();
        ::unsetenv("STANDIN_NNRT_HOLD_RUNS");
        bench_.reset();
    }
    HeldRun(const HeldRun&) = delete;
    HeldRun& operator=(const HeldRun&) = delete;

private:
    const Bench& bench_;
    std::thread thread_;
};

// With the calls before API 11.

struct Memories {
    Memories(const Bench& bench, OH_NNExecutor* of)
        : api(bench.api),
          executor(of),
          image(api.OH_NNExecutor_AllocateInputMemory(of, 0, image_bytes)),
          scores(api.OH_NNExecutor_AllocateOutputMemory(of, 0, 40)),
          mask(api.OH_NNExecutor_AllocateOutputMemory(of, 1, 7)) {
        CHECK(image != nullptr && scores != nullptr && mask != nullptr);
    }
    ~Memories() {
        if (image != nullptr) api.OH_NNExecutor_DestroyInputMemory(executor, 0, &image);
        if (scores != nullptr) api.OH_NNExecutor_DestroyOutputMemory(executor, 0, &scores);
        if (mask != nullptr) api.OH_NNExecutor_DestroyOutputMemory(executor, 1, &mask);
    }
    Memories(const Memories&) = delete;
    Memories& operator=(const Memories&) = delete;

    [[nodiscard]] OH_NN_ReturnCode set_image(const void* base, std::size_t bytes = image_bytes) const {
        const OH_NN_Tensor tensor{OH_NN_UINT8, 4, shape, nullptr, 0};
        const OH_NN_Memory memory{const_cast<void*>(base), bytes};
        return api.OH_NNExecutor_SetInputWithMemory(executor, 0, &tensor, &memory);
    }
    [[nodiscard]] OH_NN_ReturnCode set_output(std::uint32_t index, const OH_NN_Memory& memory) const {
        return api.OH_NNExecutor_SetOutputWithMemory(executor, index, &memory);
    }
    void bind() const {
        CHECK(set_image(image->data) == OH_NN_SUCCESS);
        CHECK(set_output(0, *scores) == OH_NN_SUCCESS && set_output(1, *mask) == OH_NN_SUCCESS);
    }

    static constexpr std::int32_t shape[] = {1, 4, 4, 3};
    const nnrt::Api& api;
    OH_NNExecutor* executor;
    OH_NN_Memory* image;
    OH_NN_Memory* scores;
    OH_NN_Memory* mask;
};

void rules_of_binding_memory(const Bench& bench) {
    const auto& api = bench.api;
    const auto executor = bench.executor();
    const Memories own(bench, executor.get());
    const auto run = [&] { return api.OH_NNExecutor_Run(executor.get()); };
    refused(bench, "input 0: nothing is bound", run);
    CHECK(own.set_image(own.image->data) == OH_NN_SUCCESS);
    CHECK(own.set_output(0, *own.scores) == OH_NN_SUCCESS);
    refused(bench, "output 1: nothing is bound", run);  // filled partly
    own.bind();
    CHECK(run() == OH_NN_SUCCESS);

    const auto other = bench.executor();
    const Memories others(bench, other.get());
    std::vector<std::byte> heap(image_bytes);
    auto* const base = static_cast<std::byte*>(own.image->data);
    for (const auto& [memory, part] :
         {std::pair<const void*, const char*>(heap.data(), "not the base of a piece of driver memory"),
          std::pair<const void*, const char*>(base + 16, "not the base of a piece of driver memory"),
          std::pair<const void*, const char*>(others.image->data, "memory of another executor"),
          std::pair<const void*, const char*>(own.scores->data, "memory of another tensor")}) {
        CHECK(own.set_image(memory) == OH_NN_SUCCESS);  // as the real one, which looks at lengths only
        refused(bench, part, run);
    }
    CHECK(own.set_image(base, image_bytes + 1) == OH_NN_SUCCESS);
    refused(bench, "longer than its memory", run);
    CHECK(own.set_image(base, image_bytes - 1) == OH_NN_INVALID_PARAMETER);
    own.bind();
    base[image_bytes] = std::byte{1};
    refused(bench, "somebody wrote past its end", run);
    base[image_bytes] = std::byte{0xB7};
    CHECK(run() == OH_NN_SUCCESS);

    refused(bench, "no such tensor, or no memory", [&] { return own.set_output(2, *own.scores); });
    refused(bench, "no such tensor, or no memory", [&] { return own.set_image(nullptr); });
    refused(bench, "no description",
            [&] { return api.OH_NNExecutor_SetInputWithMemory(executor.get(), 0, nullptr, own.image); });
}

void rules_of_freeing_memory(const Bench& bench) {
    const auto& api = bench.api;
    auto executor = bench.executor();
    auto* const raw = executor.get();
    auto* memory = api.OH_NNExecutor_AllocateOutputMemory(raw, 0, 40);
    const auto kept = [&](OH_NNExecutor* of, std::uint32_t index, bool input) {
        const auto call =
            input ? api.OH_NNExecutor_DestroyInputMemory : api.OH_NNExecutor_DestroyOutputMemory;
        broken(bench, "not memory of this executor and tensor", [&] { call(of, index, &memory); });
        CHECK(memory != nullptr && bench.stats().live_blocks == 1);
    };
    kept(raw, 1, false);
    kept(raw, 0, true);
    kept(bench.executor().get(), 0, false);
    auto* again = memory;
    static_cast<std::byte*>(memory->data)[40] = std::byte{1};
    broken(bench, "wrote past the end of a block that is freed",
           [&] { api.OH_NNExecutor_DestroyOutputMemory(raw, 0, &memory); });
    CHECK(memory == nullptr && bench.stats().live_blocks == 0);
    broken(bench, "memory is not alive", [&] { api.OH_NNExecutor_DestroyOutputMemory(raw, 0, &again); });

    // The executor first, which forgets its memory, and then the memory.
    auto* orphan = api.OH_NNExecutor_AllocateInputMemory(raw, 0, image_bytes);
    broken(bench, "destroyed before 1 pieces of its memory", [&] { executor.reset(); });
    CHECK(bench.stats().leaked_blocks == 1);
    broken(bench, "executor, whose memory is freed, is not alive",
           [&] { api.OH_NNExecutor_DestroyInputMemory(raw, 0, &orphan); });
    CHECK(orphan != nullptr);
    broken(bench, "executor is not alive",
           [&] { CHECK(api.OH_NNExecutor_AllocateInputMemory(raw, 0, image_bytes) == nullptr); });
    refused(bench, "executor is not alive", [&] { return api.OH_NNExecutor_Run(raw); });
    const auto second = bench.executor();
    const Memories own(bench, second.get());
    own.bind();
    CHECK(own.set_image(orphan->data) == OH_NN_SUCCESS);
    refused(bench, "memory of a destroyed executor", [&] { return api.OH_NNExecutor_Run(second.get()); });
}

void rules_of_two_threads_on_memory(const Bench& bench) {
    const auto& api = bench.api;
    const auto executor = bench.executor();
    const Memories own(bench, executor.get());
    own.bind();
    {
        const HeldRun held(bench, [&api, raw = executor.get()] { return api.OH_NNExecutor_Run(raw); });
        refused(bench, "Run: two threads on one executor",
                [&] { return api.OH_NNExecutor_Run(executor.get()); });
        refused(bench, "Set*WithMemory: two threads on one executor",
                [&] { return own.set_image(own.image->data); });
        auto* destroyed = executor.get();
        broken(bench, "executor destroyed while it runs", [&] { api.OH_NNExecutor_Destroy(&destroyed); });
        CHECK(destroyed != nullptr);
    }
    CHECK(api.OH_NNExecutor_Run(executor.get()) == OH_NN_SUCCESS);
}

// With those of API 11.

struct Tensors {
    Tensors(const Bench& bench, const OH_NNExecutor* executor, std::size_t device = npu)
        : api(bench.api),
          image(make(executor, true, 0, device)),
          scores(make(executor, false, 0, device)),
          mask(make(executor, false, 1, device)) {}
    ~Tensors() {
        for (auto** tensor : {&image, &scores, &mask}) {
            if (*tensor != nullptr) CHECK(api.OH_NNTensor_Destroy(tensor) == OH_NN_SUCCESS);
        }
    }
    Tensors(const Tensors&) = delete;
    Tensors& operator=(const Tensors&) = delete;

    [[nodiscard]] NN_Tensor* make(const OH_NNExecutor* executor, bool input, std::size_t index,
                                  std::size_t device) const {
        const auto describe =
            input ? api.OH_NNExecutor_CreateInputTensorDesc : api.OH_NNExecutor_CreateOutputTensorDesc;
        const nnrt::OwnedDescription description(describe(executor, index), {api.OH_NNTensorDesc_Destroy});
        constexpr std::size_t bytes[] = {40, 7};
        return api.OH_NNTensor_CreateWithSize(device, description.get(), input ? image_bytes : bytes[index]);
    }

    const nnrt::Api& api;
    NN_Tensor* image;
    NN_Tensor* scores;
    NN_Tensor* mask;
};

OH_NN_ReturnCode run_on(const nnrt::Api& api, OH_NNExecutor* executor, std::vector<NN_Tensor*> inputs,
                        std::vector<NN_Tensor*> outputs) {
    return api.OH_NNExecutor_RunSync(executor, inputs.data(), inputs.size(), outputs.data(), outputs.size());
}

void rules_of_descriptions(const Bench& bench) {
    const auto& api = bench.api;
    const auto executor = bench.executor();
    auto* description = api.OH_NNExecutor_CreateInputTensorDesc(executor.get(), 0);
    const char* name = "something";
    refused(bench, "the name is not null", [&] { return api.OH_NNTensorDesc_GetName(description, &name); });
    refused(bench, "GetDataType: null",
            [&] { return api.OH_NNTensorDesc_GetDataType(description, nullptr); });
    refused(bench, "GetFormat: null", [&] { return api.OH_NNTensorDesc_GetFormat(description, nullptr); });
    std::int32_t mine = 0;
    std::int32_t* shape = &mine;
    std::size_t count = 0;
    refused(bench, "the shape is not null",
            [&] { return api.OH_NNTensorDesc_GetShape(description, &shape, &count); });
    refused(bench, "SetShape: null", [&] { return api.OH_NNTensorDesc_SetShape(description, nullptr, 2); });
    using GetByteSize = decltype(&::OH_NNTensorDesc_GetByteSize);
    const auto size = bench.dylib.symbol<GetByteSize>("OH_NNTensorDesc_GetByteSize");
    refused(bench, "GetByteSize: null", [&] { return size(description, nullptr); });
    broken(bench, "47 bytes for a tensor of 48",
           [&] { CHECK(api.OH_NNTensor_CreateWithSize(npu, description, 47) == nullptr); });
    auto* dead = description;
    CHECK(api.OH_NNTensorDesc_Destroy(&description) == OH_NN_SUCCESS);
    refused(bench, "description is not alive", [&] { return api.OH_NNTensorDesc_Destroy(&dead); });
    broken(bench, "description is not alive",
           [&] { CHECK(api.OH_NNTensor_CreateWithSize(npu, dead, 48) == nullptr); });
    broken(bench, "executor is null",
           [&] { CHECK(api.OH_NNExecutor_CreateInputTensorDesc(nullptr, 0) == nullptr); });
    refused(bench, "executor is null", [&] { return api.OH_NNExecutor_GetInputCount(nullptr, &count); });
    refused(bench, "executor is null", [&] { return api.OH_NNExecutor_GetOutputCount(nullptr, &count); });
}

void rules_of_running_on_tensors(const Bench& bench) {
    const auto& api = bench.api;
    auto executor = bench.executor();
    auto* const raw = executor.get();
    Tensors own(bench, raw);
    const auto run = [&](std::vector<NN_Tensor*> inputs, std::vector<NN_Tensor*> outputs) {
        return [&api, raw, inputs, outputs] { return run_on(api, raw, inputs, outputs); };
    };
    CHECK(run({own.image}, {own.scores, own.mask})() == OH_NN_SUCCESS);
    refused(bench, "output count differs", run({own.image}, {own.scores}));
    refused(bench, "input count differs", run({}, {own.scores, own.mask}));
    refused(bench, "output 1: not a tensor that is alive", run({own.image}, {own.scores, nullptr}));
    int foreign = 0;
    refused(bench, "input 0: not a tensor that is alive",
            run({reinterpret_cast<NN_Tensor*>(&foreign)}, {own.scores, own.mask}));
    refused(bench, "output 1: bound twice", run({own.image}, {own.scores, own.scores}));
    refused(bench, "output 0: type or shape differ", run({own.image}, {own.mask, own.scores}));
    const Tensors elsewhere(bench, raw, cpu);
    refused(bench, "input 0: memory of another device", run({elsewhere.image}, {own.scores, own.mask}));
    auto* const base = static_cast<std::byte*>(api.OH_NNTensor_GetDataBuffer(own.image));
    base[image_bytes] = std::byte{1};
    refused(bench, "input 0: somebody wrote past its end", run({own.image}, {own.scores, own.mask}));
    base[image_bytes] = std::byte{0xB7};

    auto* gone = own.mask;
    CHECK(api.OH_NNTensor_Destroy(&own.mask) == OH_NN_SUCCESS);
    refused(bench, "output 1: not a tensor that is alive", run({own.image}, {own.scores, gone}));
    refused(bench, "tensor is not alive", [&] { return api.OH_NNTensor_Destroy(&gone); });
    broken(bench, "tensor is not alive", [&] { CHECK(api.OH_NNTensor_GetDataBuffer(gone) == nullptr); });
    std::size_t bytes = 0;
    refused(bench, "tensor is not alive", [&] { return api.OH_NNTensor_GetSize(gone, &bytes); });

    executor.reset();
    refused(bench, "executor is not alive", run({own.image}, {own.scores, own.mask}));
    auto* twice = raw;
    broken(bench, "executor is not alive", [&] { api.OH_NNExecutor_Destroy(&twice); });
}

void rules_of_two_threads_on_tensors(const Bench& bench) {
    const auto& api = bench.api;
    const auto executor = bench.executor();
    auto* const raw = executor.get();
    const Tensors own(bench, raw);
    const Tensors others(bench, raw);
    {
        const HeldRun held(
            bench, [&api, &own, raw] { return run_on(api, raw, {own.image}, {own.scores, own.mask}); });
        refused(bench, "RunSync: two threads on one executor",
                [&] { return run_on(api, raw, {others.image}, {others.scores, others.mask}); });
        auto* destroyed = raw;
        broken(bench, "executor destroyed while it runs", [&] { api.OH_NNExecutor_Destroy(&destroyed); });
        CHECK(destroyed != nullptr);
    }
    CHECK(run_on(api, raw, {own.image}, {own.scores, own.mask}) == OH_NN_SUCCESS);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const Bench bench(argv[1]);
    rules_of_devices_and_compilations(bench);
    rules_of_output_shapes(bench);
    if (std::string_view(argv[2]) == "v1") {
        rules_of_binding_memory(bench);
        rules_of_freeing_memory(bench);
        rules_of_two_threads_on_memory(bench);
    } else {
        rules_of_descriptions(bench);
        rules_of_running_on_tensors(bench);
        rules_of_two_threads_on_tensors(bench);
    }
}
