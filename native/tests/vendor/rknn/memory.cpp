// Driver memory: made, bound, synchronised, destroyed.
#include "memory.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

namespace standin {

namespace {

namespace status = rknn::status;
namespace format = rknn::tensor_format;
namespace type = rknn::tensor_type;

std::uint64_t next_phys(std::size_t bytes) {
    static std::atomic<std::uint64_t> next{0x80000000};
    return next.fetch_add(bytes);
}

// Counts it, gives it its shadow and hands it to the registry.
rknn::TensorMem* adopt(const Call& call, std::unique_ptr<Mem> mem) {
    auto& context = call.context();
    mem->given = mem->made;
    mem->owner = context.id;
    const bool shadowed = mem->cacheable && !(context.flushes(true) && context.flushes(false));
    if (shadowed) mem->shadow.assign(mem->made.size, 0xEE);
    ++counters().allocations;
    ++counters().live_mems;
    return &registry().add_mem(std::move(mem))->given;
}

// The file that is mapped at `address`, by its inode; 0 for none.
std::uint64_t mapped_inode(const void* address, std::size_t bytes) {
    const auto first = reinterpret_cast<std::uintptr_t>(address);
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::istringstream fields(line);
        std::uintptr_t from = 0;
        std::uintptr_t to = 0;
        std::string skipped;
        std::uint64_t inode = 0;
        char dash = 0;
        fields >> std::hex >> from >> dash >> to >> skipped >> skipped >> skipped >> std::dec >> inode;
        if (first >= from && first + bytes <= to) return inode;
    }
    return 0;
}

bool wrong_type(const Tensor& tensor, std::int32_t element) {
    if (element_size(element) == 0) return true;
    if (tensor.is_input || element == tensor.type) return false;
    return element != type::float32 && (element != type::float16 || tensor.type == type::float32);
}

bool wrong_format(const Tensor& tensor, std::size_t shape, std::int32_t fmt) {
    if (tensor.shapes[shape].size() != 4) return fmt != format::undefined;
    if (tensor.is_input) return fmt != tensor.native && fmt != format::nhwc;
    return fmt != format::nchw && fmt != format::nhwc && fmt != format::nc1hwc2;
}

Layout wanted(const Tensor& tensor, std::size_t shape, const rknn::TensorAttr& attr) {
    auto layout = tensor.layout(shape, attr.fmt, attr.type);
    if (attr.fmt == tensor.native) {
        layout.bytes = tensor.layout(shape).bytes / element_size(tensor.type) * element_size(attr.type);
    }
    return layout;
}

// The binding that an attribute means, by the tensor's name; null after telling why none.
Binding* meant(const Call& call, const rknn::TensorAttr& attr, const Tensor*& tensor) {
    auto& context = call.context();
    const std::string name(attr.name, ::strnlen(attr.name, sizeof attr.name));
    for (const bool input : {true, false}) {
        const auto& tensors = input ? context.model().inputs : context.model().outputs;
        auto& bindings = input ? context.inputs : context.outputs;
        for (const auto& candidate : tensors) {
            if (candidate.name != name) continue;
            if (candidate.index != attr.index) break;
            tensor = &candidate;
            return &bindings[candidate.index];
        }
    }
    call.misuse(status::param_invalid, "no tensor '" + name + "' of index " + std::to_string(attr.index));
    return nullptr;
}

int bind(const Call& call, rknn::TensorMem* given, const rknn::TensorAttr* attr) {
    auto& context = call.context();
    if (attr == nullptr) return call.misuse(status::param_invalid, "no attribute");
    if (context.mode == Mode::general) {
        return call.misuse(status::fail, "the context already runs by rknn_inputs_set; modes are not mixed");
    }
    if (!context.shape) return call.misuse(status::param_invalid, "the input shapes are not yet set");
    const Tensor* tensor = nullptr;
    Binding* const binding = meant(call, *attr, tensor);
    if (binding == nullptr) return status::param_invalid;
    Mem* const mem = call.memory(given);
    if (mem == nullptr) return status::param_invalid;
    if (wrong_type(*tensor, attr->type) || wrong_format(*tensor, *context.shape, attr->fmt)) {
        return call.misuse(status::param_invalid, tensor->name + ": a type or format that it cannot have");
    }
    if (attr->pass_through != 0 && (attr->type != tensor->type || attr->fmt != tensor->native)) {
        return call.misuse(status::param_invalid, tensor->name + ": passed through, but not as it is native");
    }
    const auto layout = wanted(*tensor, *context.shape, *attr);
    if (mem->made.size < layout.bytes) {
        return call.misuse(status::param_invalid, tensor->name + ": " + std::to_string(mem->made.size) +
                                                      " bytes where " + std::to_string(layout.bytes) +
                                                      " are needed");
    }
    for (const auto* bindings : {&context.inputs, &context.outputs}) {
        for (const auto& other : *bindings) {
            if (other.mem == mem && &other != binding) {
                return call.misuse(status::param_invalid, tensor->name + ": memory that is bound elsewhere");
            }
        }
    }
    context.mode = Mode::zero_copy;
    ++counters().binds;
    if (context.ran && context.switches->rebind == Rebind::refuse) return status::param_invalid;
    if (context.ran && context.switches->rebind == Rebind::ignore) {
        ++counters().binds_ignored;
        return status::success;
    }
    *binding = {mem, layout};
    return status::success;
}

int destroy(const Call& call, rknn::TensorMem* given) {
    Mem* const mem = call.memory(given);
    if (mem == nullptr) return status::param_invalid;
    const bool overrun = mem->overrun();
    if (mem->mapped != 0) {
        ::munmap(mem->made.virt_addr, mem->mapped);
        ::close(mem->made.fd);
    }
    mem->live = false;
    mem->shadow = {};
    --counters().live_mems;
    return overrun ? call.misuse(status::param_invalid, "something wrote beyond the memory's end")
                   : status::success;
}

}  // namespace

