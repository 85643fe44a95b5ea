// Loops compiled for several processors.
#pragma once

// Functions marked so are compiled for newer x86 processors as well, and the best one is chosen when
// the library is loaded. The sanitizers' runtimes are not ready that early.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PIPELINE_SIMD __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PIPELINE_SIMD
#endif
