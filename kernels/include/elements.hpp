// The types of elements and of their accumulators, shared by the C++ and the CUDA kernels. float16 and
// bfloat16 are storage only: they widen to float32, which holds all their values.
#pragma once
#include "bits.hpp"

struct float16 {
    unsigned short bits;
};

struct bfloat16 {
    unsigned short bits;
};

FPNA_POINT double widen(double x) { return x; }

FPNA_POINT float widen(float x) { return x; }

FPNA_POINT float widen(bfloat16 x) { return float_of_bits(unsigned(x.bits) << 16); }

// A multiplication moves the exponent, so that subnormal numbers need no case of their own.
FPNA_POINT float widen(float16 x) {
    const unsigned sign = (x.bits & 0x8000u) << 16, magnitude = (x.bits & 0x7FFFu) << 13;
    const float number = float_of_bits(magnitude) * 0x1p112f;
    const float other = float_of_bits(magnitude | 0x7F800000u);  // infinity, or NaN with its payload
    const float value = magnitude >= 0x0F800000u ? other : number;
    return sign ? -value : value;
}

// Sums of float64 are accumulated in float64, those of all other types in float32, unless a kernel states otherwise.
template <typename Element>
struct AccumulatorOf {
    using type = float;
};

template <>
struct AccumulatorOf<double> {
    using type = double;
};

template <typename Element>
using Accumulator = typename AccumulatorOf<Element>::type;