rknn::TensorMem* make_memory(const Call& call, std::uint64_t size, bool cacheable) {
    if (size == 0 || size > std::uint64_t{1} << 30U) {
        call.misuse(status::param_invalid, "no memory can have " + std::to_string(size) + " bytes");
        return nullptr;
    }
    if (call.context().switches->fail_alloc.next()) return nullptr;
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    auto mem = std::make_unique<Mem>();
    mem->cacheable = cacheable;
    mem->mapped = (size + page - 1) / page * page;
    const int fd = ::memfd_create("rknn-standin", MFD_CLOEXEC);
    if (fd < 0) return nullptr;
    void* at = MAP_FAILED;
    if (::ftruncate(fd, static_cast<off_t>(mem->mapped)) == 0) {
        at = ::mmap(nullptr, mem->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (at == MAP_FAILED) {
        ::close(fd);
        return nullptr;
    }
    // Fresh memory is not zero, so that nobody relies on it.
    std::memset(at, 0xCD, mem->mapped);
    mem->made = {at,     next_phys(mem->mapped),           fd,
                 0,      static_cast<std::uint32_t>(size), rknn::mem_origin::alloc_inside,
                 nullptr};
    return adopt(call, std::move(mem));
}

int synchronise(const Call& call, rknn::TensorMem* given, std::int32_t mode) {
    if (mode < rknn::mem_sync::to_device || mode > rknn::mem_sync::bidirectional) {
        return call.misuse(status::param_invalid, "no mode: " + std::to_string(mode));
    }
    Mem* const mem = call.memory(given);
    if (mem == nullptr) return status::param_invalid;
    ++counters().syncs;
    if (call.context().switches->fail_sync.next()) return status::fail;
    const CpuTime time(counters().device_cpu_ns);
    const bool back =
        mode == rknn::mem_sync::from_device || (mode == rknn::mem_sync::bidirectional && mem->device_wrote);
    if (!mem->shadow.empty()) {
        auto* const seen = mem->shadow.data();
        std::memcpy(back ? mem->data() : seen, back ? seen : mem->data(), mem->shadow.size());
    }
    if (back) mem->device_wrote = false;
    if (mode != rknn::mem_sync::from_device) mem->synced = true;
    return status::success;
}

}  // namespace standin

using namespace standin;

STANDIN_EXPORT rknn::TensorMem* rknn_create_mem(rknn::Context handle, std::uint32_t size) {
    const Call call("rknn_create_mem", handle, Uses::memory);
    return call.refused() ? nullptr : make_memory(call, size, true);
}

STANDIN_EXPORT rknn::TensorMem* rknn_create_mem_from_fd(rknn::Context handle, std::int32_t fd, void* base,
                                                        std::uint32_t size, std::int32_t offset) {
    const Call call("rknn_create_mem_from_fd", handle, Uses::memory);
    if (call.refused()) return nullptr;
    struct stat file{};
    const char* wrong = nullptr;
    if (base == nullptr || size == 0 || offset < 0) {
        wrong = "a null address, no size or a negative offset";
    } else if (::fstat(fd, &file) != 0) {
        wrong = "the descriptor is not open";
    } else if (file.st_size > 0 &&
               static_cast<std::uint64_t>(file.st_size) < static_cast<std::uint64_t>(offset) + size) {
        wrong = "offset and size go beyond the file's end";
    } else if (mapped_inode(base, static_cast<std::size_t>(offset) + size) != file.st_ino) {
        wrong = "the address is no mapping of the descriptor";
    }
    if (wrong != nullptr) {
        call.misuse(status::param_invalid, wrong);
        return nullptr;
    }
    if (call.context().switches->fail_alloc.next()) return nullptr;
    auto mem = std::make_unique<Mem>();
    mem->made = {base, next_phys(size), fd, offset, size, rknn::mem_origin::from_fd, nullptr};
    return adopt(call, std::move(mem));
}

STANDIN_EXPORT rknn::TensorMem* rknn_create_mem_from_phys(rknn::Context handle, std::uint64_t, void*,
                                                          std::uint32_t) {
    const Call call("rknn_create_mem_from_phys", handle, Uses::memory);
    if (!call.refused()) call.misuse(status::param_invalid, "there is no physical memory here");
    return nullptr;
}

STANDIN_EXPORT int rknn_destroy_mem(rknn::Context handle, rknn::TensorMem* mem) {
    const Call call("rknn_destroy_mem", handle, Uses::memory);
    return call.refused() ? call.code() : destroy(call, mem);
}

STANDIN_EXPORT int rknn_set_io_mem(rknn::Context handle, rknn::TensorMem* mem, rknn::TensorAttr* attr) {
    const Call call("rknn_set_io_mem", handle, Uses::memory);
    return call.refused() ? call.code() : bind(call, mem, attr);
}

STANDIN_EXPORT int rknn_set_weight_mem(rknn::Context handle, rknn::TensorMem*) {
    const Call call("rknn_set_weight_mem", handle, Uses::memory);
    return call.refused() ? call.code()
                          : call.misuse(status::param_invalid, "the context allocates its own weights");
}

STANDIN_EXPORT int rknn_set_internal_mem(rknn::Context handle, rknn::TensorMem*) {
    const Call call("rknn_set_internal_mem", handle, Uses::memory);
    return call.refused() ? call.code()
                          : call.misuse(status::param_invalid, "the context allocates its own memory");
}

static_assert(std::is_same_v<decltype(&rknn_create_mem), rknn::CreateMemFn>);
static_assert(std::is_same_v<decltype(&rknn_create_mem_from_fd), rknn::CreateMemFromFdFn>);
static_assert(std::is_same_v<decltype(&rknn_create_mem_from_phys), rknn::CreateMemFromPhysFn>);
static_assert(std::is_same_v<decltype(&rknn_destroy_mem), rknn::DestroyMemFn>);
static_assert(std::is_same_v<decltype(&rknn_set_io_mem), rknn::SetIoMemFn>);
static_assert(std::is_same_v<decltype(&rknn_set_weight_mem), rknn::SetWeightMemFn>);
static_assert(std::is_same_v<decltype(&rknn_set_internal_mem), rknn::SetInternalMemFn>);
