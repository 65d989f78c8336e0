// The kernels of static schedules for one instruction set: static.cpp includes this file once for each by per_level.hpp,
// inside a namespace and under a target of its own (no include guard, and nothing is included from here).
//
// LANES: the widest vector, in floats; ROWS_1, ROWS_2: rows whose accumulators fit into the registers with one and
// with two vectors of each. These decide speed alone: a lane holds one output, and no operation joins lanes, so that an
// output sees the same additions in the same order at any width.

constexpr int LANES = BYTES / sizeof(float);
typedef float Widest __attribute__((vector_size(BYTES)));
typedef int Whole __attribute__((vector_size(BYTES)));
constexpr int ROWS_1 = REGISTERS == 32 ? 14 : 12, ROWS_2 = REGISTERS == 32 ? 12 : 6;

template <typename Vector>
FPNA_INLINE Vector load(const float *from) {
    Vector v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}

template <typename Vector>
FPNA_INLINE void store(float *to, const Vector &v) {
    __builtin_memcpy(to, &v, sizeof v);
}

// ---- sums of products ---------------------------------------------------------------------------------------
//
// y[m][j] = bias[j] + sum over k, ascending, of w[k][j] * x[m * step + at[k]]: a linear layer (at[k] = k) as well as a
// convolution (at[k]: the place of element k of the window, from the first). Each product is rounded, then added.

template <typename Vector, int VECTORS, int ROWS>
void rows_of(const Terms &t) {
    constexpr int WIDTH = sizeof(Vector) / sizeof(float);
    const i64 step = t.step, pitch = t.pitch, y_step = t.y_step;
    const float *w = t.weights;
    Vector sums[ROWS][VECTORS];  // in registers: every loop over it is unrolled
#pragma GCC unroll 16
    for (int m = 0; m < ROWS; ++m)
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; ++j) sums[m][j] = load<Vector>(t.bias + j * WIDTH);
    for (const i64 *at = t.at, *end = at + t.terms; at < end; ++at, w += pitch) {
        const float *x = t.x + *at;
        Vector factor[VECTORS];
        for (int j = 0; j < VECTORS; ++j) factor[j] = load<Vector>(w + j * WIDTH);
#pragma GCC unroll 16
        for (int m = 0; m < ROWS; ++m)
#pragma GCC unroll 2
            for (int j = 0; j < VECTORS; ++j) sums[m][j] += factor[j] * x[m * step];
    }
    float *y = t.y;
    const Vector least = Vector{} + (t.relu ? 0.0f : -__builtin_inff());
#pragma GCC unroll 16
    for (int m = 0; m < ROWS; ++m, y += y_step)
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; ++j)
            store(y + j * WIDTH, sums[m][j] < least ? least : sums[m][j]);  // keeps NaN and -0.0
}

template <typename Vector, int VECTORS, int... M>
FPNA_INLINE void some_rows(const Terms &t, i64 rows, std::integer_sequence<int, M...>) {
    static constexpr Rows OF[] = {rows_of<Vector, VECTORS, M + 1>...};
    OF[rows - 1](t);
}

// Computes `rows` rows, in groups of about the same size.
template <typename Vector, int VECTORS, int MOST>
void all_rows(Terms t, i64 rows) {
    for (i64 groups = (rows + MOST - 1) / MOST; groups > 0; --groups) {
        const i64 now = (rows + groups - 1) / groups;
        some_rows<Vector, VECTORS>(t, now, std::make_integer_sequence<int, MOST>{});
        t.x += now * t.step;
        t.y += now * t.y_step;
        rows -= now;
    }
}

// Columns of one panel: 8, 16 or 32, in vectors of the widest kind.
FPNA_INLINE void panel(Terms t, i64 rows, i64 columns) {
    while (columns > 0) {
        i64 now;
        if constexpr (LANES > 8) {
            now = columns;
            if (columns == 32)
                all_rows<Widest, 2, ROWS_2>(t, rows);
            else if (columns == 16)
                all_rows<Widest, 1, ROWS_1>(t, rows);
            else
                all_rows<Eight, 1, ROWS_1>(t, rows);
        } else {
            now = columns < 2 * LANES ? LANES : 2 * LANES;
            if (now == LANES)
                all_rows<Widest, 1, ROWS_1>(t, rows);
            else
                all_rows<Widest, 2, ROWS_2>(t, rows);
        }
        t.weights += now;
        t.bias += now;
        t.y += now;
        columns -= now;
    }
}

// ---- functions of one element -------------------------------------------------------------------------------
//
// Polynomials with additions and multiplications alone, after Moshier's Cephes (single precision), so that no bit comes
// from a library. `tests/kernels/test_inference_functions.py` measures their errors.

FPNA_INLINE Widest absolute(Widest x) { return (Widest)((Whole)x & 0x7fffffff); }
FPNA_INLINE Widest with_sign(Widest x, Widest of) { return (Widest)((Whole)x | ((Whole)of & ~0x7fffffff)); }

