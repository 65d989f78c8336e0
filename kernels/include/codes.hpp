// The codes of elements on a wire (kernels/wires/reference.py defines them), shared by the C++ and the CUDA kernels.
// Branch-free, so that loops over it become vector code.
#pragma once
#include "narrow.hpp"

constexpr int INFINITE = 0x7F800000, MAGNITUDE = 0x7FFFFFFF;  // bits of float32
constexpr unsigned QUIET_NAN = 0x7FC00000u;

FPNA_POINT int magnitude_of(float x) { return int(bits_of_float(x) & unsigned(MAGNITUDE)); }

// 2^e; e is clamped to [-126, 126].
FPNA_POINT float power_of_two(int e) {
    e = e < -126 ? -126 : e > 126 ? 126 : e;
    return float_of_bits(unsigned(e + 127) << 23);
}

// The exponent of a magnitude; -127 of zero and subnormal numbers.
FPNA_POINT int exponent_of(int magnitude) { return (magnitude >> 23) - 127; }

// A magnitude (a float32 as bits; above MOST it counts as MOST) rounded to a format with that mantissa and bias: the
// code is the lowest byte. The number that is added has the format's unit at this magnitude as its last place. So the
// sum is rounded as wanted: its last bits are the multiple of that unit, its first bits the exponent.
template <int MANTISSA, int BIAS, int MOST>
FPNA_POINT unsigned round_magnitude(int magnitude) {
    constexpr int LEAST = (128 - BIAS) << 23, UP = (23 - MANTISSA) << 23;  // LEAST: of the normal numbers
    const int m = magnitude < MOST ? magnitude : MOST, own = m & INFINITE, exponent = own > LEAST ? own : LEAST;
    const unsigned sum = bits_of_float(float_of_bits(unsigned(m)) + float_of_bits(unsigned(exponent + UP)));
    return sum + (sum >> (23 - MANTISSA)) - unsigned((LEAST + UP) >> (23 - MANTISSA));
}

// Casts: `code`, whose lower bits count, and `value`; numbers of magnitude below 2^(TOP + 1) stay finite.
struct AsFloat16 {
    using Code = unsigned short;
    static constexpr int TOP = 15;
    FPNA_POINT static unsigned code(float x) { return narrow(x, float16()).bits; }
    FPNA_POINT static float value(Code c) { return widen(float16{c}); }
};

struct AsBfloat16 {
    using Code = unsigned short;
    static constexpr int TOP = 127;
    FPNA_POINT static unsigned code(float x) { return narrow(x, bfloat16()).bits; }
    FPNA_POINT static float value(Code c) { return widen(bfloat16{c}); }
};

// 1 sign, 5 exponent, 2 mantissa bits: the upper half of a float16. MOST: larger finite numbers count as it.
template <int MOST>
struct AsFiveTwo {
    using Code = unsigned char;
    static constexpr int TOP = 15;
    FPNA_POINT static unsigned code(float x) {
        const int magnitude = magnitude_of(x);
        const unsigned finite = round_magnitude<2, 15, MOST>(magnitude), rounded = magnitude == INFINITE ? 0x7Cu : finite;
        return (bits_of_float(x) >> 24 & 0x80u) | (magnitude > INFINITE ? 0x7Eu : rounded);
    }
    FPNA_POINT static float value(Code c) { return widen(float16{static_cast<unsigned short>(c << 8)}); }
};

using AsE5m2 = AsFiveTwo<0x47800000>;
using AsFp8 = AsFiveTwo<0x47600000>;  // 57344

// 1 sign, 4 exponent, 3 mantissa bits; the code of NaN would be 480, and stands for all numbers that are too large.
struct AsE4m3 {
    using Code = unsigned char;
    static constexpr int TOP = 8;
    FPNA_POINT static unsigned code(float x) {
        return (bits_of_float(x) >> 24 & 0x80u) | round_magnitude<3, 7, 0x43F00000>(magnitude_of(x));
    }
    FPNA_POINT static float value(Code c) {
        const unsigned half = (c & 0x80u) << 8 | (c & 0x7Fu) << 7;
        const float number = widen(float16{static_cast<unsigned short>(half)}) * 256.0f;
        return (c & 0x7F) == 0x7F ? float_of_bits(QUIET_NAN | (c & 0x80u) << 24) : number;
    }
};

// A whole number of BITS bits without the sign; |scaled| <= 2^BITS.
template <int BITS>
FPNA_POINT int whole_of(float scaled) {
    constexpr float SHIFT = 12582912.0f;  // 1.5 * 2^23: its last place is 1
    constexpr int MOST = (1 << BITS) - 1;
    const int whole = int(bits_of_float(scaled + SHIFT) - bits_of_float(SHIFT));
    return whole < -MOST ? -MOST : whole > MOST ? MOST : whole;
}

