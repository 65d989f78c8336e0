// Order-free accumulators in integers: superaccumulator and fixed-point limbs (see kernels/exact).
// The twin in NumPy is kernels/exact/reference.py; both give the same words and the same bits.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>

#include "native.hpp"

namespace {

using i64 = std::int64_t;
using u64 = std::uint64_t;
using u128 = unsigned __int128;

constexpr int CHUNKS = 67, NOT_A_NUMBER = 67, PLUS_INF = 68, MINUS_INF = 69, WORDS = 70;
constexpr int LOWEST = -1075;             // chunk i counts multiples of 2^(32 i + LOWEST)
constexpr std::size_t DEPOSITS = 512;     // below 2^53 each: they fit beside the sum of 2^20 ranks' words
constexpr std::size_t BATCH = 2048;       // elements binned at once; their bins stay below 2^53 units
constexpr int LIMB = 42;                  // bits of one fixed-point limb
constexpr double LIMB_LIMIT = 0x1p42, LIMB_SCALE = 0x1p42;
constexpr double ROUNDER = 0x1.8p52;      // adding it rounds to an integer, which is then in the low bits
constexpr int EMPTY = -1074, NONFINITE = 1 << 20;

inline u64 bits_of(double x) {
    u64 b;
    std::memcpy(&b, &x, sizeof b);
    return b;
}

// ---------------------------------------------------------------- superaccumulator: one element at a time

// Adds x exactly. Chunks grow by less than 2^53, so carry() is due after DEPOSITS of them.
inline void deposit(i64 *w, double x) {
    const u64 bits = bits_of(x);
    const unsigned biased = (bits >> 52) & 0x7FF;
    u64 mantissa = bits & ((u64(1) << 52) - 1);
    if (biased == 0x7FF) {
        w[mantissa ? NOT_A_NUMBER : i64(bits) < 0 ? MINUS_INF : PLUS_INF] += 1;
        return;
    }
    mantissa |= u64(biased != 0) << 52;
    const unsigned exponent = biased + (biased == 0), chunk = exponent >> 5, shift = exponent & 31;
    const i64 sign = i64(bits) >> 63;  // 0 or -1: (v ^ sign) - sign negates or not
    const i64 low = i64((mantissa << shift) & 0xFFFFFFFF), high = i64(mantissa >> (32 - shift));
    w[chunk] += (low ^ sign) - sign;
    w[chunk + 1] += (high ^ sign) - sign;
}

inline void carry(i64 *w) {
    i64 over = 0;
    for (int i = 0; i < CHUNKS - 1; ++i) {
        const i64 v = w[i] + over;
        over = v >> 32;
        w[i] = v & 0xFFFFFFFF;
    }
    w[CHUNKS - 1] += over;
}

// ---------------------------------------------------------------- superaccumulator: batches

// Largest |x| as bits; bits of NaN and infinity are above those of all numbers.
FPNA_CLONES u64 largest(const double *x, std::size_t n) {
    constexpr std::size_t W = 16;
    i64 most[W] = {};
    std::size_t i = 0;
    for (; i + W <= n; i += W)
        for (std::size_t l = 0; l < W; ++l) {
            const i64 b = i64(bits_of(x[i + l]) & ~(u64(1) << 63));
            most[l] = b > most[l] ? b : most[l];
        }
    for (; i < n; ++i) most[0] = std::max(most[0], i64(bits_of(x[i]) & ~(u64(1) << 63)));
    return u64(*std::max_element(most, most + W));
}

// Cuts each x into multiples of 2^-40, 2^-80 and 2^-120 of 2^e > max|x| and adds these into bin[0..2]. All
// additions are exact (at most 2^51 units in a bin), so their order does not matter. Returns whether any x has
// bits below the third bin, which are left to the caller.
FPNA_CLONES bool bin(const double *x, std::size_t n, const double *rounder, double *bin) {
    constexpr std::size_t W = 16;
    const double r0 = rounder[0], r1 = rounder[1], r2 = rounder[2];
    double s0[W] = {}, s1[W] = {}, s2[W] = {}, tail[W] = {};
    u64 rest[W] = {};
    for (std::size_t i = 0; i < n; i += W) {
        const double *from = x + i;
        if (n - i < W) {
            std::copy(from, x + n, tail);
            from = tail;
        }
        for (std::size_t l = 0; l < W; ++l) {
            double v = from[l];
            const double q0 = (v + r0) - r0;
            v -= q0;
            const double q1 = (v + r1) - r1;
            v -= q1;
            const double q2 = (v + r2) - r2;
            v -= q2;
            s0[l] += q0;
            s1[l] += q1;
            s2[l] += q2;
            rest[l] |= bits_of(v) << 1;
        }
    }
    u64 any = 0;
    for (std::size_t l = 0; l < W; ++l) {
        bin[0] += s0[l];
        bin[1] += s1[l];
        bin[2] += s2[l];
        any |= rest[l];
    }
    return any != 0;
}

// p = fl(ab), e = fl(ab - p); where p is not finite it has said all, and e is 0.
FPNA_CLONES void products(const double *a, const double *b, std::size_t n, double *p, double *e) {
    for (std::size_t i = 0; i < n; ++i) {
        p[i] = a[i] * b[i];
        const double error = std::fma(a[i], b[i], -p[i]);
        e[i] = std::fabs(p[i]) <= std::numeric_limits<double>::max() ? error : 0.0;
    }
}

void add_each(i64 *w, const double *x, std::size_t n, std::size_t stride) {
    for (std::size_t i = 0; i < n; i += DEPOSITS) {
        for (std::size_t j = i; j < std::min(n, i + DEPOSITS); ++j) deposit(w, x[j * stride]);
        carry(w);
    }
}

// At most BATCH elements, three deposits where the range of the exponents allows it.
void add_batch(i64 *w, const double *x, std::size_t n) {
    const u64 most = largest(x, n);
    if (most == 0) return;
    int e = int(most >> 52) - 1022;  // |x| < 2^e
    // Far up a rounder would overflow. Far down they underflow, but there all additions are exact without them.
    if (n < 32 || e > 1000) {
        add_each(w, x, n, 1);
        return;
    }
    double rounder[3], sums[3] = {};
    for (int k = 0; k < 3; ++k) rounder[k] = std::ldexp(ROUNDER, e - 40 * (k + 1));
    const bool rest = bin(x, n, rounder, sums);
    for (double s : sums) deposit(w, s);
    if (rest)
        for (std::size_t i = 0; i < n; ++i) {
            if (i % DEPOSITS == 0) carry(w);
            double v = x[i];
            for (double r : rounder) v -= (v + r) - r;
            deposit(w, v);
        }
    carry(w);
}

void add_column(i64 *w, const double *x, std::size_t n, std::size_t stride) {
    if (stride == 1)
        for (std::size_t i = 0; i < n; i += BATCH) add_batch(w, x + i, std::min(BATCH, n - i));
    else
        add_each(w, x, n, stride);
}

void add_products(i64 *w, const double *a, const double *b, std::size_t n) {
    double p[BATCH], e[BATCH];
    for (std::size_t i = 0; i < n; i += BATCH) {
        const std::size_t count = std::min(BATCH, n - i);
        products(a + i, b + i, count, p, e);
        add_batch(w, p, count);
        add_batch(w, e, count);
    }
}

// ---------------------------------------------------------------- rounding

// magnitude * 2^exponent, plus something below the last bit if `sticky`, rounded once to nearest even.
// The lowest chunk begins at 2^LOWEST and all deposits end above it, so that subnormal sums are exact.
inline double nearest(u128 magnitude, bool sticky, int exponent) {
    if (magnitude == 0) return 0.0;
    const u64 top = u64(magnitude >> 64);
    const int length = top ? 128 - __builtin_clzll(top) : 64 - __builtin_clzll(u64(magnitude));
    const int drop = std::max(length - std::numeric_limits<double>::digits, 0);
    u64 kept = u64(magnitude >> drop);
    if (drop > 0) {
        const u128 half = u128(1) << (drop - 1), rest = magnitude & (half | (half - 1));
        kept += rest > half || (rest == half && (sticky || (kept & 1)));
    }
    return std::ldexp(double(kept), exponent + drop);
}

double round_words(const i64 *words) {
    constexpr double inf = std::numeric_limits<double>::infinity();
    if (words[NOT_A_NUMBER] || (words[PLUS_INF] && words[MINUS_INF])) return std::numeric_limits<double>::quiet_NaN();
    if (words[PLUS_INF] || words[MINUS_INF]) return words[PLUS_INF] ? inf : -inf;

    i64 w[CHUNKS];
    std::copy(words, words + CHUNKS, w);
    carry(w);
    const bool negative = w[CHUNKS - 1] < 0;
    if (negative) {
        for (i64 &c : w) c = -c;
        carry(w);
    }
    if (w[CHUNKS - 1] > 0) return negative ? -inf : inf;  // at least 2^1037
    int t = CHUNKS - 2;
    while (t > 2 && w[t] == 0) --t;
    u128 magnitude = 0;  // of the three leading chunks: at least 65 bits, or all there are
    for (int i = 0; i < 3; ++i) magnitude = magnitude << 32 | u128(w[t - i]);
    bool sticky = false;
    for (int i = 0; i < t - 2; ++i) sticky |= w[i] != 0;
    const double value = nearest(magnitude, sticky, 32 * (t - 2) + LOWEST);
    return negative ? -value : value;
}

// ---------------------------------------------------------------- fixed point

template <typename T>
inline int exponent_of(double most) {
    if (!(most <= std::numeric_limits<T>::max())) return NONFINITE;
    if (most == 0) return EMPTY;
    int e;
    std::frexp(most, &e);
    return e;
}

FPNA_CLONES int largest_float(const float *x, std::size_t n) {
    std::int32_t most = 0;
    for (std::size_t i = 0; i < n; ++i) {
        std::int32_t b;
        std::memcpy(&b, x + i, sizeof b);
        b &= 0x7FFFFFFF;
        most = b > most ? b : most;
    }
    return most;
}

int fixed_exponent(const double *x, std::size_t n) {
    const u64 b = largest(x, n);
    double most;
    std::memcpy(&most, &b, sizeof most);
    return exponent_of<double>(most);
}

int fixed_exponent(const float *x, std::size_t n) {
    const std::int32_t b = largest_float(x, n);
    float most;
    std::memcpy(&most, &b, sizeof most);
    return exponent_of<float>(most);
}

// One row added to out[limb][column]. Returns whether some |x| was not below 2^exponent (a NaN is not).
template <int LIMBS, typename T>
inline __attribute__((always_inline)) bool encode_row(const T *x, std::size_t columns, double f, double g, i64 *out,
                                                      std::size_t pitch) {
    const i64 offset = i64(bits_of(ROUNDER));
    i64 bad = 0;
    for (std::size_t c = 0; c < columns; ++c) {
        double y = double(x[c]) * f * g;
        bad |= std::fabs(y) <= LIMB_LIMIT ? 0 : 1;
        for (int k = 0; k < LIMBS; ++k) {
            const double shifted = y + ROUNDER;
            out[k * pitch + c] += i64(bits_of(shifted)) - offset;
            y = (y - (shifted - ROUNDER)) * LIMB_SCALE;
        }
    }
    return bad != 0;
}

FPNA_CLONES bool encode_row_float(const float *x, std::size_t n, double f, double g, i64 *out, std::size_t pitch) {
    return encode_row<1>(x, n, f, g, out, pitch);
}

FPNA_CLONES bool encode_row_double(const double *x, std::size_t n, double f, double g, i64 *out, std::size_t pitch) {
    return encode_row<2>(x, n, f, g, out, pitch);
}

inline bool encode(const float *x, std::size_t n, double f, double g, i64 *out, std::size_t pitch) {
    return encode_row_float(x, n, f, g, out, pitch);
}

inline bool encode(const double *x, std::size_t n, double f, double g, i64 *out, std::size_t pitch) {
    return encode_row_double(x, n, f, g, out, pitch);
}

// x (rows, columns) summed over its rows into out (limbs, columns). Narrow x is read as fewer, wider rows, which
// are folded at the end: integers do not mind.
template <typename T>
bool fixed_encode(const T *x, std::size_t rows, std::size_t columns, int exponent, i64 *out) {
    constexpr int limbs = sizeof(T) == 4 ? 1 : 2;
    constexpr std::size_t WIDE = 64;
    const int shift = LIMB - exponent;
    const double f = std::ldexp(1.0, shift >> 1), g = std::ldexp(1.0, shift - (shift >> 1));
    bool bad = false;
    if (columns > 0 && columns <= WIDE / 2 && rows >= WIDE) {
        const std::size_t fold = WIDE / columns, width = fold * columns;
        i64 wide[limbs * WIDE] = {};
        for (; rows >= fold; rows -= fold, x += width) bad |= encode(x, width, f, g, wide, WIDE);
        for (int k = 0; k < limbs; ++k)
            for (std::size_t i = 0; i < width; ++i) out[k * columns + i % columns] += wide[k * WIDE + i];
    }
    for (; rows > 0; --rows, x += columns) bad |= encode(x, columns, f, g, out, columns);
    return bad;
}

// Rounds once, to the precision of normal numbers, and scales by f * g. Scaling is exact: a sum so small that it
// is subnormal has no bits below the lowest one of its type, for its elements have none, and was not rounded.
FPNA_CLONES void decode_float(const i64 *words, std::size_t n, double f, double g, float *out) {
    for (std::size_t i = 0; i < n; ++i) out[i] = float(double(float(words[i])) * f * g);
}

FPNA_CLONES void decode_double(const i64 *words, std::size_t n, double f, double g, double *out) {
    for (std::size_t i = 0; i < n; ++i) {
        const i64 low = words[n + i], high = words[i] + (low >> LIMB);
        const double leading = double(high);  // the error of this is below 2^10, so that `rest` is below 2^53
        const i64 rest = ((high - i64(leading)) << LIMB) + (low & ((i64(1) << LIMB) - 1));
        out[i] = (leading * LIMB_SCALE + double(rest)) * f * g;
    }
}

inline void decode(const i64 *words, std::size_t n, double f, double g, float *out) {
    decode_float(words, n, f, g, out);
}

inline void decode(const i64 *words, std::size_t n, double f, double g, double *out) {
    decode_double(words, n, f, g, out);
}

template <typename T>
void fixed_decode(const i64 *words, std::size_t n, int exponent, T *out) {
    const int unit = exponent - LIMB * (sizeof(T) == 4 ? 1 : 2);
    decode(words, n, std::ldexp(1.0, unit >> 1), std::ldexp(1.0, unit - (unit >> 1)), out);
}

// ---------------------------------------------------------------- Python

using words_t = py::array_t<i64, py::array::c_style>;

template <typename T>
bool is(const py::array &a) {
    return py::isinstance<py::array_t<T, py::array::c_style>>(a);
}

}  // namespace

