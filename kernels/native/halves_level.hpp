// add_halves for one instruction set: halves.cpp includes this file once for each (per_level.hpp).
//
// Operations per vector: one load, one to take the upper bits, three additions. The adders are busy all the time; a plain
// loop waits for the second cache, and is hardly faster there.

typedef double Numbers __attribute__((vector_size(BYTES)));
typedef unsigned long long Bits __attribute__((vector_size(BYTES)));

constexpr std::size_t WIDTH = BYTES / sizeof(double), CHAINS = BYTES == 64 ? 2 : 4;  // each addition waits for the one before
constexpr std::size_t AHEAD = 16 << 10;  // bytes: cut.cpp says why

FPNA_INLINE void add_half(const Numbers &v, Numbers &upper, Numbers &lower) {
    const Numbers above = (Numbers)((Bits)v & (Bits{} + (~0ull << 27)));
    upper += above;
    lower += v - above;
}

FPNA_INLINE double sum_of(Numbers *chain) {
#pragma GCC unroll 4
    for (std::size_t c = 1; c < CHAINS; ++c) chain[0] += chain[c];
    double lane[WIDTH];
    std::memcpy(lane, chain, sizeof lane);
    for (std::size_t w = WIDTH / 2; w > 0; w /= 2)
        for (std::size_t l = 0; l < w; ++l) lane[l] += lane[l + w];
    return lane[0];
}

void add_halves(const double *x, std::size_t n, double *sums) {
    Numbers upper[CHAINS] = {}, lower[CHAINS] = {};
    std::size_t i = 0;
    for (; i + CHAINS * WIDTH <= n; i += CHAINS * WIDTH) {
#pragma GCC unroll 4
        for (std::size_t c = 0; c < CHAINS; ++c) {
            const double *from = x + i + c * WIDTH;
            if (c * BYTES % 64 == 0) __builtin_prefetch(reinterpret_cast<const char *>(from) + AHEAD);
            Numbers v;
            std::memcpy(&v, from, sizeof v);
            asm volatile("" : : : "memory");  // or compilers load v twice, which takes as long as all the rest
            add_half(v, upper[c], lower[c]);
        }
    }
    for (; i < n; i += WIDTH) {
        double some[WIDTH] = {};
        std::memcpy(some, x + i, (n - i < WIDTH ? n - i : WIDTH) * sizeof *x);
        Numbers v;
        std::memcpy(&v, some, sizeof v);
        add_half(v, upper[0], lower[0]);
    }
    sums[0] = sum_of(upper);
    sums[1] = sum_of(lower);
}
