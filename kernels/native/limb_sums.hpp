// Sums of finite numbers in one or two 64-bit words each, limbs of 42 bits, carried into 128 bits before they can
// overflow: the integers of `integer_sums.hpp` at half of the work and of the memory traffic.
#pragma once
#include "integer_sums.hpp"

constexpr std::int64_t ROWS_BEFORE_CARRY = (std::int64_t(1) << (63 - LIMB_BITS)) - 2;  // sums begin with one more number

// Numbers as multiples of 2^(exponent - 42 LIMBS), by 42 bits; all are below 2^exponent.
template <int LIMBS>
struct Limbs {
    double f, g;  // 2^(42 - exponent), which may be more than a double holds

    explicit Limbs(int exponent)
        : f(std::ldexp(1.0, (LIMB_BITS - exponent) >> 1)),
          g(std::ldexp(1.0, (LIMB_BITS - exponent) - ((LIMB_BITS - exponent) >> 1))) {}

    // The lower limb lies `apart` words after the upper one. A number of up to 2^42 plus SHIFT has no bits below one,
    // so that adding SHIFT rounds it, ties to even: as std::llrint, but on vectors of any width.
    void add(double v, std::int64_t *words, std::int64_t apart) const {
        constexpr double SHIFT = 0x1.8p52;
        const double y = v * f * g, high = y + SHIFT;
        words[0] += std::int64_t(bits_of(high) - bits_of(SHIFT));
        if constexpr (LIMBS == 2) {
            const double low = (y - (high - SHIFT)) * 0x1p42 + SHIFT;
            words[apart] += std::int64_t(bits_of(low) - bits_of(SHIFT));
        }
    }
    static i128 value(const std::int64_t *words, std::int64_t apart) {
        if constexpr (LIMBS == 1) return words[0];
        return (i128(words[0]) << LIMB_BITS) + words[apart];
    }
};

template <int LIMBS, typename Element>
FPNA_CLONES void add_row(Limbs<LIMBS> limbs, const Element *x, std::int64_t columns, std::int64_t *words) {
    for (std::int64_t c = 0; c < columns; ++c) limbs.add(widen(x[c]), words + c, columns);
}

template <typename In, int LIMBS>
struct LimbSums {
    static constexpr bool MOVES = true;
    const In &in;
    std::int64_t *words;  // (bins, LIMBS, columns)
    Limbs<LIMBS> limbs;

    template <typename Element>
    void add(std::int64_t bin, std::int64_t, const Element *x) {
        if constexpr (In::ROWS)
            add_row(limbs, x, in.columns(), words + bin * LIMBS * in.columns());
        else
            limbs.add(widen(*x), words + bin * LIMBS, 1);
    }
};

// cell(k, upper limb) for every cell and its first word, by all threads.
template <int LIMBS, typename In, typename Cell>
void for_cells(const In &in, std::int64_t *words, int threads, Cell cell) {
    const std::int64_t columns = in.columns();
#pragma omp parallel num_threads(in.bins * columns > FEW ? threads : 1)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(static)
        for (std::int64_t b = 0; b < in.bins; ++b)
            for (std::int64_t c = 0; c < columns; ++c) cell(b * columns + c, words + b * LIMBS * columns + c);
    }
}

// Sums of up to EXACT_ROWS rows in words, times 2^unit, as float64: the words are exact in float64, their sum is rounded.
constexpr std::int64_t EXACT_ROWS = (1 << 10) - 2;

template <int LIMBS>
FPNA_CLONES void as_numbers(const std::int64_t *words, std::int64_t columns, double unit, double *to) {
    for (std::int64_t c = 0; c < columns; ++c) {
        double sum = double(words[c]);
        if constexpr (LIMBS == 2) sum = sum * 0x1p42 + double(words[columns + c]);
        to[c] = sum * unit;
    }
}

// Whether the index ascends within its range, no carry is needed, and there are bins for all threads: add_in_turn can add.
template <typename In>
bool in_order(const In &in, int threads) {
    if (in.n > ROWS_BEFORE_CARRY || (threads > 1 && in.bins < 4 * threads)) return false;
    std::int64_t before = 0;
    for (std::int64_t i = 0; i < in.n; ++i) {
        const std::int64_t bin = in.bin(i);
        if (bin < before) return false;
        before = bin;
    }
    return before < in.bins || !in.n;
}