void register_exact(py::module_ &m) {
    // Flat arrays; the shapes are checked in kernels/exact/superaccumulator.py and fixedpoint.py.
    m.def("exact_add", [](words_t words, array<double> x) {
        const std::size_t sums = words.size() / WORDS, rows = sums ? x.size() / sums : 0;
        i64 *w = words.mutable_data();
        for (std::size_t c = 0; c < sums; ++c, w += WORDS) {
            carry(w);
            add_column(w, x.data() + c, rows, sums);
        }
    }, py::arg("words").noconvert(), py::arg("x").noconvert());
    m.def("exact_add_products", [](words_t words, array<double> a, array<double> b) {
        carry(words.mutable_data());
        add_products(words.mutable_data(), a.data(), b.data(), a.size());
    }, py::arg("words").noconvert(), py::arg("a").noconvert(), py::arg("b").noconvert());
    m.def("exact_carry", [](words_t words) {
        i64 *w = words.mutable_data();
        for (py::ssize_t c = 0; c < words.size() / WORDS; ++c) carry(w + c * WORDS);
    }, py::arg("words").noconvert());
    m.def("exact_round", [](words_t words, array<double> out) {
        const i64 *w = words.data();
        double *o = out.mutable_data();
        for (py::ssize_t c = 0; c < out.size(); ++c) o[c] = round_words(w + c * WORDS);
    }, py::arg("words").noconvert(), py::arg("out").noconvert());
    m.def("fixed_exponent", [](py::array x) {
        return is<float>(x) ? fixed_exponent(static_cast<const float *>(x.data()), x.size())
                            : fixed_exponent(static_cast<const double *>(x.data()), x.size());
    });
    m.def("fixed_encode", [](py::array x, int exponent, words_t out) {
        const std::size_t rows = x.shape(0), columns = rows ? x.size() / rows : 0;
        i64 *o = out.mutable_data();
        return is<float>(x) ? fixed_encode(static_cast<const float *>(x.data()), rows, columns, exponent, o)
                            : fixed_encode(static_cast<const double *>(x.data()), rows, columns, exponent, o);
    });
    m.def("fixed_decode", [](words_t words, int exponent, py::array out) {
        if (is<float>(out))
            fixed_decode(words.data(), out.size(), exponent, static_cast<float *>(out.mutable_data()));
        else
            fixed_decode(words.data(), out.size(), exponent, static_cast<double *>(out.mutable_data()));
    }, py::arg("words").noconvert(), py::arg("exponent"), py::arg("out"));
}
