// The instruction sets for which some kernels are compiled more than once (by per_level.hpp), and the one to take here.
//
// Not by target_clones: the loader would choose, and no test could.
#pragma once
#include <cmath>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // wide vectors pass between functions that are inlined, never between calls
#endif

#define FPNA_INLINE inline __attribute__((always_inline))

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FPNA_LEVELS 3
constexpr const char *LEVEL_NAMES[] = {"x86-64", "x86-64-v3", "x86-64-v4"};

inline int levels_here() {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4")) return 3;
    return __builtin_cpu_supports("x86-64-v3") ? 2 : 1;
}
#else
#define FPNA_LEVELS 1
constexpr const char *LEVEL_NAMES[] = {"generic"};
inline int levels_here() { return 1; }
#endif
