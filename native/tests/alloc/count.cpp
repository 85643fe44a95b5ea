// Counts what a process allocates, for the tests: preloaded, it stands before the C library's allocator.
// Calls are counted by size; those of 4 KiB and more also by the library that made them, found by walking
// up the stack past the C and C++ libraries. Once asked to, it counts the interpreter's small objects as
// well.
//
// It never allocates itself while it counts, and takes no lock.

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

// glibc's own names of what is replaced here: found without dlsym, which may allocate.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* block, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace {

constexpr std::size_t large = 4096;
constexpr std::size_t most_sites = 4096;

struct Sums {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> bytes{0};

    void add(std::size_t size) {
        calls.fetch_add(1, std::memory_order_relaxed);
        bytes.fetch_add(size, std::memory_order_relaxed);
    }
    void clear() { calls = bytes = 0; }
};

// Where in a library a large block was asked for; the place is the return address.
struct Site {
    std::atomic<void*> place{nullptr};
    Sums sums;
};

std::atomic<bool> counting{false};
std::array<Sums, 65> by_size;  // by the number of bits of the size
std::array<Site, most_sites> sites;
Sums unplaced;  // large ones for which there was no site left
std::array<Sums, 3> by_domain;

thread_local bool inside __attribute__((tls_model("initial-exec"))) = false;

bool passed_over(const char* path) {
    const char* const slash = std::strrchr(path, '/');
    const std::string_view name(slash == nullptr ? path : slash + 1);
    for (const std::string_view prefix :
         {"libc.so", "libc-", "libstdc++", "libc++", "ld-linux", "libgcc_s", "libpthread"}) {
        if (name.starts_with(prefix)) return true;
    }
    return false;
}

struct Search {
    void* own = nullptr;    // where this library begins
    void* place = nullptr;  // the first return address that is not skipped
};

_Unwind_Reason_Code look(_Unwind_Context* context, void* data) {
    auto& search = *static_cast<Search*>(data);
    auto* const place = reinterpret_cast<void*>(_Unwind_GetIP(context));
    Dl_info info;
    if (dladdr(place, &info) != 0 && info.dli_fname != nullptr &&
        (info.dli_fbase == search.own || passed_over(info.dli_fname))) {
        return _URC_NO_REASON;
    }
    search.place = place;
    return _URC_END_OF_STACK;
}

void* caller() {
    Search search;
    Dl_info info;
    if (dladdr(reinterpret_cast<void*>(&look), &info) != 0) search.own = info.dli_fbase;
    _Unwind_Backtrace(&look, &search);
    return search.place == nullptr ? reinterpret_cast<void*>(1) : search.place;
}

Sums& sums_of(void* place) {
    const std::size_t start = (reinterpret_cast<std::uintptr_t>(place) * 0x9E3779B97F4A7C15U) >> 52U;
    for (std::size_t i = 0; i < most_sites; ++i) {
        Site& site = sites[(start + i) % most_sites];
        void* found = nullptr;
        if (site.place.compare_exchange_strong(found, place) || found == place) return site.sums;
    }
    return unplaced;
}

void count(std::size_t size) {
    if (!counting.load(std::memory_order_relaxed) || inside) return;
    inside = true;
    by_size[static_cast<std::size_t>(std::bit_width(size))].add(size);
    if (size >= large) sums_of(caller()).add(size);
    inside = false;
}

// The interpreter's allocators (PyMemAllocatorEx), which can be looked up without its headers.
struct PythonAllocator {
    void* context;
    void* (*malloc)(void*, std::size_t);
    void* (*calloc)(void*, std::size_t, std::size_t);
    void* (*realloc)(void*, void*, std::size_t);
    void (*free)(void*, void*);
};

std::array<PythonAllocator, 3> originals;

struct Domain {
    PythonAllocator& original;
    Sums& sums;
};

Domain domain(void* context) {
    const auto index = reinterpret_cast<std::size_t>(context);
    return {originals[index], by_domain[index]};
}

void* python_malloc(void* context, std::size_t size) {
    const auto [original, sums] = domain(context);
    if (counting.load(std::memory_order_relaxed)) sums.add(size);
    return original.malloc(original.context, size);
}

void* python_calloc(void* context, std::size_t items, std::size_t size) {
    const auto [original, sums] = domain(context);
    if (counting.load(std::memory_order_relaxed)) sums.add(items * size);
    return original.calloc(original.context, items, size);
}

void* python_realloc(void* context, void* block, std::size_t size) {
    const auto [original, sums] = domain(context);
    if (counting.load(std::memory_order_relaxed)) sums.add(size);
    return original.realloc(original.context, block, size);
}

