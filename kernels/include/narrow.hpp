// float32 rounded to the narrow types, to nearest even, shared by the C++ and the CUDA kernels. Branch-free, so that
// loops over it become vector code.
#pragma once
#include "elements.hpp"

FPNA_POINT float narrow(float x, float) { return x; }

FPNA_POINT bfloat16 narrow(float x, bfloat16) {
    const unsigned b = bits_of_float(x);
    const unsigned rounded = (b + 0x7FFFu + ((b >> 16) & 1u)) >> 16, quiet = (b >> 16) | 0x40u;
    return {static_cast<unsigned short>((b & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded)};
}

FPNA_POINT float16 narrow(float x, float16) {
    const unsigned sign = (bits_of_float(x) >> 16) & 0x8000u, b = bits_of_float(x) & 0x7FFFFFFFu;
    const unsigned normal = (b + 0xFFFu + ((b >> 13) & 1u) - (112u << 23)) >> 13;  // 65520 and more become infinity
    // The unit of subnormal numbers, 2^-24, is the last place of 0.5f.
    const unsigned subnormal = bits_of_float(float_of_bits(b) + 0.5f) - bits_of_float(0.5f);
    const unsigned other = b > 0x7F800000u ? 0x7E00u | ((b >> 13) & 0x3FFu) : 0x7C00u;
    const unsigned magnitude = b >= 0x47800000u ? other : b < 0x38800000u ? subnormal : normal;
    return {static_cast<unsigned short>(sign | magnitude)};
}
