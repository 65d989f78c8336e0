// The kernels of attention for one instruction set: contract_attention_rows.cpp includes this file once for each, inside a
// namespace and under a target of its own (no include guard). Vectors are those of the tiles of products.
#include "contract_tiles.hpp"
#include "contract_partial.hpp"

// ---- chains -------------------------------------------------------------------------------------------------

template <typename T, int ROWS_NOW, int VECTORS>
void chains_of(const Chains<T> &t) {
    constexpr int N = LANES<T>;
    Vector<T> sums[ROWS_NOW][VECTORS];  // in registers: every loop over it is unrolled
#pragma GCC unroll 16
    for (int r = 0; r < ROWS_NOW; ++r)
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; ++j)
            sums[r][j] = t.begin == Begin::resume ? load<T>(t.c + r * t.c_row + j * N) : Vector<T>{};
    const T *a[ROWS_NOW];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS_NOW; ++r) a[r] = t.a + r * t.a_row;

    // Adds term k to the rows r in [low, high), or to all rows unless `some`.
    const auto term = [&](i64 k, auto some, i64 low, i64 high) __attribute__((always_inline)) {
        const i64 at = k * t.a_step;
        Vector<T> factor[VECTORS];
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; ++j) factor[j] = load<T>(t.b + k * t.b_row + j * N);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS_NOW; ++r) {
            if (some.value && (r < low || r >= high)) continue;
            const Vector<T> all = a[r][at] - Vector<T>{};  // minus +0.0 keeps every bit, of -0.0 too
#pragma GCC unroll 2
            for (int j = 0; j < VECTORS; ++j) sums[r][j] = fused(all, factor[j], sums[r][j]);
        }
    };
    for (i64 k = t.first; k < t.from; ++k) term(k, std::true_type{}, 0, k - t.diagonal + 1);
    for (i64 k = t.from; k < t.till; ++k) term(k, std::false_type{}, 0, 0);
    for (i64 k = t.till; k < t.last; ++k) term(k, std::true_type{}, k - t.diagonal, ROWS_NOW);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS_NOW; ++r)
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; ++j) {
            T *c = t.c + r * t.c_row + j * N;
            store<T>(c, t.begin == Begin::add ? load<T>(c) + sums[r][j] : sums[r][j]);
        }
}

template <typename T, int VECTORS, int... N>
FPNA_INLINE void chains_with(const Chains<T> &t, i64 rows, std::integer_sequence<int, N...>) {
    static constexpr void (*OF[])(const Chains<T> &) = {chains_of<T, N + 1, VECTORS>...};
    OF[rows - 1](t);
}

template <typename T>
void chains(const Chains<T> &t, i64 rows, i64 vectors) {
    if (vectors == 1)
        chains_with<T, 1>(t, rows, std::make_integer_sequence<int, ROWS>{});
    else
        chains_with<T, 2>(t, rows, std::make_integer_sequence<int, ROWS>{});
}

// ---- rows ---------------------------------------------------------------------------------------------------

template <typename T>
FPNA_INLINE Vector<T> numbered() {  // 0, 1, 2, ...
    Vector<T> v;
    for (int i = 0; i < LANES<T>; ++i) v[i] = T(i);
    return v;
}

template <typename T>
void softmax(const Scores<T> &of, T *over, T *logs) {
    constexpr int N = LANES<T>, PARTS = VECTORS_OF_SUMS<T>;
    const Vector<T> none = all<T>(-T(__builtin_inff())), scale = all(of.scale), places = numbered<T>();
    for (i64 i = 0; i < of.rows; ++i) {
        T *s = of.scores + i * of.pitch;
        const i64 count = of.count(i);
        Vector<T> most[PARTS], sums[PARTS];
        for (int p = 0; p < PARTS; ++p) most[p] = none, sums[p] = Vector<T>{};
        for (i64 j = 0; j < count; j += SUMS)
#pragma GCC unroll 8
            for (int p = 0; p < PARTS; ++p) {
                const i64 at = j + p * N;
                Vector<T> x = load<T>(s + at) * scale;
                if (at + N > count) x = places < all(T(count - at)) ? x : none;
                most[p] = x > most[p] ? x : most[p];
                store<T>(s + at, x);
            }
        // If all are -inf, nothing is subtracted, so that exponentials are 0.
        T top = joined<T>(most, [](T x, T y) { return x > y ? x : y; });
        top = top == none[0] ? T(0) : top;
        for (i64 j = 0; j < count; j += SUMS)
#pragma GCC unroll 8
            for (int p = 0; p < PARTS; ++p) {
                const i64 at = j + p * N;
                const Vector<T> x = exponential<T>(load<T>(s + at) - all(top));
                sums[p] = sums[p] + x;
                store<T>(s + at, x);
            }
        over[i] = joined<T>(sums, [](T x, T y) { return x + y; });
        logs[i] = top;
    }
    for (i64 i = 0; i < of.rows; i += N) {
        const Vector<T> sum = load<T>(over + i), log = load<T>(logs + i) + logarithm<T>(sum);
        store<T>(over + i, sum == T(0) ? Vector<T>{} : T(1) / sum);
        const Vector<T> other = sum == T(0) ? none : all(T(__builtin_nanf("")));
        store<T>(logs + i, sum > T(0) ? log + T(0) : other);
    }
}

template <typename T>
void weights(const Scores<T> &of, T *g, const T *logs, const T *dots) {
    for (i64 i = 0; i < of.rows; ++i) {
        T *s = of.scores + i * of.pitch, *to = g + i * of.pitch;
        const Vector<T> log = all(logs[i] == -T(__builtin_inff()) ? T(0) : logs[i]), dot = all(dots[i]), scale = all(of.scale);
        for (i64 j = 0, count = of.count(i); j < count; j += LANES<T>) {
            const Vector<T> p = exponential<T>(load<T>(s + j) * scale - log);
            store<T>(s + j, p);
            store<T>(to + j, p * (load<T>(to + j) - dot));
        }
    }
}

template <typename T>
void dots(T *to, const T *a, i64 a_row, const T *b, i64 b_row, i64 rows, i64 columns) {
    constexpr int N = LANES<T>, PARTS = VECTORS_OF_SUMS<T>;
    for (i64 i = 0; i < rows; ++i, a += a_row, b += b_row) {
        Vector<T> sums[PARTS] = {};
        for (i64 j = 0; j < columns; j += SUMS)
#pragma GCC unroll 8
            for (int p = 0; p < PARTS; ++p)
                if (j + p * N < columns) sums[p] = fused(load<T>(a + j + p * N), load<T>(b + j + p * N), sums[p]);
        to[i] = joined<T>(sums, [](T x, T y) { return x + y; });
    }
}

template <typename T>
void scaled(T *to, i64 to_row, const T *from, i64 from_row, i64 rows, i64 columns, const T *factors, i64 step) {
    for (i64 i = 0; i < rows; ++i, to += to_row, from += from_row) {
        const Vector<T> factor = all(factors[i * step]);
        for (i64 j = 0; j < columns; j += LANES<T>) {
            const Vector<T> x = load<T>(from + j) * factor + T(0);  // plus +0.0 makes +0.0 of -0.0
            const Vector<T> one = x == x ? x : all(T(__builtin_nanf("")));
            if (j + LANES<T> <= columns)
                store<T>(to + j, one);
            else
                __builtin_memcpy(to + j, &one, (columns - j) * sizeof(T));
        }
    }
}

template <typename T>
constexpr RowKernels<T> ROW_KERNELS = {LANES<T>, ROWS, chains<T>, softmax<T>, weights<T>, dots<T>, scaled<T>};
