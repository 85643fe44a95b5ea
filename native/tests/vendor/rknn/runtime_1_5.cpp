// Version 1.5 of the runtime, before rknn_create_mem2 and rknn_mem_sync.
#include "state.hpp"

namespace standin {

const char* const runtime_version = "librknnrt version: 1.5.2 (stand-in)" + sizeof "librknnrt version:";

}  // namespace standin
