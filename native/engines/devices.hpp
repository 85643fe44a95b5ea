// What an engine finds on this machine.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace pipeline {

struct Devices {
    std::string version;                                       // of its library, or what it tells of that
    std::vector<std::pair<std::string, std::string>> devices;  // as the option names it, full name
};

}  // namespace pipeline