FPNA_INLINE Widest exponential(Widest x) {
    x = x > 89.0f ? Widest{} + 89.0f : x;
    x = x < -104.0f ? Widest{} - 104.0f : x;
    constexpr float TO_INTEGER = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const Widest shifted = x * 1.44269504f + TO_INTEGER;
    const Widest n = shifted - TO_INTEGER;
    const Whole power = (Whole)shifted - 0x4b400000;
    const Widest r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    Widest p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const Widest y = (p * (r * r) + r) + 1.0f;
    const Whole half = power >> 1;  // in two steps, of which the first is exact: one rounding, of subnormals too
    return (y * (Widest)((half + 127) << 23)) * (Widest)((power - half + 127) << 23);
}

FPNA_INLINE Widest hyperbolic_tangent(Widest x) {
    const Widest a = absolute(x), z = a * a;
    Widest p = z * -5.70498872745e-3f + 2.06390887954e-2f;
    p = p * z + -5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z + -3.33332819422e-1f;
    const Widest small = (p * z) * a + a, large = 1.0f - 2.0f / (exponential(a + a) + 1.0f);
    return with_sign(a < 0.625f ? small : large, x);  // NaN takes `large`
}

FPNA_INLINE Widest logistic(Widest x) {
    const Widest e = exponential(-absolute(x));
    return (x < 0.0f ? e : Widest{} + 1.0f) / (1.0f + e);
}

FPNA_INLINE Widest logarithm(Widest x) {
    const Whole tiny = x < 1.17549435e-38f;
    const Widest scaled = tiny ? x * 8388608.0f : x;
    const Whole bits = (Whole)scaled;
    // x = m * 2^e with m in [sqrt(1/2), sqrt(2))
    const Whole e = ((bits - 0x3f3504f3) >> 23) - (tiny & 23);
    const Widest m = (Widest)(((bits - 0x3f3504f3) & 0x7fffff) + 0x3f3504f3) - 1.0f, n = __builtin_convertvector(e, Widest);
    const Widest z = m * m;
    Widest p = m * 7.0376836292e-2f + -1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m + -1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m + -1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m + -2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    Widest y = (p * m) * z;
    y = y + n * -2.12194440e-4f;
    y = y - z * 0.5f;
    Widest log = (m + y) + n * 0.693359375f;
    log = x < __builtin_inff() ? log : x;  // infinity and NaN
    log = x < 0.0f ? Widest{} + __builtin_nanf("") : log;
    return x == 0.0f ? Widest{} - __builtin_inff() : log;
}

FPNA_INLINE bool any(Whole mask) {
    long long parts[sizeof mask / sizeof(long long)], either = 0;
    __builtin_memcpy(parts, &mask, sizeof mask);
    for (const long long part : parts) either |= part;
    return either;
}

// erf by a polynomial below 1, else by erfc(a) = exp(-a^2) / a times a polynomial in 1 / a^2, of two pieces; `power`
// returns exp(-a^2), and is not called where every element is below 1. What no element of a vector takes is left out.
template <typename Power>
FPNA_INLINE Widest error_function(Widest x, Power power) {
    const Widest a = absolute(x), z = a * a;
    Widest p = z * 7.853861353153693e-5f + -8.010193625184903e-4f;
    p = p * z + 5.188327685732524e-3f;
    p = p * z + -2.685381193529856e-2f;
    p = p * z + 1.128358514861418e-1f;
    p = p * z + -3.761262582423300e-1f;
    p = p * z + 1.128379165726710f;
    const Widest small = p * a;
    if (!any(~(Whole)(a < 1.0f))) return with_sign(small, x);
    const Widest b = a > 4.0f ? Widest{} + 4.0f : a, q = 1.0f / b, w = q * q;  // erf(4) is 1 in float
    Widest near = w * 2.326819970068386e-2f + -1.387039388740657e-1f;
    near = near * w + 3.687424674597105e-1f;
    near = near * w + -5.824733027278666e-1f;
    near = near * w + 6.210004621745983e-1f;
    near = near * w + -4.944515323274145e-1f;
    near = near * w + 3.404879937665872e-1f;
    near = near * w + -2.741127028184656e-1f;
    near = near * w + 5.638259427386472e-1f;
    if (!any(~(Whole)(a < 2.0f))) return with_sign(a < 1.0f ? small : 1.0f - (power(z) * q) * near, x);
    Widest far = w * -1.047766399936249e+1f + 1.297719955372516e+1f;
    far = far * w + -7.495518717768503f;
    far = far * w + 2.921019019210786f;
    far = far * w + -1.015265279202700f;
    far = far * w + 4.218463358204948e-1f;
    far = far * w + -2.820767439740514e-1f;
    far = far * w + 5.641895067754075e-1f;
    const Widest rest = (power(z) * q) * (b < 2.0f ? near : far);
    return with_sign(a < 1.0f ? small : 1.0f - rest, x);  // NaN takes `rest`
}

FPNA_INLINE Widest error_function(Widest x) {
    return error_function(x, [](Widest z) FPNA_INLINE_LAMBDA { return exponential(-z); });
}

// GELU, x (1 + erf(x / sqrt 2)) / 2
FPNA_INLINE Widest gelu(Widest x) { return x * (0.5f * (1.0f + error_function(x * 0.707106781f))); }

