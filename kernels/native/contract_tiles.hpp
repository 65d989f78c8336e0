// The tiles of products for one instruction set: contract_tiles.cpp includes this file once for each, inside a namespace
// and under a target of its own (no include guard, and nothing is included from here).
//
// BYTES: of a vector; ROWS: at most of a tile, so that its sums of two vectors each stay in registers; fused(a, b, c):
// a * b + c of vectors, rounded once.

template <typename T>
struct Of;
template <>
struct Of<float> {
    typedef float Vector __attribute__((vector_size(BYTES)));
    typedef int Whole __attribute__((vector_size(BYTES)));
};
template <>
struct Of<double> {
    typedef double Vector __attribute__((vector_size(BYTES)));
    typedef long long Whole __attribute__((vector_size(BYTES)));
};
template <typename T>
using Vector = typename Of<T>::Vector;
template <typename T>
constexpr int LANES = BYTES / sizeof(T);

template <typename T>
FPNA_INLINE Vector<T> load(const T *from) {
    Vector<T> v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}

template <typename T>
FPNA_INLINE void store(T *to, const Vector<T> &v) {
    __builtin_memcpy(to, &v, sizeof v);
}

// Adds the terms of a tile to `sums`, by the tables of places.
template <typename T, int ROWS_NOW, int VECTORS>
FPNA_INLINE void add_terms(const Tile<T> &t, Vector<T> (&sums)[ROWS_NOW][VECTORS]) {
    const T *a[ROWS_NOW];
#pragma GCC unroll 16
    for (int i = 0; i < ROWS_NOW; ++i) a[i] = t.a[i];
    const T *fetched = t.b + t.ahead;
    const i64 *b_at = t.b_at + t.first;
    for (const i64 *a_at = t.a_at + t.first, *end = a_at + t.depth; a_at < end; ++a_at, ++b_at) {
        const i64 at = *a_at;
        const T *b = t.b + *b_at;
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; ++j) __builtin_prefetch(fetched + b_at[LOOK] + j * LANES<T>);
        Vector<T> factor[VECTORS];
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; ++j) factor[j] = load<T>(b + j * LANES<T>);
#pragma GCC unroll 16
        for (int i = 0; i < ROWS_NOW; ++i) {
            const Vector<T> all = a[i][at] - Vector<T>{};  // minus +0.0 keeps every bit, of -0.0 too
#pragma GCC unroll 2
            for (int j = 0; j < VECTORS; ++j) sums[i][j] = fused(all, factor[j], sums[i][j]);
        }
    }
}

// The same where steps are even. A pointer for every third row: a place is it plus 0, 1 or 2 times a register, so that
// all pointers stay in registers.
template <typename T, int ROWS_NOW, int VECTORS>
FPNA_INLINE void add_even_terms(const Tile<T> &t, Vector<T> (&sums)[ROWS_NOW][VECTORS]) {
    constexpr int THIRDS = (ROWS_NOW + 2) / 3;
    const i64 line = t.a_line, a_step = t.a_step, b_step = t.b_step;
    const T *a[THIRDS];
#pragma GCC unroll 6
    for (int g = 0; g < THIRDS; ++g) a[g] = t.a[0] + t.first * a_step + 3 * g * line;
    const T *b = t.b + t.first * b_step, *fetched = b + LOOK * b_step + t.ahead;
    for (i64 left = t.depth; left > 0; --left, b += b_step, fetched += b_step) {
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; ++j) __builtin_prefetch(fetched + j * LANES<T>);
        Vector<T> factor[VECTORS];
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; ++j) factor[j] = load<T>(b + j * LANES<T>);
#pragma GCC unroll 16
        for (int i = 0; i < ROWS_NOW; ++i) {
            const Vector<T> all = a[i / 3][i % 3 * line] - Vector<T>{};
#pragma GCC unroll 2
            for (int j = 0; j < VECTORS; ++j) sums[i][j] = fused(all, factor[j], sums[i][j]);
        }
#pragma GCC unroll 6
        for (int g = 0; g < THIRDS; ++g) a[g] += a_step;
    }
}

