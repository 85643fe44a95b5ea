// Checks of the native tests; they hold in release builds too. A failed one ends the process.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace pipeline::test {

[[noreturn]] inline void fail(const char* file, int line, const char* what, const char* detail) {
    std::fprintf(stderr, "%s:%d: %s%s%s\n", file, line, what, *detail != '\0' ? ": " : "", detail);
    std::abort();
}

// Runs `action`, which must throw an Error of this code; "key: message" or, without a key, the message has
// `part`.
template <class Action>
void check_throws(const char* file, int line, const char* what, Action&& action, Errc code,
                  std::string_view part = {}) {
    try {
        action();
    } catch (const Error& error) {
        const std::string said = error.key() + (error.key().empty() ? "" : ": ") + error.what();
        if (error.code() != code || said.find(part) == std::string::npos) {
            fail(file, line, what, said.c_str());
        }
        return;
    } catch (const std::exception& error) {
        fail(file, line, what, error.what());
    }
    fail(file, line, what, "nothing was thrown");
}

}  // namespace pipeline::test

#define CHECK(cond) \
    ((cond) ? static_cast<void>(0) : ::pipeline::test::fail(__FILE__, __LINE__, "CHECK(" #cond ")", ""))

// CHECK_THROWS(expression, Errc::code) or CHECK_THROWS(expression, Errc::code, "part of the message")
#define CHECK_THROWS(expr, ...)                                                                            \
    ::pipeline::test::check_throws(                                                                        \
        __FILE__, __LINE__, "CHECK_THROWS(" #expr ", " #__VA_ARGS__ ")", [&] { static_cast<void>(expr); }, \
        __VA_ARGS__)