// Its derivative: the share of x that it keeps, and x times the density of the normal distribution
FPNA_INLINE Widest gelu_slope(Widest x) {
    const Widest a = x * 0.707106781f, power = exponential(-(a * a));
    const Widest share = 0.5f * (1.0f + error_function(a, [&](Widest) FPNA_INLINE_LAMBDA { return power; }));
    return share + x * (power * 0.398942280f);
}

FPNA_INLINE Widest square_root(Widest x) {
    for (int i = 0; i < LANES; ++i) x[i] = __builtin_sqrtf(x[i]);
    return x;
}

template <typename F>
FPNA_INLINE void each(const float *x, float *y, i64 n, F f) {
    for (i64 i = 0; i < n; i += LANES) store(y + i, f(load<Widest>(x + i)));
}

inline void map(i64 function, const float *x, float *y, i64 n) {
    switch (function) {
#define FPNA_CASE(NAME, VALUE) \
    case NAME: return each(x, y, n, [&](Widest v) FPNA_INLINE_LAMBDA { return VALUE; })
        FPNA_CASE(RELU, v < 0.0f ? Widest{} : v);  // keeps NaN and -0.0
        FPNA_CASE(EXP, exponential(v));
        FPNA_CASE(TANH, hyperbolic_tangent(v));
        FPNA_CASE(SIGMOID, logistic(v));
        FPNA_CASE(LOG, logarithm(v));
        FPNA_CASE(SQRT, square_root(v));
        FPNA_CASE(NEGATE, -v);
        FPNA_CASE(ERF, error_function(v));
        FPNA_CASE(GELU, gelu(v));
        FPNA_CASE(GELU_SLOPE, gelu_slope(v));
#undef FPNA_CASE
    }
}

// ---- two operands -------------------------------------------------------------------------------------------

template <typename F>
FPNA_INLINE void with_each(const float *a, const float *b, float *y, i64 rows, i64 pitch, i64 mode, F f) {
    for (i64 r = 0; r < rows; ++r, a += pitch, y += pitch) {
        i64 i = 0;
        if (mode == FULL) {
            const float *other = b + r * pitch;
            for (; i + LANES <= pitch; i += LANES) store(y + i, f(load<Widest>(a + i), load<Widest>(other + i)));
            for (; i < pitch; i += 8) store(y + i, f(load<Eight>(a + i), load<Eight>(other + i)));
        } else {
            const float other = mode == COLUMN ? b[r] : b[0];
            for (; i + LANES <= pitch; i += LANES) store(y + i, f(load<Widest>(a + i), Widest{} + other));
            for (; i < pitch; i += 8) store(y + i, f(load<Eight>(a + i), Eight{} + other));
        }
    }
}

// pitch: a multiple of 8
inline void combine(i64 function, const float *a, const float *b, float *y, i64 rows, i64 pitch, i64 mode) {
    switch (function) {
#define FPNA_CASE(NAME, VALUE) \
    case NAME: return with_each(a, b, y, rows, pitch, mode, [&](const auto &p, const auto &q) FPNA_INLINE_LAMBDA { return VALUE; })
        FPNA_CASE(ADD, p + q);
        FPNA_CASE(SUBTRACT, p - q);
        FPNA_CASE(SUBTRACT_FROM, q - p);
        FPNA_CASE(MULTIPLY, p * q);
        FPNA_CASE(DIVIDE, p / q);
        FPNA_CASE(DIVIDE_INTO, q / p);
        FPNA_CASE(MAXIMUM, (q > p) | (q != q) ? q : p);  // NaN if one is
#undef FPNA_CASE
    }
}

// ---- pooling ------------------------------------------------------------------------------------------------

template <bool AVERAGE>
FPNA_INLINE void pool(const Pool &p, const float *x, float *y) {
    const i64 c = p.channels;
    const float count = float(p.high * p.wide);
    for (i64 r = 0; r < p.rows; ++r)
        for (i64 s = 0; s < p.columns; ++s, y += c) {
            const float *first = x + r * p.down * p.x_row + s * p.right * c;
            for (i64 i = 0; i < c; i += 8) {
                Eight v = AVERAGE ? Eight{} : load<Eight>(first + i);
                for (i64 k = 0; k < p.high; ++k)
                    for (i64 l = 0; l < p.wide; ++l) {
                        const Eight other = load<Eight>(first + k * p.x_row + l * c + i);
                        if (AVERAGE)
                            v += other;
                        else
                            v = (other > v) | (other != other) ? other : v;
                    }
                store(y + i, AVERAGE ? v / count : v);
            }
        }
}

inline void pool_max(const Pool &p, const float *x, float *y) { pool<false>(p, x, y); }
inline void pool_average(const Pool &p, const float *x, float *y) { pool<true>(p, x, y); }

inline void products(const Terms &t, i64 rows, i64 columns) { panel(t, rows, columns); }

constexpr Level LEVEL = {LANES, ROWS_1, ROWS_2, products, map, combine, pool_max, pool_average};
