// Codecs of wires with loss (kernels/wires): cells of float32 to bytes and back, with the bits of
// kernels/wires/reference.py. Each cell is encoded by itself, in one thread.
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define FPNA_F16C __attribute__((target("avx,f16c")))
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels.hpp"

using std::sqrt;
#include "../include/codes.hpp"
#include "codestream.hpp"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed within this file alone

namespace {

using i64 = std::int64_t;
using u8 = std::uint8_t;
using u64 = std::uint64_t;

constexpr std::size_t CELL = 4096, LANES = 16, SLACK = 8;

#define FPNA_INLINE inline __attribute__((always_inline))

template <typename T>
FPNA_INLINE T load(const void *from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
}

template <typename T>
FPNA_INLINE void store(void *to, T value) {
    std::memcpy(to, &value, sizeof(T));
}

// Vectors that every compiler knows: as many registers as the processor needs for one.
typedef float Floats __attribute__((vector_size(32)));
typedef int Ints __attribute__((vector_size(32)));
typedef float Quarter __attribute__((vector_size(16)));
typedef double Doubles __attribute__((vector_size(32)));
typedef long long Longs __attribute__((vector_size(32)));
constexpr std::size_t WIDTH = 8, QUARTERS = 4;

struct Put {
    template <typename T>
    FPNA_INLINE static void to(float *at, T value) { store(at, value); }
};

struct Add {
    template <typename T>
    FPNA_INLINE static void to(float *at, T value) { store(at, load<T>(at) + value); }
};

FPNA_CLONES int largest_magnitude(const float *x, std::size_t m) {
    int largest = 0;
    for (std::size_t i = 0; i < m; ++i) {
        const int magnitude = magnitude_of(x[i]);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

FPNA_CLONES int largest_finite(const float *x, std::size_t m) {
    int largest = 0;
    for (std::size_t i = 0; i < m; ++i) {
        const int magnitude = magnitude_of(x[i]), finite = magnitude < INFINITE ? magnitude : 0;
        largest = finite > largest ? finite : largest;
    }
    return largest;
}

// Float64 sums of LANES lanes.
struct Lanes {
    Doubles quarter[QUARTERS] = {};

    FPNA_INLINE double total() const {
        const Doubles sum = (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
        return (sum[0] + sum[2]) + (sum[1] + sum[3]);
    }
};

// each(q, elements as float64) for the quarters of every row of LANES; missing elements of the last row are zero.
template <typename Each>
FPNA_INLINE void in_rows(const float *x, std::size_t m, Each each) {
    const auto row = [&](const float *at) __attribute__((always_inline)) {
        for (std::size_t q = 0; q < QUARTERS; ++q) each(q, __builtin_convertvector(load<Quarter>(at + 4 * q), Doubles));
    };
    std::size_t i = 0;
    for (; i + LANES <= m; i += LANES) row(x + i);
    if (i == m) return;
    float rest[LANES] = {};
    std::memcpy(rest, x + i, (m - i) * sizeof(float));
    row(rest);
}

FPNA_CLONES double sum_of_squares(const float *x, std::size_t m) {
    Lanes sum;
    in_rows(x, m, [&](std::size_t q, Doubles part) __attribute__((always_inline)) { sum.quarter[q] += part * part; });
    return sum.total();
}

FPNA_CLONES void add_floats(const u8 *data, std::size_t m, float *into) {
    for (std::size_t i = 0; i < m; ++i) into[i] += load<float>(data + 4 * i);
}

// Encodes m elements; casts multiply them by `by` first. `n`: elements of a block, for codecs in blocks.
using Encode = void (*)(const float *x, std::size_t m, float by, int n, u8 *out);
// Decodes m elements, multiplies them by `by` and puts them to `out` or adds them.
using Decode = void (*)(const u8 *data, std::size_t m, float by, int n, float *out);

// Writes code(i), i < m, as Code to `out`. A loop of its own narrows the codes: else compilers narrow the numbers from
// which codes are computed, which is more work.
template <typename Code, typename Codes>
FPNA_INLINE void put_codes(std::size_t m, u8 *out, Codes code) {
    constexpr std::size_t TILE = 256;
    unsigned tile[TILE];
    for (std::size_t first = 0; first < m; first += TILE) {
        const std::size_t count = m - first < TILE ? m - first : TILE;
        for (std::size_t i = 0; i < count; ++i) tile[i] = code(first + i);
        for (std::size_t i = 0; i < count; ++i) store(out + sizeof(Code) * (first + i), static_cast<Code>(tile[i]));
    }
}

template <typename Cast>
FPNA_INLINE void encode_cast(const float *x, std::size_t m, float by, u8 *out) {
    put_codes<typename Cast::Code>(m, out,
        [=](std::size_t i) __attribute__((always_inline)) { return Cast::code(x[i] * by); });
}

template <typename Cast, typename To>
FPNA_INLINE void decode_cast(const u8 *data, std::size_t m, float by, float *out) {
    using Code = typename Cast::Code;
    for (std::size_t i = 0; i < m; ++i) To::to(out + i, Cast::value(load<Code>(data + sizeof(Code) * i)) * by);
}

template <typename Whole, int BITS>
FPNA_INLINE void encode_whole(const float *x, std::size_t m, u8 *out) {
    const int largest = largest_magnitude(x, m), e = unit_exponent(largest, BITS);
    if (largest >= INFINITE) {
        store(out, QUIET_NAN);
        std::memset(out + 4, 0, m * sizeof(Whole));
        return;
    }
    const float unit = power_of_two(e), inverse = 1.0f / unit;
    store(out, unit);
    put_codes<Whole>(m, out + 4,
        [=](std::size_t i) __attribute__((always_inline)) { return unsigned(whole_of<BITS>(x[i] * inverse)); });
}

template <typename Whole, typename To>
FPNA_INLINE void decode_whole(const u8 *data, std::size_t m, float by, float *out) {
    const float unit = load<float>(data);
    for (std::size_t i = 0; i < m; ++i)
        To::to(out + i, static_cast<float>(load<Whole>(data + 4 + sizeof(Whole) * i)) * unit * by);
}

// Sign bits of 8 elements.
FPNA_INLINE unsigned signs_of(const float *x) {
#ifdef __SSE2__
    return unsigned(_mm_movemask_ps(_mm_loadu_ps(x)) | _mm_movemask_ps(_mm_loadu_ps(x + 4)) << 4);
#else
    unsigned signs = 0;
    for (int l = 0; l < 8; ++l) signs |= bits_of_float(x[l]) >> 31 << l;
    return signs;
#endif
}

FPNA_INLINE void encode_sign(const float *x, std::size_t m, u8 *out) {
    Lanes positive, negative;
    in_rows(x, m, [&](std::size_t q, Doubles part) __attribute__((always_inline)) {
        const Longs bits = Longs(part), sign = bits < 0;
        positive.quarter[q] += Doubles(bits & ~sign);
        negative.quarter[q] += Doubles(bits & sign);
    });
    u8 *const stream = out + 8;
    std::size_t i = 0;
    for (; i + 8 <= m; i += 8) stream[i / 8] = u8(signs_of(x + i));
    if (i < m) {
        float rest[8] = {};
        std::memcpy(rest, x + i, (m - i) * sizeof(float));
        stream[i / 8] = u8(signs_of(rest));
    }
    int count = 0;
    for (std::size_t k = 0; k < (m + 7) / 8; k += 8) {
        u64 word = 0;
        std::memcpy(&word, stream + k, (m + 7) / 8 - k < 8 ? (m + 7) / 8 - k : 8);
        count += __builtin_popcountll(word);
    }
    const double sums[] = {positive.total(), negative.total()}, counts[] = {double(m) - count, double(count)};
    const bool finite = sums[0] - sums[0] == 0 && sums[1] - sums[1] == 0;
    for (int s = 0; s < 2; ++s) {
        const float mean = counts[s] > 0 ? float(sums[s] / counts[s]) : 0.0f;
        store(out + 4 * s, finite ? bits_of_float(mean) : QUIET_NAN);
    }
}

// Writes value(codes of 8 elements) to `out`, or adds it; for streams of 4 bits or less.
template <int BITS, typename To, typename Values>
FPNA_INLINE void decode_stream(const u8 *stream, std::size_t m, float *out, Values value) {
    const Ints shift = {0, BITS, 2 * BITS, 3 * BITS, 4 * BITS, 5 * BITS, 6 * BITS, 7 * BITS};
    const auto next = [&](std::size_t bytes) __attribute__((always_inline)) {
        unsigned w = 0;
        std::memcpy(&w, stream, bytes);
        return value((Ints{} + int(w)) >> shift & ((1 << BITS) - 1));
    };
    std::size_t i = 0;
    for (; i + WIDTH <= m; i += WIDTH, stream += BITS) To::to(out + i, next(BITS));
    if (i == m) return;
    const Floats rest = next((BITS * (m - i) + 7) / 8);
    for (std::size_t l = 0; i + l < m; ++l) To::to(out + i + l, float(rest[l]));
}

template <typename To>
FPNA_INLINE void decode_sign(const u8 *data, std::size_t m, float by, float *out) {
    Floats positive, negative;
    for (std::size_t l = 0; l < WIDTH; ++l) {
        positive[l] = load<float>(data) * by;
        negative[l] = load<float>(data + 4) * by;
    }
    decode_stream<1, To>(data + 8, m, out,
        [=](Ints code) __attribute__((always_inline)) { return code != 0 ? negative : positive; });
}

using Bins = unsigned short[CELL];

FPNA_INLINE void find_bins(const float *x, std::size_t m, int least, Bins &bins) {
    for (std::size_t i = 0; i < m; ++i) bins[i] = static_cast<unsigned short>(bin_of(magnitude_of(x[i]), least));
}

// Counts m elements, at most CELL, with these bins.
FPNA_INLINE void count_bins(const Bins &bins, std::size_t m, i64 (&total)[BINS]) {
    constexpr std::size_t TURNS = 4;  // neighbours are counted apart: they are often of one bin
    unsigned short counts[TURNS][BINS] = {};
    std::size_t i = 0;
    for (; i + TURNS <= m; i += TURNS)
        for (std::size_t t = 0; t < TURNS; ++t) ++counts[t][bins[i + t]];
    for (; i < m; ++i) ++counts[0][bins[i]];
    for (int b = 0; b < BINS; ++b) total[b] += counts[0][b] + counts[1][b] + counts[2][b] + counts[3][b];
}

// The percentiles of m elements, so many of them in each bin, as bfloat16.
template <int ENTRIES>
FPNA_INLINE void percentiles(const i64 (&total)[BINS], std::size_t m, int least, unsigned short *table) {
    int bin = 0;
    i64 below = total[0];
    for (int k = 1; k <= ENTRIES; ++k) {
        const i64 needed = rank_of(k, ENTRIES, static_cast<long long>(m));
        while (below < needed) below += total[++bin];
        table[k - 1] = entry_of(bin, least);
    }
}

// How many of the ascending means each magnitude exceeds: for at most 7 means, by halving, 8 elements at once.
template <int MEANS>
FPNA_INLINE void halve_exceeded(const float *x, std::size_t m, const float *middle, u8 *place) {
    Floats means = {};
    for (int j = 0; j < MEANS; ++j) means[j] = middle[j];
    const auto exceeded = [=](Floats elements) __attribute__((always_inline)) {
        const Floats magnitude = Floats(Ints(elements) & MAGNITUDE);
        Ints count = {};
        for (int step = (MEANS + 1) / 2; step > 0; step /= 2)
            count += (magnitude > __builtin_shuffle(means, count + (step - 1))) & step;
        return count;
    };
    int counts[CELL];
    std::size_t i = 0;
    for (; i + WIDTH <= m; i += WIDTH) store(counts + i, exceeded(load<Floats>(x + i)));
    if (i < m) {
        float rest[WIDTH] = {};
        std::memcpy(rest, x + i, (m - i) * sizeof(float));
        const Ints of_rest = exceeded(load<Floats>(rest));
        std::memcpy(counts + i, &of_rest, (m - i) * sizeof(int));
    }
    for (i = 0; i < m; ++i) place[i] = u8(counts[i]);
}

// The same for more means: compares with all.
template <int MEANS>
FPNA_INLINE void count_exceeded(const float *x, std::size_t m, const float *middle, u8 *place) {
    for (std::size_t i = 0; i < m; ++i) {
        const float magnitude = float_of_bits(unsigned(magnitude_of(x[i])));
        int exceeded = 0;
        for (int j = 0; j < MEANS; ++j) exceeded += magnitude > middle[j];
        place[i] = u8(exceeded);
    }
}

// The same by bins. At most three different means are in one bin: that of an entry and those to its left and right,
// since entries are the middles of bins. All means below the bin are exceeded.
template <int MEANS>
FPNA_INLINE void look_up_exceeded(const float *x, std::size_t m, const float *middle, const Bins &bins, int least,
                                  u8 *place) {
    constexpr int MOST_IN_BIN = 3;
    float mean[MEANS + MOST_IN_BIN];  // each once
    u8 exceeded[MEANS + 1], first[BINS];
    int count = 0;
    exceeded[0] = 0;
    for (int j = 0; j < MEANS; ++j) {
        if (count == 0 || middle[j] > mean[count - 1]) mean[count++] = middle[j];
        exceeded[count] = u8(j + 1);
    }
    for (int k = 0; k < MOST_IN_BIN; ++k) mean[count + k] = float_of_bits(INFINITE);
    for (int b = 0, c = 0; b < BINS; ++b) {
        while (c < count && bin_of(magnitude_of(mean[c]), least) < b) ++c;
        first[b] = u8(c);
    }
    for (std::size_t i = 0; i < m; ++i) {
        const float magnitude = float_of_bits(unsigned(magnitude_of(x[i])));
        int c = first[bins[i]];
        asm("" : "+r"(c));  // one element at a time: gathering vectors from memory is slower
        place[i] = exceeded[c + (magnitude > mean[c]) + (magnitude > mean[c + 1]) + (magnitude > mean[c + 2])];
    }
}

template <int BITS>
FPNA_INLINE void encode_table(const float *x, std::size_t m, u8 *out) {
    constexpr int ENTRIES = 1 << (BITS - 1), HEAD = 2 * ENTRIES;
    unsigned short table[ENTRIES];
    float middle[ENTRIES];
    Bins bins;
    const int largest = largest_magnitude(x, m), least = least_bin(largest);
    const bool finite = largest < INFINITE;
    if (finite) {
        i64 total[BINS] = {};
        for (std::size_t first = 0; first < m; first += CELL) {
            const std::size_t part = std::min(m - first, CELL);
            find_bins(x + first, part, least, bins);
            count_bins(bins, part, total);
        }
        percentiles<ENTRIES>(total, m, least, table);
        for (int j = 0; j + 1 < ENTRIES; ++j)
            middle[j] = (widen(bfloat16{table[j]}) + widen(bfloat16{table[j + 1]})) * 0.5f;
    } else
        for (unsigned short &entry : table) entry = QUIET_NAN >> 16;
    std::memcpy(out, table, HEAD);
    out += HEAD;
    for (std::size_t first = 0; first < m; first += CELL, x += CELL, out += BITS * CELL / 8) {
        const std::size_t part = std::min(m - first, CELL);
        u8 codes[CELL + SLACK] = {};
        if (finite) {
            if constexpr (BITS <= 4)
                halve_exceeded<ENTRIES - 1>(x, part, middle, codes);
            else if constexpr (BITS == 5)
                count_exceeded<ENTRIES - 1>(x, part, middle, codes);
            else {
                if (m > CELL) find_bins(x, part, least, bins);  // else they are those of the first loop
                look_up_exceeded<ENTRIES - 1>(x, part, middle, bins, least, codes);
            }
        }
        for (std::size_t i = 0; i < part; ++i) codes[i] |= u8(bits_of_float(x[i]) >> 31 << (BITS - 1));
        codestream::pack<BITS>(codes, part, out);
    }
}

template <int BITS, typename To>
FPNA_INLINE void decode_table(const u8 *data, std::size_t m, float by, float *out) {
    constexpr int ENTRIES = 1 << (BITS - 1), HEAD = 2 * ENTRIES;
    float values[2 * ENTRIES];
    for (int j = 0; j < ENTRIES; ++j) {
        values[j] = widen(bfloat16{load<unsigned short>(data + 2 * j)}) * by;
        values[j + ENTRIES] = -values[j];
    }
    if constexpr (BITS <= 4) {
        Floats entries = {};
        for (int j = 0; j < ENTRIES; ++j) entries[j] = values[j];
        decode_stream<BITS, To>(data + HEAD, m, out, [=](Ints code) __attribute__((always_inline)) {
            const Floats magnitude = __builtin_shuffle(entries, code & (ENTRIES - 1));
            return Floats(Ints(magnitude) ^ (code >> (BITS - 1) << 31));
        });
    } else {
        data += HEAD;
        for (std::size_t first = 0; first < m; first += CELL, out += CELL, data += BITS * CELL / 8) {
            const std::size_t part = std::min(m - first, CELL);
            u8 codes[CELL + SLACK];
            codestream::unpack<BITS>(data, part, codes);
            for (std::size_t i = 0; i < part; ++i) To::to(out + i, values[codes[i]]);
        }
    }
}

#include "fourbits.hpp"

// target_clones does not go with templates, so each codec has functions of its own.
#define FPNA_CODEC(NAME, ENCODE, DECODE)                                                                       \
    FPNA_CLONES void encode_##NAME(const float *x, std::size_t m, float by, int n, u8 *out) { ENCODE; }        \
    FPNA_CLONES void decode_##NAME(const u8 *data, std::size_t m, float by, int n, float *out) { using To = Put; DECODE; } \
    FPNA_CLONES void add_##NAME(const u8 *data, std::size_t m, float by, int n, float *out) { using To = Add; DECODE; }
#define FPNA_CAST(NAME, CAST) \
    FPNA_CODEC(NAME, (encode_cast<CAST>(x, m, by, out)), (decode_cast<CAST, To>(data, m, by, out)))
#define FPNA_WHOLE(NAME, WHOLE, BITS) \
    FPNA_CODEC(NAME, (encode_whole<WHOLE, BITS>(x, m, out)), (decode_whole<WHOLE, To>(data, m, by, out)))
#define FPNA_TABLE(BITS) \
    FPNA_CODEC(table_##BITS, (encode_table<BITS>(x, m, out)), (decode_table<BITS, To>(data, m, by, out)))
#define FPNA_FOUR(NAME, AS, ROTATES)                                                      \
    FPNA_CODEC(NAME, (encode_blocks<AS>(x, m, std::size_t(n), ROTATES, out)),              \
               (decode_blocks<AS, To>(data, m, std::size_t(n), ROTATES, by, out)))
FPNA_CAST(float16, AsFloat16)
FPNA_CAST(bfloat16, AsBfloat16)
FPNA_CAST(e4m3, AsE4m3)
FPNA_CAST(e5m2, AsE5m2)
FPNA_CAST(fp8, AsFp8)
FPNA_WHOLE(int8, std::int8_t, 7)
FPNA_WHOLE(int16, std::int16_t, 15)
FPNA_CODEC(sign, (encode_sign(x, m, out)), (decode_sign<To>(data, m, by, out)))
FPNA_FOUR(int4, AsInt4, false)
FPNA_FOUR(e2m1, AsE2m1, false)
FPNA_FOUR(e3m0, AsE3m0, false)
FPNA_FOUR(rotated_int4, AsInt4, true)
FPNA_FOUR(rotated_e2m1, AsE2m1, true)
FPNA_FOUR(rotated_e3m0, AsE3m0, true)
FPNA_TABLE(1)
FPNA_TABLE(2)
FPNA_TABLE(3)
FPNA_TABLE(4)
FPNA_TABLE(5)
FPNA_TABLE(6)
FPNA_TABLE(7)
FPNA_TABLE(8)

#ifdef FPNA_F16C
// Casts by the processor's conversions of float16, which round to nearest even and make NaN quiet, as `narrow` does.
// halves(8 codes): their float16 numbers; times SCALE, these are the values of the codes.
struct HalvesOfTwoBytes {
    static constexpr float SCALE = 1;
    FPNA_F16C static __m128i halves(const u8 *at) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(at)); }
};

struct HalvesOfFiveTwo {
    static constexpr float SCALE = 1;
    FPNA_F16C static __m128i halves(const u8 *at) {
        return _mm_unpacklo_epi8(_mm_setzero_si128(), _mm_loadl_epi64(reinterpret_cast<const __m128i *>(at)));
    }
};

struct HalvesOfE4m3 {
    static constexpr float SCALE = 256;
    FPNA_F16C static __m128i halves(const u8 *at) {
        const __m128i moved = _mm_srai_epi16(HalvesOfFiveTwo::halves(at), 1);
        const __m128i half = _mm_and_si128(moved, _mm_set1_epi16(short(0xBFFF)));
        const __m128i magnitude = _mm_and_si128(half, _mm_set1_epi16(0x7FFF));
        return _mm_or_si128(half, _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x3F80)));  // all bits: NaN
    }
};

template <typename Halves, typename Cast, typename To>
FPNA_F16C void decode_halves(const u8 *data, std::size_t m, float by, int, float *out) {
    constexpr std::size_t SIZE = sizeof(typename Cast::Code);
    std::size_t i = 0;
    for (; i + WIDTH <= m; i += WIDTH) {
        Floats value = _mm256_cvtph_ps(Halves::halves(data + SIZE * i));
        if (Halves::SCALE != 1) value *= Halves::SCALE;
        To::to(out + i, value * by);
    }
    decode_cast<Cast, To>(data + SIZE * i, m - i, by, out + i);
}

FPNA_F16C void encode_halves(const float *x, std::size_t m, float by, int, u8 *out) {
    std::size_t i = 0;
    for (; i + WIDTH <= m; i += WIDTH)
        store(out + 2 * i, _mm256_cvtps_ph(load<Floats>(x + i) * by, _MM_FROUND_TO_NEAREST_INT));
    encode_cast<AsFloat16>(x + i, m - i, by, out + 2 * i);
}

template <typename Function>
Function fastest(Function portable, Function fast) {
    return __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c") ? fast : portable;
}
#define FPNA_FASTEST(PORTABLE, ...) fastest(PORTABLE, __VA_ARGS__)
#else
#define FPNA_FASTEST(PORTABLE, ...) PORTABLE
#endif

void encode_floats(const float *x, std::size_t m, float, int, u8 *out) { std::memcpy(out, x, 4 * m); }
void decode_floats(const u8 *data, std::size_t m, float, int, float *out) { std::memcpy(out, data, 4 * m); }
void add_all_floats(const u8 *data, std::size_t m, float, int, float *into) { add_floats(data, m, into); }

struct Codec {
    const char *name;
    int n, bits;
    std::size_t head;  // bytes of a cell before its stream
    int top;           // of casts
    Encode encode;
    Decode decode, add;
    std::size_t of_block = 0;  // bytes before the stream for each block of n elements
    bool rotates = false;

