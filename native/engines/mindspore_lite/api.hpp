// MindSpore Lite's C functions as found in the opened library.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "engines/dylib.hpp"
#include "engines/mindspore_lite/abi.hpp"

namespace pipeline::mindspore_lite {

// Name of a status, with its number: PARAM_INVALID (0xFFFFFFFD).
[[nodiscard]] std::string status_text(Status status);

class Api {
public:
    // Throws Errc::not_installed when it is no MindSpore Lite or lacks a function that all have.
    explicit Api(const std::string& library);

#define X(name, result, args) result(*name) args = nullptr;
    PIPELINE_MSLITE_REQUIRED(X)
    PIPELINE_MSLITE_OPTIONAL(X)  // null where the library has none
#undef X

    [[nodiscard]] std::string_view family() const noexcept { return family_; }
    [[nodiscard]] const std::string& library() const noexcept { return dylib_.path(); }

    // `key`: the setting to blame, if there is one.
    void check(Status status, Errc code, std::string_view what, std::string_view key = {}) const {
        if (status == success) return;
        throw Error(code, std::string(what) + ": " + status_text(status), std::string(key));
    }
    // The allocator of a tensor; null where it has none, or the library does not tell. A library may
    // list what it gave out without a lock and clean that list when a model ends, so only one thread
    // of the process at a time is in these three calls.
    [[nodiscard]] Handle allocator_of(Handle tensor) const;
    [[nodiscard]] Status set_allocator(Handle tensor, Handle allocator) const;
    void destroy_model(Handle model) const;

    // Throws Errc::config when an optional function is missing that `setting` needs.
    template <class Fn>
    void need(Fn function, std::string_view name, std::string_view setting) const {
        if (function != nullptr) return;
        const std::string prefix = std::string(family_) + (family_ == "OH_AI" ? "_" : "");
        throw Error(Errc::config, library() + " has no " + prefix + std::string(name), std::string(setting));
    }

private:
    Dylib dylib_;
    std::string_view family_;
};

// Owns a handle that is destroyed through a pointer to it.
class Owned {
public:
    Owned() = default;
    Owned(Handle handle, void (*destroy)(Handle*)) noexcept : handle_(handle), destroy_(destroy) {}
    Owned(Owned&& other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)), destroy_(other.destroy_) {}
    Owned& operator=(Owned&& other) noexcept {
        if (this != &other) {
            reset();
            handle_ = std::exchange(other.handle_, nullptr);
            destroy_ = other.destroy_;
        }
        return *this;
    }
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    ~Owned() { reset(); }

    [[nodiscard]] Handle get() const noexcept { return handle_; }
    [[nodiscard]] explicit operator bool() const noexcept { return handle_ != nullptr; }
    [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, nullptr); }
    void reset() noexcept {
        if (Handle handle = release()) destroy_(&handle);
    }

private:
    Handle handle_ = nullptr;
    void (*destroy_)(Handle*) = nullptr;
};

}  // namespace pipeline::mindspore_lite
