// Exponential and logarithm of attention: the same operations in the same order for numbers, for vectors and on a GPU.
//
// No include guard: native/contract_attention_rows.hpp includes it once for each instruction set, cuda/attention.cu once.
// The includer defines fused(a, b, c): a * b + c rounded once; power_of_two(n + SHIFT); and split(x, f), which returns
// e of x = 2^e f with f in [sqrt(1/2), sqrt(2)). T is the type of a number, V that type or a vector of it.

template <typename T>
struct Series;
template <>
struct Series<float> {
    static constexpr int EXP = 7, LOG = 4;                                     // degrees
    static constexpr float SHIFT = 0x1.8p23f, LOG2_E = 0x1.715476p0f;          // x + SHIFT has no places after the point
    static constexpr float LN2 = 0x1.62e43p-1f, LN2_REST = -0x1.05c61p-29f;    // their sum is ln 2
    static constexpr float LOW = -87, HIGH = 88;                               // of the exponential
};
template <>
struct Series<double> {
    static constexpr int EXP = 13, LOG = 10;
    static constexpr double SHIFT = 0x1.8p52, LOG2_E = 0x1.71547652b82fep0;
    static constexpr double LN2 = 0x1.62e42fefa39efp-1, LN2_REST = 0x1.abc9e3b39803fp-56;
    static constexpr double LOW = -708, HIGH = 709;
};

// e^x; +0 below LOW, where e^x is nearly subnormal, and e^HIGH above HIGH. With n the whole number next to x / ln 2 and
// r = x - n ln 2 it is 2^n times the Taylor polynomial in r, by Horner's rule.
template <typename T, typename V>
FPNA_EACH V exponential(V x) {
    using S = Series<T>;
    const V high = V{} + S::HIGH;
    const V most = x > high ? high : x;
    const V shifted = fused(most, V{} + S::LOG2_E, V{} + S::SHIFT);
    const V n = S::SHIFT - shifted;  // with its sign turned
    const V r = fused(n, V{} + S::LN2_REST, fused(n, V{} + S::LN2, most));
    T factorial = 1;
    for (int k = 2; k <= S::EXP; ++k) factorial *= T(k);
    V sum = V{} + T(1) / factorial;
#pragma GCC unroll 16
    for (int k = S::EXP; k > 0; --k) {
        factorial /= T(k);
        sum = fused(sum, r, V{} + T(1) / factorial);
    }
    return x < V{} + S::LOW ? V{} : sum * power_of_two(shifted);
}

// log x of x >= 1, finite: with s = (f - 1) / (f + 1) it is e ln 2 + 2 s (1 + s^2 / 3 + s^4 / 5 + ...).
template <typename T, typename V>
FPNA_EACH V logarithm(V x) {
    using S = Series<T>;
    V f;
    const V e = split(x, f), s = (f - T(1)) / (f + T(1)), square = s * s, twice = s + s;
    V sum = V{} + T(1) / T(2 * S::LOG + 1);
#pragma GCC unroll 16
    for (int k = S::LOG - 1; k > 0; --k) sum = fused(sum, square, V{} + T(1) / T(2 * k + 1));
    return fused(e, V{} + S::LN2, fused(e, V{} + S::LN2_REST, fused(twice * square, sum, twice)));
}
