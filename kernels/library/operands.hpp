// The numbers that a sum of the library adds, as contiguous tiles: elements with any stride, complex numbers, weights and
// a mask, as real numbers or as the factors of their products.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../native/tiles.hpp"

namespace fpna {

using std::ptrdiff_t;
using std::size_t;

// Terms of a total: x[i step], or its products with y[i step_y]; `negative`: of the opposite sign.
template <typename Real>
struct Part {
    const Real *x, *y = nullptr;
    bool negative = false;
};

template <typename Real>
struct Operands {
    size_t n = 0;
    ptrdiff_t step = 1, step_y = 1;  // in real numbers
    const Real *weights = nullptr;   // of the x
    const unsigned char *mask = nullptr;
    Real scale[2] = {1, 1};          // powers of two, by which x and y are multiplied one after the other
    bool scaled = false;
    std::vector<std::vector<Part<Real>>> totals;

    // Bytes that a pass reads per element, about: what a team of threads is worth.
    size_t bytes() const {
        size_t parts = 0;
        for (const auto &total : totals) parts += total.size();
        return parts * sizeof(Real);
    }
};

constexpr size_t CACHED = 32 * 1024, FEWEST = 256;  // bytes, elements of a tile

// Whether numbers that lie `step` apart are read where they are.
template <typename Real>
bool in_place(const Operands<Real> &in, ptrdiff_t step, bool weighted, bool negative) {
    return step == 1 && !(weighted && in.weights) && !negative && !in.mask && !in.scaled;
}

// Elements of a tile, which stays in the cache while every field takes its numbers from it.
template <typename Real>
size_t tile_of(const Operands<Real> &in) {
    bool whole = in_place(in, in.step, true, false);
    for (const auto &total : in.totals)
        for (const Part<Real> &part : total) whole = whole && !part.y && !part.negative;
    if (whole) return STRETCH;
    const auto span = size_t(std::abs(in.step)) * sizeof(Real);
    size_t tile = TILE;
    while (tile > FEWEST && tile * span > CACHED) tile /= 2;
    return tile;
}

// The numbers of elements from, from + 1, ...: in place where they are contiguous and taken as they are, or in `room`. A
// number that the mask leaves out is 0.
template <typename Real>
const Real *gathered(const Operands<Real> &in, const Real *x, ptrdiff_t step, bool weighted, bool negative, size_t from,
                     size_t n, Real *room) {
    const Real *source = x + ptrdiff_t(from) * step;
    if (in_place(in, step, weighted, negative)) return source;
    for (size_t i = 0; i < n; ++i) room[i] = source[ptrdiff_t(i) * step];
    if (weighted && in.weights)
        for (size_t i = 0; i < n; ++i) room[i] *= in.weights[from + i];
    if (in.scaled)
        for (size_t i = 0; i < n; ++i) room[i] = room[i] * in.scale[0] * in.scale[1];
    if (negative)
        for (size_t i = 0; i < n; ++i) room[i] = -room[i];
    if (in.mask)
        for (size_t i = 0; i < n; ++i) room[i] = in.mask[from + i] ? room[i] : Real(0);
    return room;
}

// f(total, part, x, y, n) for the parts of all totals, in elements begin ... end - 1, tile by tile; y is null without
// products. Tiles begin at multiples of FEWEST.
template <typename Real, typename F>
void for_parts(const Operands<Real> &in, size_t begin, size_t end, F &&f) {
    alignas(64) Real room[TILE], room_y[TILE];
    const size_t tile = tile_of(in);
    for (size_t from = begin; from < end; from += tile) {
        const size_t n = std::min(tile, end - from);
        for (size_t t = 0; t < in.totals.size(); ++t)
            for (size_t p = 0; p < in.totals[t].size(); ++p) {
                const Part<Real> &part = in.totals[t][p];
                const Real *x = gathered(in, part.x, in.step, true, part.negative, from, n, room);
                const Real *y = part.y ? gathered(in, part.y, in.step_y, false, false, from, n, room_y) : nullptr;
                f(t, p, x, y, n);
            }
    }
}

}  // namespace fpna
