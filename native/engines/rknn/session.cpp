// Runtime contexts and their duplicates, NPU memory, and the test whether rebinding is honoured.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engines/rknn/context.hpp"

namespace pipeline::rknn {
namespace {

// A second canary where the first stays: a result may look like one by chance, hardly like both.
constexpr int canaries[] = {0xA5, 0x5A};

bool holds(const NpuMemory& memory, std::size_t bytes, int value) {
    const std::byte* const data = memory.data();
    return std::all_of(data, data + bytes, [&](std::byte b) { return b == static_cast<std::byte>(value); });
}

// One set of memory for all tensors.
struct MemorySet {
    MemorySet(const Session& session, Context context, Direction direction)
        : tensors(session.model.tensors(direction)) {
        for (const auto& tensor : tensors)
            all.push_back(npu_memory(session.api, context, tensor.native_bytes));
    }

    [[nodiscard]] bool bind(const Session& session, Context context) const {
        for (std::size_t i = 0; i < all.size(); ++i) {
            TensorAttr attr = tensors[i].attr;
            if (session.api.set_io_mem(context, all[i]->mem, &attr) != status::success) return false;
        }
        return true;
    }
    void fill(const Session& session, Context context, int value, int step) const {
        for (std::size_t i = 0; i < all.size(); ++i) {
            std::byte* const data = all[i]->data();
            for (std::size_t k = 0; k < tensors[i].native_bytes; ++k) {
                data[k] = static_cast<std::byte>(static_cast<std::size_t>(value) +
                                                 k * static_cast<std::size_t>(step));
            }
            // Else a dirty cache line could later overwrite what the NPU writes there.
            if (session.api.mem_sync != nullptr) {
                session.api.check(session.api.mem_sync(context, all[i]->mem, mem_sync::to_device),
                                  Errc::engine, tensors[i].label + ": rknn_mem_sync");
            }
        }
    }
    void fetch(const Session& session, Context context) const {
        if (session.api.mem_sync == nullptr) return;
        for (std::size_t i = 0; i < all.size(); ++i) {
            session.api.check(session.api.mem_sync(context, all[i]->mem, mem_sync::from_device), Errc::engine,
                              tensors[i].label + ": rknn_mem_sync");
        }
    }
    [[nodiscard]] std::vector<std::byte> content() const {
        std::vector<std::byte> bytes;
        for (std::size_t i = 0; i < all.size(); ++i) {
            bytes.insert(bytes.end(), all[i]->data(), all[i]->data() + tensors[i].native_bytes);
        }
        return bytes;
    }
    [[nodiscard]] bool all_hold(int value) const {
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (!holds(*all[i], tensors[i].native_bytes, value)) return false;
        }
        return true;
    }
    [[nodiscard]] bool any_holds(int value) const {
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (holds(*all[i], tensors[i].native_bytes, value)) return true;
        }
        return false;
    }

    const std::vector<Tensor>& tensors;
    std::vector<std::unique_ptr<NpuMemory>> all;
};

}  // namespace

void Session::set_core(Context context, unsigned core) const {
    if (!choose_core) return;
    api.check(api.set_core_mask(context, 1 << core), Errc::device,
              "rknn_set_core_mask for core " + std::to_string(core));
}

void Session::set_shapes(Context context, const std::vector<TensorAttr>& attrs) const {
    if (attrs.empty()) return;
    auto lent = attrs;
    api.check(api.set_input_shapes(context, static_cast<std::uint32_t>(lent.size()), lent.data()),
              Errc::model, "rknn_set_input_shapes");
}

Handle Session::duplicate(Context from, unsigned core) const {
    api.require(api.dup_context != nullptr, "rknn_dup_context", "more than one context");
    Context copy = 0;
    api.check(api.dup_context(&from, &copy), Errc::engine, "rknn_dup_context");
    Handle handle(api, copy);
    set_core(copy, core);
    return handle;
}

TensorSpecs specs_of(const Model& model) {
    TensorSpecs specs;
    for (const auto& tensor : model.inputs) specs.inputs.push_back(tensor.spec);
    for (const auto& tensor : model.outputs) specs.outputs.push_back(tensor.spec);
    return specs;
}