void python_free(void* context, void* block) {
    const auto& original = domain(context).original;
    original.free(original.context, block);
}

void write_site(std::FILE* file, void* place, const Sums& sums) {
    Dl_info info;
    const bool known = dladdr(place, &info) != 0 && info.dli_fname != nullptr;
    const char* const library = known ? info.dli_fname : "?";
    const char* const symbol = known && info.dli_sname != nullptr ? info.dli_sname : "?";
    const auto offset = known ? static_cast<std::byte*>(place) - static_cast<std::byte*>(info.dli_fbase) : 0;
    std::fprintf(file, "site\t%s\t%s\t%#tx\t%llu\t%llu\n", library, symbol, offset,
                 static_cast<unsigned long long>(sums.calls), static_cast<unsigned long long>(sums.bytes));
}

}  // namespace

extern "C" {

void* malloc(std::size_t size) {
    count(size);
    return __libc_malloc(size);
}

void* calloc(std::size_t items, std::size_t size) {
    count(items * size);
    return __libc_calloc(items, size);
}

void* realloc(void* block, std::size_t size) {
    count(size);
    return __libc_realloc(block, size);
}

void* memalign(std::size_t alignment, std::size_t size) {
    count(size);
    return __libc_memalign(alignment, size);
}

void* aligned_alloc(std::size_t alignment, std::size_t size) {
    count(size);
    return __libc_memalign(alignment, size);
}

int posix_memalign(void** block, std::size_t alignment, std::size_t size) {
    if (!std::has_single_bit(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
    count(size);
    void* const made = __libc_memalign(alignment, size);
    if (made == nullptr) return ENOMEM;
    *block = made;
    return 0;
}

// What the C library maps for itself does not come by here, so that nothing is counted twice.
void* mmap(void* address, std::size_t size, int protection, int flags, int file, off_t offset) {
    if ((flags & MAP_ANONYMOUS) != 0) count(size);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): this is what the system call returns
    return reinterpret_cast<void*>(syscall(SYS_mmap, address, size, protection, flags, file, offset));
}

void* mmap64(void* address, std::size_t size, int protection, int flags, int file, off_t offset) {
    return mmap(address, size, protection, flags, file, offset);
}

// Forget all that was counted, and begin.
void count_start() {
    counting = false;
    for (auto& sums : by_size) sums.clear();
    for (auto& sums : by_domain) sums.clear();
    for (auto& site : sites) {
        site.place = nullptr;
        site.sums.clear();
    }
    unplaced.clear();
    counting = true;
}

void count_stop() { counting = false; }

// From now on count what the interpreter allocates for itself, too; by a thread that holds the GIL.
int count_python() {
    using Access = void (*)(int, PythonAllocator*);
    const auto get = reinterpret_cast<Access>(dlsym(RTLD_DEFAULT, "PyMem_GetAllocator"));
    const auto set = reinterpret_cast<Access>(dlsym(RTLD_DEFAULT, "PyMem_SetAllocator"));
    if (get == nullptr || set == nullptr || originals[1].malloc != nullptr) return -1;
    for (int i = 1; i <= 2; ++i) {  // PYMEM_DOMAIN_MEM and PYMEM_DOMAIN_OBJ
        get(i, &originals[static_cast<std::size_t>(i)]);
        // NOLINTNEXTLINE(performance-no-int-to-ptr): a number that comes back as it is
        PythonAllocator ours{reinterpret_cast<void*>(static_cast<std::size_t>(i)), &python_malloc,
                             &python_calloc, &python_realloc, &python_free};
        set(i, &ours);
    }
    return 0;
}

// Write what was counted, a line for each: kind, what, calls, bytes.
int count_dump(const char* path) {
    counting = false;
    std::FILE* const file = std::fopen(path, "w");
    if (file == nullptr) return -1;
    const auto line = [&](const char* kind, std::size_t what, const Sums& sums) {
        std::fprintf(file, "%s\t%zu\t%llu\t%llu\n", kind, what, static_cast<unsigned long long>(sums.calls),
                     static_cast<unsigned long long>(sums.bytes));
    };
    for (std::size_t i = 0; i < by_size.size(); ++i) line("size", i, by_size[i]);
    line("python", 1, by_domain[1]);
    line("python", 2, by_domain[2]);
    line("unplaced", 0, unplaced);
    for (const auto& site : sites) {
        if (void* const place = site.place; place != nullptr && site.sums.calls > 0) {
            write_site(file, place, site.sums);
        }
    }
    return std::fclose(file);
}

}  // extern "C"
