// Numbers into a binned sum, a tile at a time, on the CPU (binned.hpp).
//
// Operations per element of float64, in vectors of eight: one load, two for the largest, eleven for three slices, of
// which seven are additions of floating-point numbers. With two of these at a time that is 7/16 of a cycle, less than
// memory takes to bring the element to one core.
#pragma once
#include "../include/superaccumulator.hpp"
#include "binned.hpp"
#include "tiles.hpp"

// COUNT slices of each number, from slice FIRST of that level.
template <int FIRST, int COUNT, typename Number>
Slices cut_from(int level, const Number *x, std::size_t n) {
    double rounders[COUNT];
    for (int k = 0; k < COUNT; ++k) rounders[k] = rounder_at(level, FIRST + k);
    if (level < SCALED_LEVEL) return cut<COUNT, false>(x, n, rounders);
    double scaled[TILE];
    scale(x, n, scale_at(level), scaled);
    return cut<COUNT, false>(scaled, n, rounders);
}

template <typename Number>
void add(Binned &state, const Tile<Number> &tile) {
    // Only the first tile is searched for its largest number before it is cut. Others are cut again if they hold a
    // larger number than all tiles before, at most once per level.
    u64 most = state.level == LOWEST_LEVEL ? largest(tile.values, tile.n) : 0;
    Slices slices;
    do {
        if (most < INFINITE) {
            raise(state, level_of(most));
            slices = cut_from<0, SLICES>(state.level, tile.values, tile.n);
            most = slices.most;
        }
        if (most >= INFINITE) return count_special(tile.values, tile.n, state.special);
    } while (level_of(most) > state.level);
    for (int k = 0; k < SLICES; ++k) add(state.sum[k], slices.sum[k]);
    if (!tile.errors) return;
    const Slices errors = cut_from<1, 2>(state.level, tile.errors, tile.n);  // below half a unit of the first slice
    for (int k = 0; k < 2; ++k) add(state.sum[k + 1], errors.sum[k]);
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