// A NaN gets no sign and payload: else the processor would choose which of several survives.
template <typename T, int ROWS_NOW, int VECTORS>
bool tile_of(const Tile<T> &t) {
    Vector<T> sums[ROWS_NOW][VECTORS];  // in registers: every loop over it is unrolled
#pragma GCC unroll 16
    for (int i = 0; i < ROWS_NOW; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; ++j) sums[i][j] = Vector<T>{};
    if (t.even)
        add_even_terms<T, ROWS_NOW, VECTORS>(t, sums);
    else
        add_terms<T, ROWS_NOW, VECTORS>(t, sums);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS_NOW; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; ++j) {
            Vector<T> &sum = sums[i][j];
            if (t.on) sum = load<T>(t.c + i * t.c_pitch + j * LANES<T>) + sum;
            if (!t.raw) sum = sum == sum ? sum : Vector<T>{} + T(__builtin_nanf(""));
        }
    const T *left = t.left;
    for (i64 n = 0; n < t.joins; ++n, left -= SLOT)
#pragma GCC unroll 16
        for (int i = 0; i < ROWS_NOW; ++i)
#pragma GCC unroll 2
            for (int j = 0; j < VECTORS; ++j) sums[i][j] = load<T>(left + i * t.left_pitch + j * LANES<T>) + sums[i][j];
#pragma GCC unroll 16
    for (int i = 0; i < ROWS_NOW; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; ++j) {  // plus +0.0: no zero has a sign
            if (t.joins) sums[i][j] = sums[i][j] + Vector<T>{};
            store<T>(t.c + i * t.c_pitch + j * LANES<T>, sums[i][j]);
        }
    if (!t.looks) return false;
    typename Of<T>::Whole numbers = ~typename Of<T>::Whole{};
#pragma GCC unroll 16
    for (int i = 0; i < ROWS_NOW; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; ++j) numbers &= sums[i][j] == sums[i][j];
    bool all = true;
    for (int i = 0; i < LANES<T>; ++i) all &= numbers[i] != 0;
    return !all;
}

template <typename T, int VECTORS, int... N>
FPNA_INLINE bool tile_with(const Tile<T> &t, i64 rows, std::integer_sequence<int, N...>) {
    static constexpr bool (*OF[])(const Tile<T> &) = {tile_of<T, N + 1, VECTORS>...};
    return OF[rows - 1](t);
}

template <typename T>
bool tile(const Tile<T> &t, i64 rows, i64 vectors) {
    return vectors == 1 ? tile_with<T, 1>(t, rows, std::make_integer_sequence<int, ROWS>{})
                        : tile_with<T, 2>(t, rows, std::make_integer_sequence<int, ROWS>{});
}

// ---- transposes ---------------------------------------------------------------------------------------------

template <typename T>
FPNA_INLINE void interleave(const Vector<T> &a, const Vector<T> &b, Vector<T> &low, Vector<T> &high) {
    constexpr int N = LANES<T>;
#if defined(__GNUC__) && !defined(__clang__)
    typename Of<T>::Whole first, second;
    for (int i = 0; i < N; ++i) {
        first[i] = i / 2 + (i % 2) * N;
        second[i] = first[i] + N / 2;
    }
    low = __builtin_shuffle(a, b, first);
    high = __builtin_shuffle(a, b, second);
#else
    for (int i = 0; i < N; ++i) {
        low[i] = i % 2 ? b[i / 2] : a[i / 2];
        high[i] = i % 2 ? b[N / 2 + i / 2] : a[N / 2 + i / 2];
    }
#endif
}

// Makes every column a row, by log2 LANES perfect shuffles of the rows; `next` is a place to work in.
template <typename T>
FPNA_INLINE void turn(Vector<T> *rows, Vector<T> *next) {
    constexpr int N = LANES<T>;
    for (int step = 1; step < N; step *= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < N / 2; ++i) interleave<T>(rows[i], rows[i + N / 2], next[2 * i], next[2 * i + 1]);
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) rows[i] = next[i];
    }
}