    std::size_t nbytes(std::size_t m, int block) const {
        const std::size_t heads = of_block ? of_block * ((m + std::size_t(block) - 1) / std::size_t(block)) : 0;
        return head + heads + (bits * m + 7) / 8;
    }
};

#define FPNA_ROW(NAME, BITS, HEAD, TOP) {#NAME, 0, BITS, HEAD, TOP, encode_##NAME, decode_##NAME, add_##NAME}
#define FPNA_TABLE_ROW(BITS) \
    {"table", BITS, BITS, 2u << (BITS - 1), 0, encode_table_##BITS, decode_table_##BITS, add_table_##BITS}
#define FPNA_HALVES_ROW(NAME, CAST, HALVES)                                                             \
    {#NAME, 0, 8, 0, CAST::TOP, encode_##NAME, FPNA_FASTEST(decode_##NAME, decode_halves<HALVES, CAST, Put>), \
     FPNA_FASTEST(add_##NAME, decode_halves<HALVES, CAST, Add>)}
#define FPNA_FOUR_ROWS(NAME, AS)                                                                \
    {#NAME, 0, 4, 0, 0, encode_##NAME, decode_##NAME, add_##NAME, sizeof(AS::Head), false},      \
    {#NAME, 0, 4, 0, 0, encode_rotated_##NAME, decode_rotated_##NAME, add_rotated_##NAME, sizeof(AS::Head), true}
const Codec FLOATS = {"float32", 0, 32, 0, 0, encode_floats, decode_floats, add_all_floats};
const Codec CODECS[] = {
    FLOATS,
    {"float16", 0, 16, 0, AsFloat16::TOP, FPNA_FASTEST(encode_float16, encode_halves),
     FPNA_FASTEST(decode_float16, decode_halves<HalvesOfTwoBytes, AsFloat16, Put>),
     FPNA_FASTEST(add_float16, decode_halves<HalvesOfTwoBytes, AsFloat16, Add>)},
    FPNA_ROW(bfloat16, 16, 0, AsBfloat16::TOP),
    FPNA_HALVES_ROW(e4m3, AsE4m3, HalvesOfE4m3),
    FPNA_HALVES_ROW(e5m2, AsE5m2, HalvesOfFiveTwo),
    FPNA_HALVES_ROW(fp8, AsFp8, HalvesOfFiveTwo),
    FPNA_ROW(int8, 8, 4, 0),
    FPNA_ROW(int16, 16, 4, 0),
    FPNA_ROW(sign, 1, 8, 0),
    FPNA_FOUR_ROWS(int4, AsInt4),
    FPNA_FOUR_ROWS(e2m1, AsE2m1),
    FPNA_FOUR_ROWS(e3m0, AsE3m0),
    FPNA_TABLE_ROW(1),
    FPNA_TABLE_ROW(2),
    FPNA_TABLE_ROW(3),
    FPNA_TABLE_ROW(4),
    FPNA_TABLE_ROW(5),
    FPNA_TABLE_ROW(6),
    FPNA_TABLE_ROW(7),
    FPNA_TABLE_ROW(8),
};

enum class Scale { NONE, TENSOR, MATCH };

// A codec and a scale by name, and their cells.
struct Plan {
    const Codec *codec = nullptr;
    Scale scale = Scale::NONE;
    int n;
    const i64 *starts;
    const bool *plain;
    std::size_t count;

    Plan(const std::string &name, int n_, const std::string &scaled, bool rotates, const array<i64> &begins,
         const array<bool> &plains)
        : n(n_), starts(begins.data()), plain(plains.data()), count(plains.size()) {
        for (const Codec &each : CODECS)
            if (name == each.name && rotates == each.rotates && (each.of_block ? n > 0 && n % int(GROUP) == 0 : n == each.n))
                codec = &each;
        if (!codec) throw std::invalid_argument("no codec " + name + " of " + std::to_string(n) + " bits, or blocks of so many elements");
        if (scaled == "tensor") scale = Scale::TENSOR;
        if (scaled == "match") scale = Scale::MATCH;
        // Only a table counts elements of longer cells part by part.
        const bool whole = name == "table" && scale == Scale::NONE;
        if (std::size_t(begins.size()) != count + 1 || starts[0] != 0)
            throw std::invalid_argument("starts are no cells");
        for (std::size_t c = 0; c < count; ++c)
            if (starts[c + 1] <= starts[c] || (!plain[c] && !whole && starts[c + 1] - starts[c] > i64(CELL)))
                throw std::invalid_argument("cell " + std::to_string(c) + " has no elements or more than 4096");
    }

    std::size_t size(std::size_t c) const { return std::size_t(starts[c + 1] - starts[c]); }

    std::size_t nbytes(std::size_t c) const {
        if (plain[c]) return 4 * size(c);
        return (scale == Scale::NONE ? 0 : 4) + codec->nbytes(size(c), n);
    }

    void require(std::size_t elements, std::size_t bytes) const {
        std::size_t needed = 0;
        for (std::size_t c = 0; c < count; ++c) needed += nbytes(c);
        if (elements != std::size_t(starts[count]) || bytes != needed)
            throw std::invalid_argument(std::to_string(elements) + " elements and " + std::to_string(bytes) +
                                        " bytes: the cells have " + std::to_string(starts[count]) + " and " +
                                        std::to_string(needed));
    }
};

void encode_cell(const Codec &codec, Scale scale, int n, const float *x, std::size_t m, u8 *out) {
    float by = 1;
    u8 *const scaled = out;
    if (scale != Scale::NONE) out += 4;
    if (scale == Scale::TENSOR) {
        const float s = power_of_two(exponent_of(largest_finite(x, m)) - (codec.top - 1));
        store(scaled, s);
        by = 1.0f / s;
    }
    codec.encode(x, m, by, n, out);
    if (scale == Scale::MATCH) {
        float decoded[CELL];
        codec.decode(out, m, 1.0f, n, decoded);
        store(scaled, factor_of(sum_of_squares(x, m), sum_of_squares(decoded, m)));
    }
}

template <Decode Codec::*DECODE>
void decode_cells(const Plan &plan, const u8 *data, float *out) {
    for (std::size_t c = 0; c < plan.count; data += plan.nbytes(c++)) {
        const bool scaled = !plan.plain[c] && plan.scale != Scale::NONE;
        const Codec &codec = plan.plain[c] ? FLOATS : *plan.codec;
        (codec.*DECODE)(data + (scaled ? 4 : 0), plan.size(c), scaled ? load<float>(data) : 1.0f, plan.n,
                         out + plan.starts[c]);
    }
}

template <Decode Codec::*DECODE>
void decode(const std::string &name, int n, const std::string &scale, bool rotates, const array<u8> &data,
            const array<i64> &starts, const array<bool> &plain, const array<float> &out) {
    const Plan plan(name, n, scale, rotates, starts, plain);
    plan.require(out.size(), data.size());
    decode_cells<DECODE>(plan, data.data(), out.mutable_data());
}

}  // namespace

void encode_cells(const std::string &name, int n, const std::string &scale, bool rotates, array<float> x,
                  array<i64> starts, array<bool> plain, array<u8> out) {
    const Plan plan(name, n, scale, rotates, starts, plain);
    plan.require(x.size(), out.size());
    const float *from = x.data();
    u8 *to = out.mutable_data();
    for (std::size_t c = 0; c < plan.count; to += plan.nbytes(c++))
        encode_cell(plan.plain[c] ? FLOATS : *plan.codec, plan.plain[c] ? Scale::NONE : plan.scale, plan.n,
                    from + plan.starts[c], plan.size(c), to);
}

void decode_cells(const std::string &name, int n, const std::string &scale, bool rotates, array<u8> data,
                  array<i64> starts, array<bool> plain, array<float> out) {
    decode<&Codec::decode>(name, n, scale, rotates, data, starts, plain, out);
}

void decode_add_cells(const std::string &name, int n, const std::string &scale, bool rotates, array<u8> data,
                      array<i64> starts, array<bool> plain, array<float> into) {
    decode<&Codec::add>(name, n, scale, rotates, data, starts, plain, into);
}
