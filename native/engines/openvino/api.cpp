// Looks OpenVINO's functions up, and puts its errors into words.
#ifdef PIPELINE_WITH_OPENVINO

#include "engines/openvino/api.hpp"

#include <algorithm>

namespace pipeline::openvino {

Api::Api(const std::string& library) {
    const Dylib dylib(library);
#define X(name) name = dylib.symbol<decltype(&::name)>(#name);
    PIPELINE_OPENVINO_FUNCTIONS(X)
#undef X
}

void Api::fail(ov_status_e status, Errc code, std::string_view what, std::string_view key) const {
    throw Error(code, std::string(what) + ": " + reason(status), std::string(key));
}

std::string Api::take(const char* text) const {
    const std::unique_ptr<const char, void (*)(const char*)> owner(text, ov_free);
    return text != nullptr ? text : "";
}

std::string Api::reason(ov_status_e status) const {
    constexpr std::size_t longest = 300;
    // A refused parameter leaves the message of an earlier failure in place.
    const std::string text = status == INVALID_C_PARAM ? std::string() : take(ov_get_last_err_msg());
    std::string line;
    // OpenVINO prefixes the message with a line for each place of its source that it passed.
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        std::string_view part(text.data() + begin, end - begin);
        begin = end + 1;
        if (const auto at = part.find("Exception from "); at != part.npos) part = part.substr(0, at);
        if (part.starts_with("Check '") && part.find("' failed at ") != part.npos) continue;
        while (!part.empty() && std::string_view(" \t\r:;").find(part.back()) != part.npos)
            part.remove_suffix(1);
        if (part.empty()) continue;
        if (!line.empty()) line += "; ";
        line += part;
    }
    if (line.empty()) line = ov_get_error_info(status);
    if (line.size() > longest) {
        std::size_t end = longest;
        while (end > 0 && (line[end] & 0xC0) == 0x80) --end;  // within a character
        line = line.substr(0, end) + "...";
    }
    return line;
}

}  // namespace pipeline::openvino

#endif  // PIPELINE_WITH_OPENVINO
