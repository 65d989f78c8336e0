// For chains of fused multiply-adds: a type of numbers, a * b + c rounded once, and a single NaN.
#pragma once
#include "portable.hpp"

#ifndef NUMBER
#define NUMBER double
#endif

using Number = NUMBER;

constexpr int PIECE = 256;  // terms, as in native/contract.hpp

__device__ inline float fused(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double fused(double a, double b, double c) { return fma(a, b, c); }

// The NaN without sign and payload.
__device__ inline float one_nan(float) { return float_of_bits(0x7fc00000u); }
__device__ inline double one_nan(double) { return double_of_bits(0x7ff8000000000000ull); }
