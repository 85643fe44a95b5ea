// Owns the eventfd.
#include "core/notifier.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "core/error.hpp"

namespace pipeline {

Notifier::Notifier() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) throw Error(Errc::engine, "eventfd: " + std::generic_category().message(errno));
}

Notifier::~Notifier() { close(fd_); }

void Notifier::signal() const noexcept {
    const std::uint64_t one = 1;
    // Only a full counter can refuse, and then the descriptor is readable anyway.
    [[maybe_unused]] const auto written = write(fd_, &one, sizeof one);
}

void Notifier::clear() const noexcept {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = read(fd_, &count, sizeof count);
}

}  // namespace pipeline
