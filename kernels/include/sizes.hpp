// The sizes of an array: how many numbers, the sum and the largest of their absolute values, and four sums with signs.
// Shared by the C++ kernels and the library that `fpna run` preloads. `kernels/sizes.py` defines the same in NumPy, and
// says what the signed sums are for.
//
// Each number is added once, with a sign of its own, to one of four sums; the four results are these sums with the signs
// of a Hadamard matrix (Alon, Matias & Szegedy 1996; a number in one of several sums: Thorup & Zhang 2004).
//
// Sums of blocks keep their rounding errors (TwoSum, then one rounding). So do the sums within a block, but for types of
// at most 32 bits, which are exact in float64 unless the numbers of a lane span more than 2^26. With n numbers and
// u = 2^-53
//   |computed p_k - p_k| <= u |p_k| + (n u / 8)^2 l1 + (types of at most 32 bits) 4 u l1
// (Ogita, Rump & Oishi 2005, Sum2). Bits do not depend on the instruction set.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "elements.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FPNA_SIZES_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors pass between functions that are inlined, never between calls
#else
#define FPNA_SIZES_CLONES
#endif

struct Sizes {
    std::int64_t count = 0;
    double l1 = 0, largest = 0, p[4] = {};
};

namespace sizes {

constexpr int KEPT = 4, LANES = 8, ROWS = 8, BLOCK = LANES * ROWS;

typedef double Vector __attribute__((vector_size(64)));
typedef std::uint64_t Words __attribute__((vector_size(64)));

constexpr std::uint64_t SIGN = 1ull << 63;

// The finaliser of SplitMix64 (Steele, Lea & Flood 2014).
inline std::uint64_t mixed(std::uint64_t word) {
    word += 0x9E3779B97F4A7C15ull;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ull;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBull;
    return word ^ (word >> 31);
}

// Number i stands in block i / 64, row i % 64 / 8, lane i % 8. Bit 8 lane + row of mixed(2 block) is its sign; its sum is
// (lane + turn) % 4, where the turn is the last two bits of mixed(2 block + 1). Sums of the same turn share a vector.
struct Sums {
    Vector sum[4], error[4], l1[2], largest[2];
    std::uint64_t blocks;
};

template <typename Element>
inline double number(const unsigned char *place) {
    Element x;
    std::memcpy(&x, place, sizeof x);
    return double(x);
}

template <>
inline double number<float16>(const unsigned char *place) {
    float16 x;
    std::memcpy(&x, place, sizeof x);
    return double(widen(x));
}

template <>
inline double number<bfloat16>(const unsigned char *place) {
    bfloat16 x;
    std::memcpy(&x, place, sizeof x);
    return double(widen(x));
}

// Whether a few numbers of this type are added as they are.
template <typename Element>
constexpr bool NARROW = sizeof(Element) <= 4;

// sum += x, and the rounding error to `error` (TwoSum: Knuth 1969).
template <typename Number>
inline __attribute__((always_inline)) void add_with_error(Number &sum, Number &error, Number x) {
    const Number next = sum + x, part = next - sum;
    error += (sum - (next - part)) + (x - part);
    sum = next;
}

// Adds `n` numbers: whole blocks, except at the end of an array. `EXACT`: keeps rounding errors within a block.
template <typename Element, bool EXACT = !NARROW<Element>>
FPNA_SIZES_CLONES void add(Sums &to, const unsigned char *from, std::size_t n) {
    alignas(64) double block[BLOCK];
    Vector l1[2] = {to.l1[0], to.l1[1]}, largest[2] = {to.largest[0], to.largest[1]};
    for (std::size_t begin = 0; begin < n; begin += BLOCK, ++to.blocks) {
        if (n - begin < BLOCK) {
            std::memset(block, 0, sizeof block);
            for (std::size_t i = 0; i < n - begin; ++i) block[i] = number<Element>(from + (begin + i) * sizeof(Element));
        } else {
            for (std::size_t i = 0; i < BLOCK; ++i) block[i] = number<Element>(from + (begin + i) * sizeof(Element));
        }
        const std::uint64_t word = mixed(2 * to.blocks), turn = mixed(2 * to.blocks + 1) & 3;
        const Words all = {word, word, word, word, word, word, word, word};
        const Words bits = all << (Words){56, 48, 40, 32, 24, 16, 8, 0};
        Vector sum[2], error[2] = {};  // of even and of odd rows: two chains of additions overlap
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) {
            Vector x;
            std::memcpy(&x, block + r * LANES, sizeof x);
            const Vector size = (Vector)((Words)x & ~SIGN);
            l1[r & 1] += size;
            largest[r & 1] = size > largest[r & 1] ? size : largest[r & 1];
            x = (Vector)((Words)x ^ ((bits << (7 - r)) & SIGN));
            if (r < 2)
                sum[r] = x;
            else if (EXACT)
                add_with_error(sum[r & 1], error[r & 1], x);
            else
                sum[r & 1] += x;
        }
        if (EXACT) {
            error[0] += error[1];
            add_with_error(sum[0], error[0], sum[1]);
            to.error[turn] += error[0];
        } else {
            sum[0] += sum[1];
        }
        add_with_error(to.sum[turn], to.error[turn], sum[0]);
    }
    for (int h = 0; h < 2; ++h) {
        to.l1[h] = l1[h];
        to.largest[h] = largest[h];
    }
}