// As add_limbs, bin by bin: the words of one bin stay in the nearest cache.
template <int LIMBS, typename In>
void add_in_turn(const In &in, const Accumulator<typename In::Element> *out, int exponent,
                 const Finish<Accumulator<typename In::Element>> &finish, int threads) {
    using i64 = std::int64_t;
    const i64 columns = in.columns(), parts = std::min<i64>(in.bins, 4 * threads);
    const Limbs<LIMBS> limbs(exponent);
#pragma omp parallel num_threads(in.n * columns > FEW ? threads : 1)
    {
        const DefaultEnvironment environment;
        const auto words = zeros<i64>(LIMBS * columns);
        const std::unique_ptr<double[]> numbers(new double[columns]);
        const std::unique_ptr<bool[]> unsure(new bool[columns]);
        const int unit = exponent - LIMB_BITS * LIMBS;
        LimbSums<In, LIMBS> sums{in, words.get(), limbs};
#pragma omp for schedule(dynamic)
        for (i64 part = 0; part < parts; ++part) {
            const i64 first = in.bins * part / parts, end = in.bins * (part + 1) / parts;
            i64 i = 0, beyond = in.n;  // the first element of the part lies between
            while (i < beyond) {
                const i64 middle = i + (beyond - i) / 2;
                in.bin(middle) < first ? i = middle + 1 : beyond = middle;
            }
            for (i64 b = first; b < end; ++b) {
                std::fill_n(words.get(), LIMBS * columns, 0);
                sums.add(0, 0, out + b * columns);
                const i64 begin = i;
                for (; i < in.n && in.bin(i) == b; ++i) sums.add(0, i, in.row(i));
                const bool few = i - begin <= EXACT_ROWS && unit >= -1022 && unit < 900;
                if (few) {
                    as_numbers<LIMBS>(words.get(), columns, std::ldexp(1.0, unit), numbers.get());
                    finish.row(b * columns, numbers.get(), columns, unsure.get());
                }
                for (i64 c = 0; c < columns; ++c)
                    if (!few || unsure[c]) finish.finite(b * columns + c, Limbs<LIMBS>::value(words.get() + c, columns), unit);
            }
        }
    }
}

// Adds to `out` and finishes the sums; all of its numbers and those of `in` are finite and below 2^exponent.
template <int LIMBS, typename In>
std::int64_t add_limbs(const In &in, const Accumulator<typename In::Element> *out, int exponent,
                       const Finish<Accumulator<typename In::Element>> &finish, int threads) {
    using i64 = std::int64_t;
    if (in_order(in, threads)) {
        add_in_turn<LIMBS>(in, out, exponent, finish, threads);
        return NONE_BAD;
    }
    const i64 columns = in.columns(), cells = in.bins * columns, stride = cells * LIMBS;
    const bool apart = better_apart(in, threads), carries = in.n > ROWS_BEFORE_CARRY;
    const int copies = apart ? threads : 1;
    const Limbs<LIMBS> limbs(exponent);
    const auto words = zeros<i64>(copies * stride);
    const auto carried = zeros<i128>(carries ? copies * cells : 0);
    // Adds rows [from, to) by a team of threads, into words that no other thread touches meanwhile.
    const auto add_rows = [&](i64 from, i64 to, int copy, int team) {
        LimbSums<In, LIMBS> sums{in, words.get() + copy * stride, limbs};
        i128 *own = carried.get() + (carries ? copy * cells : 0);
        for (i64 begin = from; begin < to; begin += ROWS_BEFORE_CARRY) {
            if (begin > from) for_cells<LIMBS>(in, sums.words, team, [&](i64 k, i64 *word) {
                own[k] += Limbs<LIMBS>::value(word, columns);
                for (int limb = 0; limb < LIMBS; ++limb) word[limb * columns] = 0;
            });
            const In part = in.part(begin, std::min(ROWS_BEFORE_CARRY, to - begin));
            if (const i64 bad = by_bin(part, sums, team); bad != NONE_BAD) return begin + bad;
        }
        return NONE_BAD;
    };
    LimbSums<In, LIMBS> first{in, words.get(), limbs};
    for (i64 b = 0; b < in.bins; ++b) first.add(b, 0, out + b * columns);
    i64 bad = in.n;
    if (apart) {
#pragma omp parallel num_threads(threads)
        {
            const DefaultEnvironment environment;
#pragma omp for schedule(static) reduction(min : bad)
            for (int t = 0; t < threads; ++t)
                if (const i64 at = add_rows(in.n * t / threads, in.n * (t + 1) / threads, t, 1); at != NONE_BAD) bad = at;
        }
    } else if (const i64 at = add_rows(0, in.n, 0, threads); at != NONE_BAD) {
        bad = at;
    }
    if (bad < in.n) return bad;
    for_cells<LIMBS>(in, words.get(), threads, [&](i64 k, i64 *word) {
        i128 sum = 0;
        for (int t = 0; t < copies; ++t)
            sum += Limbs<LIMBS>::value(word + t * stride, columns) + (carries ? carried[t * cells + k] : 0);
        finish.finite(k, sum, exponent - LIMB_BITS * LIMBS);
    });
    return NONE_BAD;
}
