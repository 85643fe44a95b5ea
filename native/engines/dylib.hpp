// A vendor's shared library, opened at run time.
#pragma once

#include <dlfcn.h>

#include <string>
#include <type_traits>
#include <utility>

#include "core/error.hpp"

namespace pipeline {

// Opened once and never closed: vendor libraries leave threads and exit handlers behind that
// would run unmapped code. Copies are cheap and name the same library.
class Dylib {
public:
    // `path` is a file, or a bare name for the system's loader. Throws Errc::not_installed with
    // the loader's own reason.
    explicit Dylib(std::string path) : path_(std::move(path)) {
        // An empty name would open the program itself.
        if (path_.empty()) throw Error(Errc::not_installed, "no library was named");
        handle_ = ::dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle_ == nullptr) {
            const char* reason = ::dlerror();
            throw Error(Errc::not_installed, path_ + ": cannot open the library: " +
                                                 (reason != nullptr ? reason : "no reason given"));
        }
    }

    [[nodiscard]] const std::string& path() const noexcept { return path_; }

    // The function `name`, whose pointer type is Fn, or nullptr where the library has none.
    template <class Fn>
    [[nodiscard]] Fn find(const char* name) const noexcept {
        static_assert(std::is_pointer_v<Fn> && std::is_function_v<std::remove_pointer_t<Fn>>);
        return reinterpret_cast<Fn>(::dlsym(handle_, name));
    }

    // The same, but throws Errc::not_installed naming library and symbol.
    template <class Fn>
    [[nodiscard]] Fn symbol(const char* name) const {
        const Fn function = find<Fn>(name);
        if (function == nullptr) {
            throw Error(Errc::not_installed,
                        path_ + ": the library has no " + name + ", so it is another version");
        }
        return function;
    }

private:
    std::string path_;
    void* handle_ = nullptr;
};

}  // namespace pipeline