inline double nan() { return double_of_bits(0x7FF8000000000000ull); }

// The sizes of up to KEPT numbers, which are kept. A single one needs no arithmetic, so that it raises no flag.
inline Sizes kept(const double *x, std::int64_t n) {
    Sizes sizes;
    sizes.count = n;
    bool unordered = false;
    for (std::int64_t i = 0; i < n; ++i) {
        sizes.p[i] = x[i];
        const double size = double_of_bits(bits_of(x[i]) & ~SIGN);
        unordered |= bits_of(size) > 0x7FF0000000000000ull;
        if (bits_of(size) > bits_of(sizes.largest)) sizes.largest = size;
        sizes.l1 = i ? sizes.l1 + size : size;
    }
    if (unordered) sizes.l1 = sizes.largest = nan();
    return sizes;
}

// The sizes of `n` numbers, from their sums.
inline Sizes rounded(const Sums &sums, std::int64_t n) {
    Sizes sizes;
    sizes.count = n;
    for (int j = 0; j < 2 * LANES; ++j) {
        sizes.l1 += sums.l1[j / LANES][j % LANES];
        const double largest = sums.largest[j / LANES][j % LANES];
        if (largest > sizes.largest) sizes.largest = largest;
    }
    if (sizes.l1 != sizes.l1) sizes.largest = sizes.l1 = nan();
    double sum[4] = {}, error[4] = {};
    for (int turn = 0; turn < 4; ++turn)
        for (int j = 0; j < LANES; ++j) {
            add_with_error(sum[(j + turn) % 4], error[(j + turn) % 4], sums.sum[turn][j]);
            error[(j + turn) % 4] += sums.error[turn][j];
        }
    for (int k = 0; k < 4; ++k) {
        double whole = 0, rest = 0;
        for (int j = 0; j < 4; ++j) {
            const bool minus = (k & j) == 1 || (k & j) == 2;  // of the Hadamard matrix: an odd number of bits in common
            add_with_error(whole, rest, minus ? -sum[j] : sum[j]);
            rest += minus ? -error[j] : error[j];
        }
        sizes.p[k] = whole + rest;
        if (!(sizes.l1 - sizes.l1 == 0)) sizes.p[k] = nan();
    }
    return sizes;
}

// The sizes of numbers of one type in several pieces, at any addresses: the same as in one piece.
class Measured {
  public:
    template <typename Element>
    void take(const void *start, std::size_t n) {
        const auto *from = static_cast<const unsigned char *>(start);
        count_ += std::int64_t(n);
        if (!waiting_ && n >= BLOCK) {
            const std::size_t whole = n / BLOCK * BLOCK;
            add<Element>(sums_, from, whole);
            from += whole * sizeof(Element);
            n -= whole;
        }
        for (; n; --n, from += sizeof(Element)) {
            exact_ = !NARROW<Element>;
            block_[waiting_++] = number<Element>(from);
            if (waiting_ < BLOCK) continue;
            flush();
        }
    }

    Sizes sizes() {
        if (count_ <= KEPT) return kept(block_, count_);
        flush();
        return rounded(sums_, count_);
    }

  private:
    void flush() {
        const auto *from = reinterpret_cast<const unsigned char *>(block_);
        exact_ ? add<double, true>(sums_, from, waiting_) : add<double, false>(sums_, from, waiting_);
        waiting_ = 0;
    }

    Sums sums_ = {};
    std::int64_t count_ = 0;
    std::size_t waiting_ = 0;
    bool exact_ = true;
    double block_[BLOCK];
};

// The block that is taken of `sample` blocks, the `group`-th so many; the last group may have fewer.
inline std::uint64_t chosen(std::uint64_t group, std::uint64_t sample, std::uint64_t blocks) {
    const std::uint64_t first = group * sample, here = blocks - first < sample ? blocks - first : sample;
    return first + mixed(~group) % here;
}

// The sizes of `n` contiguous numbers, at any address. `sample` above 1: of one block among so many.
template <typename Element>
Sizes of(const void *start, std::int64_t n, std::int64_t sample = 1) {
    const auto *from = static_cast<const unsigned char *>(start);
    if (n <= KEPT) {
        double x[KEPT];
        for (std::int64_t i = 0; i < n; ++i) x[i] = number<Element>(from + std::size_t(i) * sizeof(Element));
        return kept(x, n);
    }
    Sums sums = {};
    if (sample <= 1) {
        add<Element>(sums, from, std::size_t(n));
        return rounded(sums, n);
    }
    const std::uint64_t numbers = std::uint64_t(n), blocks = (numbers + BLOCK - 1) / BLOCK, every = std::uint64_t(sample);
    for (std::uint64_t group = 0; group * every < blocks; ++group) {
        const std::uint64_t first = chosen(group, every, blocks) * BLOCK;
        sums.blocks = first / BLOCK;
        add<Element>(sums, from + first * sizeof(Element), std::min<std::uint64_t>(BLOCK, numbers - first));
    }
    return rounded(sums, n);
}

}  // namespace sizes