// The exponent of the unit by which the largest magnitude fits into `bits` bits.
FPNA_POINT int unit_exponent(int largest, int bits) { return exponent_of(largest) + 1 - bits; }

// Formats of 4 bits with a head for each block: `head_of` a finite largest magnitude, as bits of a float32; `code` of a
// number times `inverse_of` the head, and `value` of a code, which `scale_of` the head multiplies. A block whose
// magnitudes are all below TINY becomes zero.
constexpr int TINY = 0x0D800000;  // 2^-100

// 1 sign bit and MANTISSA of the other 3, without infinity and NaN. TOP: the exponent of the largest numbers.
template <int MANTISSA, int TOP>
struct AsFour {
    using Head = unsigned char;
    static constexpr Head NAN_HEAD = 255;
    FPNA_POINT static unsigned sign(float x) { return bits_of_float(x) >> 28 & 8u; }
    FPNA_POINT static Head head_of(int largest) {
        const int e = exponent_of(largest + (1 << (22 - MANTISSA))) - TOP;
        return Head(largest < TINY ? 0 : e + 127);
    }
    FPNA_POINT static float scale_of(Head head) {
        return head == NAN_HEAD ? float_of_bits(QUIET_NAN) : power_of_two(int(head) - 127);
    }
    FPNA_POINT static float inverse_of(Head head) { return head == 0 ? 0.0f : power_of_two(127 - int(head)); }
};

struct AsE2m1 : AsFour<1, 2> {  // 0, 0.5, 1, 1.5, 2, 3, 4, 6
    FPNA_POINT static unsigned code(float x) {
        return sign(x) | (round_magnitude<1, 1, 0x40C00000>(magnitude_of(x)) & 7u);
    }
    FPNA_POINT static float value(unsigned c) {
        const unsigned m = c & 7u;
        const float magnitude = m < 2 ? 0.5f * float(m) : float_of_bits((m << 22) + (126u << 23));
        return float_of_bits(bits_of_float(magnitude) | (c & 8u) << 28);
    }
};

struct AsE3m0 : AsFour<0, 4> {  // 0, 0.25, 0.5, 1, 2, 4, 8, 16
    FPNA_POINT static unsigned code(float x) {
        const int magnitude = magnitude_of(x), m = magnitude < 0x41800000 ? magnitude : 0x41800000;
        const unsigned normal = unsigned((m + 0x3FFFFF + (m >> 23 & 1)) >> 23) - 124u, small = m > 124 << 23;
        return sign(x) | (m < 125 << 23 ? small : normal);
    }
    FPNA_POINT static float value(unsigned c) {
        const unsigned m = c & 7u;
        return float_of_bits((m == 0 ? 0u : (m + 124u) << 23) | (c & 8u) << 28);
    }
};

// Whole numbers from -7 to 7 in two's complement, with a bfloat16 as scale.
struct AsInt4 {
    using Head = unsigned short;
    static constexpr Head NAN_HEAD = QUIET_NAN >> 16;
    FPNA_POINT static Head head_of(int largest) {
        const unsigned seventh = bits_of_float(float_of_bits(unsigned(largest)) / 7.0f);
        return Head(largest < TINY ? 0 : (seventh + 0xFFFFu) >> 16);
    }
    FPNA_POINT static float scale_of(Head head) { return float_of_bits(unsigned(head) << 16); }
    FPNA_POINT static float inverse_of(Head head) { return head == 0 ? 0.0f : 1.0f / scale_of(head); }
    FPNA_POINT static unsigned code(float x) { return unsigned(whole_of<3>(x)) & 15u; }
    FPNA_POINT static float value(unsigned c) { return float(int(c ^ 8u) - 8); }
};

// The histogram of `table`: a bin is the exponent and 5 bits of the mantissa, counted from `least`.
constexpr int BINS = 512, BIN_SHIFT = 18;

FPNA_POINT int least_bin(int largest) {
    const int least = (largest >> BIN_SHIFT) - (BINS - 1);
    return least > 0 ? least : 0;
}

FPNA_POINT int bin_of(int magnitude, int least) {
    const int bin = (magnitude >> BIN_SHIFT) - least;
    return bin > 0 ? bin : 0;
}

// The value of a bin, as bfloat16.
FPNA_POINT unsigned short entry_of(int bin, int least) {
    return static_cast<unsigned short>(bin == 0 ? 0 : (bin + least) << 2 | 2);
}

// How many of m elements are at or below the percentile 99 k / entries, k = 1 ... entries.
FPNA_POINT long long rank_of(int k, int entries, long long m) {
    const int hundred = 100 * entries;
    return (99 * k * m + hundred - 1) / hundred;
}

// The ratio of lengths, from their squares; 1 where it cannot be used.
FPNA_POINT float factor_of(double a, double b) {
    const bool usable = (a + b) - (a + b) == 0 && b > 0;
    return usable ? float(sqrt(a) / sqrt(b)) : 1.0f;
}
