// The sum of one rank under each guarantee: what it is while it grows, how it is merged, and its rounded value.
#pragma once
#include <vector>

#include "../native/binned_sums.hpp"
#include "../native/exact_sums.hpp"
#include "../native/lanes.hpp"
#include "operands.hpp"

namespace fpna {

// FPNA_EXACT: the words of a superaccumulator.
struct Exact {
    static constexpr size_t WORDS = ::WORDS;
    using State = superaccumulator::Sum;
    static State nothing() { return {}; }

    template <typename Real>
    static void add(const Operands<Real> &in, std::vector<State> &sums, size_t begin, size_t end) {
        std::vector<superaccumulator::Tiled> words;
        words.reserve(sums.size());
        for (State &sum : sums) words.emplace_back(sum.words);
        for_parts(in, begin, end, [&](size_t t, size_t, const Real *x, const Real *y, size_t n) {
            superaccumulator::add(words[t], ::Terms<Real>{x, y}, 0, n);
        });
        for (auto &w : words) w.finish();
    }
    static void merge(State &into, const State &other) { into += other; }
    template <typename Real>
    static Real value(const State &sum) {
        long long room[CHUNKS];
        return round_words<Real>(sum.words, room);
    }
};

// FPNA_LAYOUT: slices of 40 bits at three levels.
struct Layout {
    static constexpr size_t WORDS = 10;
    using State = Binned;
    static State nothing() { return nothing_binned(); }
    static_assert(sizeof(Binned) == WORDS * sizeof(long long), "a binned sum travels as whole words");

    template <typename Real>
    static void add(const Operands<Real> &in, std::vector<State> &sums, size_t begin, size_t end) {
        for_parts(in, begin, end, [&](size_t t, size_t, const Real *x, const Real *y, size_t n) {
            for_tiles(::Terms<Real>{x, y}, 0, n, [&](const auto &tile) { ::add(sums[t], tile); });
        });
    }
    static void merge(State &into, const State &other) { ::merge(into, other); }
    template <typename Real>
    static Real value(const State &sum) {
        return ::value<Real>(sum);
    }
};

// FPNA_RUN: the totals of blocks of 4096 elements in 64 lanes each, added by an aligned binary tree ("block-tree" of
// kernels.sums). The index of an element alone decides what it meets, so threads do not change bits.
constexpr size_t BLOCK = 4096, WIDTH = ::Lanes::WIDTH;

// Adds terms to the lanes, which stay in registers.
template <typename Real, typename Terms>
FPNA_CLONES void add_to_lanes(Real *lane, Terms terms, size_t n) {
    alignas(64) Real own[WIDTH];
    std::copy_n(lane, WIDTH, own);
    add_rows(own, WIDTH, terms, n);
    std::copy_n(own, WIDTH, lane);
}

template <typename Real>
struct alignas(64) Row {
    Real lane[WIDTH] = {};
};

// The totals of one block. One of several parts, as of complex numbers, is the sum of their sums, from left to right.
// `rows`: room for each part of each total.
template <typename Real>
void add_block(const Operands<Real> &in, size_t begin, size_t end, std::vector<std::vector<Row<Real>>> &rows, Real *sums) {
    for (auto &parts : rows) std::fill(parts.begin(), parts.end(), Row<Real>());
    for_parts(in, begin, end, [&](size_t t, size_t p, const Real *x, const Real *y, size_t n) {
        Real *lane = rows[t][p].lane;
        if (y)
            add_to_lanes(lane, ::Products<Real>{x, y}, n);
        else
            add_to_lanes(lane, ::Elements<Real>{x}, n);
    });
    for (size_t t = 0; t < rows.size(); ++t) {
        sums[t] = tree_over(rows[t][0].lane, WIDTH);
        for (size_t p = 1; p < rows[t].size(); ++p) sums[t] += tree_over(rows[t][p].lane, WIDTH);
    }
}

template <typename Real>
std::vector<Real> in_blocks(const Operands<Real> &in, int threads) {
    const size_t fields = in.totals.size(), blocks = in.n ? (in.n + BLOCK - 1) / BLOCK : 1;
    std::vector<Real> sums(blocks * fields);
    const auto count = std::int64_t(blocks);
#pragma omp parallel num_threads(team_of(in.n * in.bytes(), threads))
    {
        const DefaultEnvironment environment;
        std::vector<std::vector<Row<Real>>> rows;
        for (const auto &total : in.totals) rows.emplace_back(total.size());
#pragma omp for schedule(static)
        for (std::int64_t b = 0; b < count; ++b)
            add_block(in, size_t(b) * BLOCK, std::min(in.n, size_t(b + 1) * BLOCK), rows, &sums[size_t(b) * fields]);
    }
    for (size_t step = 1; step < blocks; step *= 2)
        for (size_t b = 0; b + step < blocks; b += 2 * step)
            for (size_t t = 0; t < fields; ++t) sums[b * fields + t] += sums[(b + step) * fields + t];
    sums.resize(fields);
    return sums;
}

}  // namespace fpna
