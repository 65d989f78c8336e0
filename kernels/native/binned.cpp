// The binned sum on the CPU: its definition is in binned.hpp, its twin in Python in kernels/exact/reference.py.
//
// Operations per element of float64, in vectors of eight: one load, two for the largest, eleven for three slices, of
// which seven are additions of floating-point numbers. With two of these at a time that is 7/16 of a cycle, about a
// tenth of a nanosecond, or half of what memory takes to bring the element to one core.
#include "binned.hpp"

#include "superaccumulator.hpp"
#include "tiles.hpp"

namespace {

void add(Binned &state, const Tile &tile) {
    // Only the first tile is asked for its largest before it is cut.
    u64 most = state.level == LOWEST_LEVEL ? largest(tile.values, tile.n) : 0;
    for (;;) {
        if (most >= INFINITE) {
            count_special(tile.values, tile.n, reinterpret_cast<i64 *>(state.special));
            return;
        }
        raise(state, level_of(most));
        double rounders[SLICES], scaled[TILE];
        for (int k = 0; k < SLICES; ++k) rounders[k] = rounder_at(state.level, k);
        const double *values = tile.values, *errors = tile.errors;
        if (state.level >= SCALED_LEVEL) {
            scale(values, tile.n, scale_at(state.level), scaled);
            values = scaled;
        }
        const Slices slices = cut3(values, tile.n, rounders);
        most = slices.most;
        if (most >= INFINITE || level_of(most) > state.level) continue;
        for (int k = 0; k < SLICES; ++k) add(state.sum[k], slices.sum[k]);
        if (errors) {  // they are below half a unit of the first slice
            if (state.level >= SCALED_LEVEL) {
                scale(errors, tile.n, scale_at(state.level), scaled);
                errors = scaled;
            }
            const Slices of_errors = cut2(errors, tile.n, rounders + 1);
            add(state.sum[1], of_errors.sum[0]);
            add(state.sum[2], of_errors.sum[1]);
        }
        return;
    }
}

template <typename Float>
Float value(const Binned &state) {
    long long words[WORDS] = {};
    for (int k = 0; k < SLICES; ++k) {
        deposit_units(words, state.sum[k], unit_of(state.level - k));
        words[NOT_A_NUMBER + k] = state.special[k];
    }
    return round_words<Float>(words, words);
}

template <typename Element>
Accumulator<Element> binned(const Terms<Element> &terms, std::size_t n, int threads) {
    const Binned total = in_parts(
        n, sizeof(Element), threads, nothing_binned(),
        [&](Binned &state, std::size_t begin, std::size_t end) {
            for_tiles(terms, begin, end, [&](const Tile &tile) { add(state, tile); });
        },
        merge);
    return value<Accumulator<Element>>(total);
}

}  // namespace

void register_binned(py::module_ &m) {
    define_order_free(m, "binned", [](auto terms, std::size_t n, int threads) { return binned(terms, n, threads); });
}