// to[k * width + i] = from[i * stride + k] for lines i < `lines` <= LANES, 0 for the others; LANES elements k.
template <typename T>
FPNA_INLINE void transpose_block(T *to, i64 width, const T *from, i64 stride, i64 lines) {
    constexpr int N = LANES<T>;
    Vector<T> rows[N], next[N];
    if (lines == N) {
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) rows[i] = load<T>(from + i * stride);
    } else {
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) rows[i] = i < lines ? load<T>(from + i * stride) : Vector<T>{};
    }
    turn<T>(rows, next);
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) store<T>(to + k * width, rows[k]);
}

// Blocks begin at lines of the cache, if the rows of all lines begin at the same place in one; the first and the last
// block may overlap their neighbours. A block of fewer lines than LANES writes beyond them: zeros of this k or, if it
// is the only one, elements that later blocks write again.
template <typename T>
void transpose(T *to, i64 width, const T *from, i64 stride, i64 count, i64 depth) {
    constexpr i64 N = LANES<T>, LINE = 64 / sizeof(T);
    const i64 whole = count / N * N, vectors = depth < N ? 0 : count <= N || width % N == 0 ? (count + N - 1) / N * N : whole;
    const bool together = stride % LINE == 0;
    const i64 first = together ? i64((64 - reinterpret_cast<std::uintptr_t>(from) % 64) % 64 / sizeof(T)) % N : 0;
    for (i64 next = 0; vectors && next < depth; next = next < first ? first : next + N) {
        const i64 k = std::min(next, depth - N);
        for (i64 i = 0; i < vectors; i += N) {
            // Into the second level: lines that are powers of two apart share few places in the first.
            for (i64 j = i; j < std::min(i + N, count); ++j) __builtin_prefetch(from + j * stride + k + 2 * N, 0, 2);
            transpose_block<T>(to + k * width + i, width, from + i * stride + k, stride, std::min(N, count - i));
        }
    }
    for (i64 k = 0; k < depth; ++k) {
        for (i64 i = vectors; i < count; ++i) to[k * width + i] = from[i * stride + k];
        for (i64 i = std::max(vectors, count); i < width; ++i) to[k * width + i] = 0;
    }
}

// ---- sums ---------------------------------------------------------------------------------------------------

template <typename T>
void add(T *to, i64 to_row, const T *from, i64 row, i64 rows, i64 columns) {
    constexpr i64 N = LANES<T>;
    for (; rows > 0; --rows, to += to_row, from += row) {
        i64 j = 0;
        for (; j + N <= columns; j += N) store<T>(to + j, load<T>(to + j) + load<T>(from + j) + Vector<T>{});
        for (; j < columns; ++j) to[j] = to[j] + from[j] + T(0);
    }
}

template <typename T>
void add_rows(T *__restrict sums, i64 n, const T *__restrict from, i64 row, i64 rows) {
    i64 i = 0;
    for (; i + 4 <= rows; i += 4, from += 4 * row) {
        const T *a = from, *b = a + row, *c = b + row, *d = c + row;
        for (i64 j = 0; j < n; ++j) sums[j] = sums[j] + a[j] + b[j] + c[j] + d[j];
    }
    for (; i < rows; ++i, from += row)
        for (i64 j = 0; j < n; ++j) sums[j] = sums[j] + from[j];
}

// A lane adds a line: blocks of LANES terms of each are transposed in registers.
template <typename T>
void add_lines(T *sums, i64 count, const T *const *from, i64 terms) {
    constexpr i64 N = LANES<T>;
    T held[N] = {};
    std::copy_n(sums, count, held);
    i64 k = 0;
    if (count > N / 4) {
        Vector<T> total = load<T>(held), rows[N], next[N];
        for (; k + N <= terms; k += N) {
#pragma GCC unroll 16
            for (int i = 0; i < N; ++i) rows[i] = load<T>(from[i < count ? i : 0] + k);
            turn<T>(rows, next);
#pragma GCC unroll 16
            for (int i = 0; i < N; ++i) total = total + rows[i];
        }
        store<T>(held, total);
    }
    for (; k < terms; ++k)
        for (i64 i = 0; i < count; ++i) held[i] = held[i] + from[i][k];
    std::copy_n(held, count, sums);
}

template <typename T>
constexpr Kernels<T> KERNELS = {LANES<T>, ROWS, tile<T>, transpose<T>, add<T>, add_rows<T>, add_lines<T>};