std::unique_ptr<NpuMemory> npu_memory(const Api& api, Context context, std::size_t bytes) {
    TensorMem* const mem =
        bytes <= UINT32_MAX ? api.create_mem(context, static_cast<std::uint32_t>(bytes)) : nullptr;
    const auto fail = [&](const std::string& what) {
        throw Error(Errc::allocation, "rknn_create_mem " + what + " for " + std::to_string(bytes) +
                                          " bytes; fewer slots, or binding 'rebind', need less NPU memory");
    };
    if (mem == nullptr) fail("gave no memory");
    auto memory = std::make_unique<NpuMemory>(api, context, mem);
    if (mem->virt_addr == nullptr) fail("gave memory without an address");
    if (mem->size < bytes) fail("gave only " + std::to_string(mem->size) + " bytes");
    std::memset(mem->virt_addr, 0, bytes);
    return memory;
}

Mapping::Mapping(DmaBuf buffer, std::size_t bytes)
    : fd_(::fcntl(buffer.fd, F_DUPFD_CLOEXEC, 0)), length_(buffer.offset + bytes), base_(MAP_FAILED) {
    const std::string what = "dma-buf " + std::to_string(buffer.fd) + ": ";
    if (fd_ < 0) throw Error(Errc::allocation, what + std::strerror(errno));
    const auto fail = [&](const std::string& why) {
        ::close(fd_);
        throw Error(Errc::allocation, what + why);
    };
    const off_t size = ::lseek(fd_, 0, SEEK_END);
    if (size < 0) fail(std::string("its size is unknown: ") + std::strerror(errno));
    if (static_cast<std::size_t>(size) < length_ || length_ < bytes || length_ > INT32_MAX) {
        fail(std::to_string(bytes) + " bytes needed from offset " + std::to_string(buffer.offset) +
             ", it has " + std::to_string(size));
    }
    base_ = ::mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (base_ == MAP_FAILED) fail(std::string("cannot be mapped: ") + std::strerror(errno));
}

Mapping::~Mapping() {
    ::munmap(base_, length_);
    ::close(fd_);
}

// The outputs must arrive where they were bound last, and nowhere else; and be those of the input
// that was bound last. A network may give the same for any input, which then says nothing.
bool honours_rebinding(const Session& session, Context context) {
    const MemorySet in_a(session, context, Direction::input);
    const MemorySet in_b(session, context, Direction::input);
    const MemorySet out_a(session, context, Direction::output);
    const MemorySet out_b(session, context, Direction::output);
    const auto run = [&](const MemorySet& in, const MemorySet& out) {
        if (!in.bind(session, context) || !out.bind(session, context)) return false;
        session.api.check(session.api.run(context, nullptr), Errc::engine,
                          "rknn_run, to try out whether rebinding works");
        out_a.fetch(session, context);
        out_b.fetch(session, context);
        return true;
    };
    in_a.fill(session, context, 31, 7);
    in_b.fill(session, context, 201, 13);
    if (!run(in_a, out_a)) return false;
    bool written = false;
    for (const int canary : canaries) {
        out_a.fill(session, context, canary, 0);
        out_b.fill(session, context, canary, 0);
        if (!run(in_b, out_b) || !out_a.all_hold(canary)) return false;
        written = !out_b.any_holds(canary);
        if (written) break;
    }
    if (!written) return false;
    const auto of_b = out_b.content();
    in_a.fill(session, context, 201, 13);
    const int canary = canaries[0];
    out_b.fill(session, context, canary, 0);
    if (!run(in_a, out_b)) return false;
    // Padding keeps the canary in one of them.
    const auto of_a = out_b.content();
    return std::ranges::equal(of_a, of_b, [](std::byte a, std::byte b) {
        return a == b || a == static_cast<std::byte>(canaries[0]) ||
               b == static_cast<std::byte>(canaries[0]) || b == static_cast<std::byte>(canaries[1]);
    });
}

void RunGuard::before() const {
    if (failures_ < patience) return;
    throw Error(Errc::device, "context " + std::to_string(index_) + " on core " +
                                  std::to_string(session_.core_of(index_)) + " was stopped after " +
                                  std::to_string(patience) + " failed runs in a row (" + session_.versions +
                                  "); other cores can be chosen with options.cores");
}

void RunGuard::after(int result) {
    if (result == status::success) {
        failures_ = 0;
        return;
    }
    ++failures_;
    const Errc code = result == status::timeout ? Errc::device : Errc::run;
    Api::fail(result, code,
              "rknn_run failed in context " + std::to_string(index_) + " on core " +
                  std::to_string(session_.core_of(index_)) + " (" + session_.versions + ")");
}

}  // namespace pipeline::rknn
