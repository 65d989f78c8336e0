// Prefix sums of the columns of a matrix, each the exact sum of the elements so far, rounded once to nearest even.
//
// Integers of 128 bits carry a column where they can hold every bit of all elements; else a superaccumulator does. A
// prefix with NaN or infinities is their sum by IEEE rules. Zero is +0.0.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "integer_sums.hpp"
#include "kernels.hpp"

namespace {

using i64 = std::int64_t;

constexpr i64 COLUMNS = 64;  // that one thread adds row by row, so that it reads whole cache lines

// The sum of the elements so far, in units that divide them all.
template <typename Float>
struct InUnits {
    Whole<Float> units;
    i128 sum = 0;
    Float special = 0;  // the sum of NaN and infinities

    explicit InUnits(int unit) : units{unit} {}

    void add(Float v) {
        if (std::isfinite(v)) sum += units(v);
        else special += v;
    }
    Float rounded() const {
        if (special == 0) return nearest<Float>(sum, units.unit);
        return std::isnan(special) ? std::numeric_limits<Float>::quiet_NaN() : special;
    }
};

// The same for any range of numbers.
template <typename Float>
struct InWords {
    static constexpr int DEPOSITS = 512;
    long long words[WORDS] = {};
    int deposits = 0;

    explicit InWords(int) {}

    void add(Float v) {
        deposit(words, double(v));
        if (++deposits % DEPOSITS == 0) carry(words);
    }
    Float rounded() const {
        long long room[CHUNKS];
        return round_words<Float>(words, room);
    }
};

template <typename Sum, typename Float>
void replace_columns(Float *x, i64 n, i64 columns, int unit, int threads) {
    const i64 pieces = (columns + COLUMNS - 1) / COLUMNS;
#pragma omp parallel num_threads(int(std::min<i64>(threads, std::max<i64>(pieces, 1))))
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(static)
        for (i64 piece = 0; piece < pieces; ++piece) {
            const i64 first = piece * COLUMNS, width = std::min(COLUMNS, columns - first);
            std::vector<Sum> sums(width, Sum{unit});
            for (i64 i = 0; i < n; ++i) {
                Float *row = x + i * columns + first;
                for (i64 c = 0; c < width; ++c) {
                    sums[c].add(row[c]);
                    row[c] = sums[c].rounded();
                }
            }
        }
    }
}

template <typename Float>
void prefixes(const Array &matrix, int threads) {
    auto *x = static_cast<Float *>(matrix.mutable_data());
    const i64 n = matrix.shape(0), columns = matrix.shape(1);
    const auto found = extremes_of(x, n * columns, threads);
    int carries = 1;
    while (i64(1) << carries < n + 1) ++carries;
    const bool fits = found.empty() || found.exponent() - found.unit() + carries < 127;
    if (fits) return replace_columns<InUnits<Float>>(x, n, columns, found.empty() ? 0 : found.unit(), threads);
    replace_columns<InWords<Float>>(x, n, columns, 0, threads);
}

}  // namespace

void prefix_exact(const Array &x, int threads) {
    const int team = threads > 0 ? threads : omp_get_max_threads();
    return x.itemsize() == 8 ? prefixes<double>(x, team) : prefixes<float>(x, team);
}
