// Vectors combined element by element, left to right: out[i] = ((s0[i] op s1[i]) op s2[i]) ... for
// kernels/allreduce/operations.py. All sources are read in one pass and the result is written once.
//
// A floating-point zero becomes +0.0 whatever its sign, so that no order shows in it. Narrow types are combined in
// float32 and rounded at every step, as NumPy does; float32 has more than twice their digits and two bits, so that this
// rounds like the narrow type itself (Figueroa 1995).
#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "../include/narrow.hpp"
#include "kernels.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define FPNA_F16C __attribute__((target("avx,f16c")))
#endif

namespace {

using i64 = std::int64_t;
constexpr std::size_t TILE = 1024;  // elements kept in the L1 cache while all sources are combined with them

// a = a op b, of numbers or of vectors of them.
struct Add {
    template <typename T>
    static void into(T &a, const T &b) { a = a + b; }
    static void into(i64 &a, const i64 &b) { a = i64(std::uint64_t(a) + std::uint64_t(b)); }
};

struct Multiply {
    template <typename T>
    static void into(T &a, const T &b) { a = a * b; }
    static void into(i64 &a, const i64 &b) { a = i64(std::uint64_t(a) * std::uint64_t(b)); }
};

// A NaN on either side is kept.
struct Least {
    template <typename T>
    static void into(T &a, const T &b) { a = (a < b) | (a != a) ? a : b; }
};

struct Greatest {
    template <typename T>
    static void into(T &a, const T &b) { a = (a > b) | (a != a) ? a : b; }
};

// How an element is held while it is combined.
template <typename Element>
struct Held {
    using type = float;
    static float in(Element x) { return widen(x); }
    static Element out(float x) { return narrow(x, Element()); }
    static float rounded(float x) { return widen(narrow(x, Element())); }
};

template <typename Number>
struct AsItIs {
    using type = Number;
    static Number in(Number x) { return x; }
    static Number out(Number x) { return x; }
    static Number rounded(Number x) { return x; }
};

template <>
struct Held<double> : AsItIs<double> {};
template <>
struct Held<float> : AsItIs<float> {};
template <>
struct Held<i64> : AsItIs<i64> {};

template <typename Element, typename Op>
inline __attribute__((always_inline)) typename Held<Element>::type combined(typename Held<Element>::type a, Element b) {
    Op::into(a, Held<Element>::in(b));
    return Held<Element>::rounded(a);
}

template <typename Element, typename Op>
inline __attribute__((always_inline)) void combine_tiles(const Element *const *sources, std::size_t count,
                                                         Element *out, std::size_t n) {
    using H = Held<Element>;
    using T = typename H::type;
    const T zero = T(0);
    if (count == 1) {
        for (std::size_t i = 0; i < n; ++i) out[i] = H::out(H::in(sources[0][i]) + zero);
        return;
    }
    if (count == 2) {
        const Element *a = sources[0], *b = sources[1];
        for (std::size_t i = 0; i < n; ++i) out[i] = H::out(combined<Element, Op>(H::in(a[i]), b[i]) + zero);
        return;
    }
    T total[TILE];
    for (std::size_t begin = 0; begin < n; begin += TILE) {
        const std::size_t m = std::min(TILE, n - begin);
        const Element *a = sources[0] + begin, *b = sources[1] + begin;
        for (std::size_t i = 0; i < m; ++i) total[i] = combined<Element, Op>(H::in(a[i]), b[i]);
        for (std::size_t k = 2; k + 1 < count; ++k) {
            const Element *c = sources[k] + begin;
            for (std::size_t i = 0; i < m; ++i) total[i] = combined<Element, Op>(total[i], c[i]);
        }
        const Element *last = sources[count - 1] + begin;
        for (std::size_t i = 0; i < m; ++i) out[begin + i] = H::out(combined<Element, Op>(total[i], last[i]) + zero);
    }
}

// target_clones does not go with templates, so each pair of type and operation has a function of its own.
#define FPNA_COMBINE(NAME, ELEMENT, OP)                                                                              \
    FPNA_CLONES void NAME(const ELEMENT *const *sources, std::size_t count, ELEMENT *out, std::size_t n) {            \
        combine_tiles<ELEMENT, OP>(sources, count, out, n);                                                           \
    }
#define FPNA_COMBINE_ALL(SUFFIX, ELEMENT)             \
    FPNA_COMBINE(add_##SUFFIX, ELEMENT, Add)           \
    FPNA_COMBINE(multiply_##SUFFIX, ELEMENT, Multiply) \
    FPNA_COMBINE(least_##SUFFIX, ELEMENT, Least)       \
    FPNA_COMBINE(greatest_##SUFFIX, ELEMENT, Greatest)
FPNA_COMBINE_ALL(double, double)
FPNA_COMBINE_ALL(float, float)
FPNA_COMBINE_ALL(half, float16)
FPNA_COMBINE_ALL(brain, bfloat16)
FPNA_COMBINE_ALL(integer, i64)

#ifdef FPNA_F16C
// The same by the processor's conversions, which round to nearest even and make NaN quiet, as `widen` and `narrow` do.
template <typename Op, void (*WITHOUT)(const float16 *const *, std::size_t, float16 *, std::size_t)>
FPNA_F16C void combine_halves(const float16 *const *sources, std::size_t count, float16 *out, std::size_t n) {
    constexpr std::size_t WIDTH = 8;
    typedef float Floats __attribute__((vector_size(32)));
    const auto at = [](const float16 *x) { return reinterpret_cast<const __m128i *>(x); };
    std::size_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) {
        Floats total = _mm256_cvtph_ps(_mm_loadu_si128(at(sources[0] + i)));
        for (std::size_t k = 1; k < count; ++k) {
            const Floats next = _mm256_cvtph_ps(_mm_loadu_si128(at(sources[k] + i)));
            Op::into(total, next);
            total = _mm256_cvtph_ps(_mm256_cvtps_ph(total, _MM_FROUND_TO_NEAREST_INT));
        }
        const __m128i halves = _mm256_cvtps_ph(total + Floats{}, _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128(reinterpret_cast<__m128i *>(out + i), halves);
    }
    if (i == n) return;
    std::vector<const float16 *> rest(sources, sources + count);
    for (const float16 *&x : rest) x += i;
    WITHOUT(rest.data(), count, out + i, n - i);
}
#endif

using Combine = void (*)(const void *const *sources, std::size_t count, void *out, std::size_t n);

template <typename Element, void (*F)(const Element *const *, std::size_t, Element *, std::size_t)>
void untyped(const void *const *sources, std::size_t count, void *out, std::size_t n) {
    F(reinterpret_cast<const Element *const *>(sources), count, static_cast<Element *>(out), n);
}

template <typename Op, void (*WITHOUT)(const float16 *const *, std::size_t, float16 *, std::size_t)>
Combine of_halves() {
#ifdef FPNA_F16C
    if (__builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c"))
        return untyped<float16, combine_halves<Op, WITHOUT>>;
#endif
    return untyped<float16, WITHOUT>;
}

struct Row {
    const char *operation, *element;
    Combine function;
    std::size_t size;
};

#define FPNA_ROWS(ELEMENT, TYPE, SUFFIX)                                        \
    {"sum", ELEMENT, untyped<TYPE, add_##SUFFIX>, sizeof(TYPE)},                 \
        {"prod", ELEMENT, untyped<TYPE, multiply_##SUFFIX>, sizeof(TYPE)},       \
        {"min", ELEMENT, untyped<TYPE, least_##SUFFIX>, sizeof(TYPE)},           \
        {"max", ELEMENT, untyped<TYPE, greatest_##SUFFIX>, sizeof(TYPE)}
const Row ROWS[] = {FPNA_ROWS("float64", double, double), FPNA_ROWS("float32", float, float),
                    FPNA_ROWS("bfloat16", bfloat16, brain), FPNA_ROWS("int64", i64, integer),
                    {"sum", "float16", of_halves<Add, add_half>(), sizeof(float16)},
                    {"prod", "float16", of_halves<Multiply, multiply_half>(), sizeof(float16)},
                    {"min", "float16", of_halves<Least, least_half>(), sizeof(float16)},
                    {"max", "float16", of_halves<Greatest, greatest_half>(), sizeof(float16)}};

const Row &row_of(const std::string &operation, const std::string &element) {
    for (const Row &row : ROWS)
        if (operation == row.operation && element == row.element) return row;
    throw std::invalid_argument("no kernel combines " + element + " by " + operation);
}

void *checked(const Array &a, const Row &row, std::size_t n, bool written) {
    if (std::size_t(a.size()) != n || std::size_t(a.itemsize()) != row.size || !a.contiguous())
        throw std::invalid_argument("arrays to combine must be C-contiguous, of one length and of " + std::string(row.element));
    if (written && !a.writeable()) throw std::invalid_argument("the result is read-only");
    return const_cast<void *>(a.data());
}

}  // namespace

Combination::Combination(const std::string &operation, const std::string &element, const std::vector<Array> &sources,
                         const Array &out)
    : n_(out.size()) {
    const Row &row = row_of(operation, element);
    if (sources.empty()) throw std::invalid_argument("nothing to combine");
    function_ = row.function;
    target_ = checked(out, row, n_, true);
    for (const Array &source : sources) pointers_.push_back(checked(source, row, n_, false));
}

void combine_rows(const std::string &operation, const std::string &element, const Array &x, const Array &out) {
    const Row &row = row_of(operation, element);
    const std::size_t n = out.size(), count = x.shape(0);
    if (count < 1 || std::size_t(x.size()) != n * count || std::size_t(x.itemsize()) != row.size ||
        std::size_t(out.itemsize()) != row.size || !x.contiguous() || !out.contiguous() || !out.writeable())
        throw std::invalid_argument("rows to combine must be C-contiguous, each as long as the result, and of " +
                                    element);
    std::vector<const void *> pointers(count);
    for (std::size_t k = 0; k < count; ++k) pointers[k] = static_cast<const char *>(x.data()) + k * n * row.size;
    row.function(pointers.data(), count, out.mutable_data(), n);
}
