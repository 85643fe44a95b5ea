// An eventfd: readable from the first `signal` until `clear`, so an event loop can watch it.
#pragma once

namespace pipeline {

class Notifier {
public:
    Notifier();
    ~Notifier();
    Notifier(const Notifier&) = delete;
    Notifier& operator=(const Notifier&) = delete;

    [[nodiscard]] int fd() const noexcept { return fd_; }
    void signal() const noexcept;
    void clear() const noexcept;

private:
    int fd_;
};

}  // namespace pipeline
