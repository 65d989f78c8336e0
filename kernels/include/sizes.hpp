// The sizes of an array: how many numbers, the sum and the largest of their absolute values, and four sums with signs.
// Shared by the C++ kernels and the library that `fpna run` preloads. `kernels/sizes.py` defines the same in NumPy.
//
// Signed sums (a sketch: Alon, Matias & Szegedy 1996). With d = a - b, element by element:
//   |p_k(a) - p_k(b)| <= sum |d_i|     always, since every sign is +1 or -1
//   E[(p_k(a) - p_k(b))^2] = sum d_i^2 over signs that are drawn at random, which the hash below stands for
// Up to four numbers are kept as they are instead.
//
// Every sum keeps its rounding errors (TwoSum, then one rounding), so that with n numbers and u = 2^-53
//   |computed p_k - p_k| <= u |p_k| + (n u / 8)^2 l1      (Ogita, Rump & Oishi 2005, Sum2, in lanes of n / 8)
// where the second term stays below 2^-14 u l1 up to n = 2^26. Bits do not depend on the instruction set.
#pragma once
#include <cstdint>
#include <cstring>

#include "elements.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FPNA_SIZES_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
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

// Element i stands in block i / 64, row i % 64 / 8, lane i % 8; its sign in sum k is bit 8 lane + row of mixed(4 block + k).
struct Sums {
    Vector sum[4], error[4], l1, largest;
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

// Adds `n` numbers: whole blocks, except at the end of an array.
template <typename Element>
FPNA_SIZES_CLONES void add(Sums &to, const unsigned char *from, std::size_t n) {
    alignas(64) double block[BLOCK];
    for (std::size_t begin = 0; begin < n; begin += BLOCK) {
        const std::size_t here = n - begin < BLOCK ? n - begin : BLOCK;
        if (here < BLOCK) std::memset(block, 0, sizeof block);
        for (std::size_t i = 0; i < here; ++i) block[i] = number<Element>(from + (begin + i) * sizeof(Element));
        Vector rows[ROWS];
        std::memcpy(rows, block, sizeof rows);
        const std::size_t used = (here + LANES - 1) / LANES;
        for (std::size_t r = 0; r < used; ++r) {
            const Vector size = (Vector)((Words)rows[r] & ~SIGN);
            to.l1 += size;
            to.largest = size > to.largest ? size : to.largest;
        }
        for (int k = 0; k < 4; ++k) {
            const std::uint64_t word = mixed(4 * to.blocks + std::uint64_t(k));
            const Words bits = {word << 56, word << 48, word << 40, word << 32, word << 24, word << 16, word << 8, word};
            Vector sum = to.sum[k], error = to.error[k];
            for (std::size_t r = 0; r < used; ++r) {
                const Vector x = (Vector)((Words)rows[r] ^ ((bits << (7 - r)) & SIGN));
                const Vector next = sum + x, part = next - sum;
                error += (sum - (next - part)) + (x - part);
                sum = next;
            }
            to.sum[k] = sum;
            to.error[k] = error;
        }
        ++to.blocks;
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
    for (int j = 0; j < LANES; ++j) {
        sizes.l1 += sums.l1[j];
        if (sums.largest[j] > sizes.largest) sizes.largest = sums.largest[j];
    }
    if (sizes.l1 != sizes.l1) sizes.largest = sizes.l1 = nan();
    for (int k = 0; k < 4; ++k) {
        double sum = 0, error = 0;
        for (int j = 0; j < LANES; ++j) {
            const double next = sum + sums.sum[k][j], part = next - sum;
            error += ((sum - (next - part)) + (sums.sum[k][j] - part)) + sums.error[k][j];
            sum = next;
        }
        sizes.p[k] = sum + error;
        if (!(sizes.l1 - sizes.l1 == 0)) sizes.p[k] = nan();
    }
    return sizes;
}

// The sizes of numbers in several pieces, at any addresses: the same as in one piece.
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
        add<double>(sums_, reinterpret_cast<const unsigned char *>(block_), waiting_);
        waiting_ = 0;
    }

    Sums sums_ = {};
    std::int64_t count_ = 0;
    std::size_t waiting_ = 0;
    double block_[BLOCK];
};

// The sizes of `n` contiguous numbers, at any address.
template <typename Element>
Sizes of(const void *start, std::int64_t n) {
    const auto *from = static_cast<const unsigned char *>(start);
    if (n <= KEPT) {
        double x[KEPT];
        for (std::int64_t i = 0; i < n; ++i) x[i] = number<Element>(from + std::size_t(i) * sizeof(Element));
        return kept(x, n);
    }
    Sums sums = {};
    add<Element>(sums, from, std::size_t(n));
    return rounded(sums, n);
}

}  // namespace sizes
