// ILU(0) of the diagonal blocks of a sparse matrix, for kernels/sparse/ilu.py: L U = A on the pattern of A inside a block
// (Saad, Iterative Methods for Sparse Linear Systems, 2003, section 10.3.2). One thread has a block, so that the bits of a
// block depend on the block alone.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "entries.hpp"
#include "kernels.hpp"

namespace {

using i64 = std::int64_t;
using Index = std::int32_t;

constexpr int AHEAD = 8 << 10;  // bytes of prefetching
constexpr double FIRST_SHIFT = 1e-3;
constexpr int DOUBLINGS = 64;

// Problems of a block; kernels/sparse/ilu.py has the messages.
enum Problem : int { NONE, NO_DIAGONAL, COLUMN_TWICE, NOT_FINITE, NOT_POSITIVE, NO_SHIFT };

struct Outcome {
    Problem problem = NONE;
    i64 row = 0;
};

template <typename Number>
struct Matrix {
    const i64 *indptr;
    const Index *indices;
    const Number *data;
};

// Row i within the block first ... last - 1: its entries by ascending column.
template <typename Number>
struct Row {
    std::vector<std::pair<Index, Number>> entries;
    std::size_t diagonal = 0;

    Outcome read(const Matrix<Number> &a, i64 i, i64 first, i64 last) {
        entries.clear();
        for (i64 e = a.indptr[i]; e < a.indptr[i + 1]; ++e)
            if (a.indices[e] >= first && a.indices[e] < last) entries.emplace_back(a.indices[e], a.data[e]);
        const auto before = [](const auto &p, const auto &q) { return p.first < q.first; };
        if (!std::is_sorted(entries.begin(), entries.end(), before)) std::sort(entries.begin(), entries.end(), before);
        diagonal = entries.size();
        for (std::size_t k = 0; k < entries.size(); ++k) {
            if (k > 0 && entries[k].first == entries[k - 1].first) return {COLUMN_TWICE, i};
            if (!std::isfinite(entries[k].second)) return {NOT_FINITE, i};
            if (entries[k].first == i) diagonal = k;
        }
        return {diagonal < entries.size() ? NONE : NO_DIAGONAL, i};
    }
};

// Rows of entries left or right of the diagonal, by ascending column.
template <typename Number>
struct Triangle {
    const i64 *indptr;
    std::conditional_t<std::is_const_v<Number>, const Index, Index> *indices;
    Number *data;
};

template <typename Number>
struct Factors {
    Triangle<Number> lower, upper;
    Number *pivots, *inverse;  // the diagonal of U, and one over it
};

template <typename Number>
void write(const Row<Number> &row, std::size_t from, std::size_t to, const Triangle<Number> &triangle, i64 i) {
    for (i64 at = triangle.indptr[i]; from < to; ++from, ++at)
        std::tie(triangle.indices[at], triangle.data[at]) = row.entries[from];
}

// Counts the entries of each row left and right of the diagonal.
template <typename Number>
Outcome count_block(const Matrix<Number> &a, i64 first, i64 last, bool positive, i64 *lower, i64 *upper) {
    Row<Number> row;
    for (i64 i = first; i < last; ++i) {
        const Outcome found = row.read(a, i, first, last);
        if (found.problem != NONE) return found;
        if (positive && !(row.entries[row.diagonal].second > 0)) return {NOT_POSITIVE, i};
        lower[i] = row.diagonal;
        upper[i] = row.entries.size() - row.diagonal - 1;
    }
    return {};
}

// Factors one block with its diagonal scaled by `scale`; returns the first row with a pivot that cannot be used, or
// `last`. A pivot no larger than the rounding of its diagonal counts as zero. `where`: a null pointer for each row of
// the block.
template <typename Number>
i64 factor_block(const Matrix<Number> &a, i64 first, i64 last, bool positive, double scale, const Factors<Number> &f,
                 std::vector<Number *> &where) {
    Row<Number> row;
    for (i64 i = first; i < last; ++i) {
        row.read(a, i, first, last);
        Number &pivot = row.entries[row.diagonal].second;
        pivot *= Number(scale);
        const Number least = std::abs(pivot) * std::numeric_limits<Number>::epsilon();
        for (auto &[column, value] : row.entries) where[column - first] = &value;
        for (std::size_t k = 0; k < row.diagonal; ++k) {
            const i64 column = row.entries[k].first;
            const Number factor = row.entries[k].second /= f.pivots[column];
            for (i64 q = f.upper.indptr[column]; q < f.upper.indptr[column + 1]; ++q)
                if (Number *value = where[f.upper.indices[q] - first]) *value -= factor * f.upper.data[q];
        }
        bool good = std::isfinite(1 / pivot) && (positive ? pivot : std::abs(pivot)) > least;
        for (const auto &[column, value] : row.entries) {
            good = good && std::isfinite(value);
            where[column - first] = nullptr;
        }
        if (!good) return i;
        f.pivots[i] = pivot;
        f.inverse[i] = 1 / pivot;
        write(row, 0, row.diagonal, f.lower, i);
        write(row, row.diagonal + 1, row.entries.size(), f.upper, i);
    }
    return last;
}

// As `factor_block`, with the first shift of the diagonal that works.
template <typename Number>
Outcome factor_shifted(const Matrix<Number> &a, i64 first, i64 last, bool positive, const Factors<Number> &f,
                       double &shift) {
    std::vector<Number *> where(last - first);
    i64 row = last;
    for (int k = -1; k < DOUBLINGS; ++k) {
        shift = k < 0 ? 0.0 : std::ldexp(FIRST_SHIFT, k);
        row = factor_block(a, first, last, positive, 1 + shift, f, where);
        if (row == last) return {};
    }
    return {NO_SHIFT, row};
}

// Solves row by row. A row waits for the one before it with its nearest entry alone, which therefore comes last:
// add_entries adds the others, and their sum is subtracted first. r and z may be one.
template <typename Number>
FPNA_CLONES void solve_block(const Triangle<const Number> lower, const Triangle<const Number> upper,
                             const Number *inverse, i64 first, i64 last, const Number *r, Number *z) {
    for (i64 i = first; i < last; ++i) {
        const i64 begin = lower.indptr[i], nearest = lower.indptr[i + 1] - 1;
        Number sum = r[i];
        if (nearest >= begin) {
            sum -= add_entries<AHEAD>(lower.data, lower.indices, z, begin, nearest);
            sum -= lower.data[nearest] * z[lower.indices[nearest]];
        }
        z[i] = sum;
    }
    for (i64 i = last; i-- > first;) {
        const i64 nearest = upper.indptr[i], end = upper.indptr[i + 1];
        Number sum = z[i];
        if (nearest < end) {
            sum -= add_entries<-AHEAD>(upper.data, upper.indices, z, nearest + 1, end);
            sum -= upper.data[nearest] * z[upper.indices[nearest]];
        }
        z[i] = sum * inverse[i];
    }
}

int team(int threads) { return threads > 0 ? threads : omp_get_max_threads(); }

// Calls f(block) for all blocks, which may differ in size; returns the problem of the first block that has one.
template <typename F>
Outcome for_blocks(i64 blocks, int threads, F &&f) {
    std::vector<Outcome> found(blocks);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(dynamic)
        for (i64 b = 0; b < blocks; ++b) found[b] = f(b);
    }
    for (const Outcome &o : found)
        if (o.problem != NONE) return o;
    return {};
}

}  // namespace

template <typename Number>
Ilu<Number> ilu_factor(array<i64> indptr, array<Index> indices, array<Number> data, array<i64> starts, bool positive,
                       int threads) {
    const Matrix<Number> a{indptr.data(), indices.data(), data.data()};
    threads = team(threads);
    const i64 blocks = starts.size() - 1, n = indptr.size() - 1, *start = starts.data();
    Ilu<Number> ilu{0, 0, Made<i64>(n + 1), Made<i64>(n + 1)};
    i64 *counts[] = {ilu.lower_indptr.data(), ilu.upper_indptr.data()};
    const auto failed = [&ilu](const Outcome &found) {
        ilu.problem = int(found.problem);
        ilu.row = found.row;
        return found.problem != NONE;
    };
    if (failed(for_blocks(blocks, threads, [&](i64 b) {
            return count_block(a, start[b], start[b + 1], positive, counts[0] + 1, counts[1] + 1);
        })))
        return ilu;
    for (i64 *count : counts) {
        count[0] = 0;
        for (i64 i = 0; i < n; ++i) count[i + 1] += count[i];
    }
    ilu.lower_indices = Made<Index>(counts[0][n]), ilu.upper_indices = Made<Index>(counts[1][n]);
    ilu.lower = Made<Number>(counts[0][n]), ilu.upper = Made<Number>(counts[1][n]);
    ilu.pivots = Made<Number>(n), ilu.inverse = Made<Number>(n);
    ilu.shifts = Made<double>(blocks);
    const Factors<Number> f{{counts[0], ilu.lower_indices.data(), ilu.lower.data()},
                            {counts[1], ilu.upper_indices.data(), ilu.upper.data()},
                            ilu.pivots.data(),
                            ilu.inverse.data()};
    double *shift = ilu.shifts.data();
    failed(for_blocks(blocks, threads, [&](i64 b) {
        return factor_shifted(a, start[b], start[b + 1], positive, f, shift[b]);
    }));
    return ilu;
}

template <typename Number>
void ilu_solve(array<i64> starts, array<i64> lower_indptr, array<Index> lower_indices, array<Number> lower,
               array<i64> upper_indptr, array<Index> upper_indices, array<Number> upper, array<Number> inverse,
               array<Number> r, array<Number> z, int threads) {
    const Triangle<const Number> l{lower_indptr.data(), lower_indices.data(), lower.data()};
    const Triangle<const Number> u{upper_indptr.data(), upper_indices.data(), upper.data()};
    const i64 blocks = starts.size() - 1, *start = starts.data();
    const Number *over = inverse.data(), *from = r.data();
    Number *to = z.mutable_data();
    threads = team(threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(static)
        for (i64 b = 0; b < blocks; ++b) solve_block(l, u, over, start[b], start[b + 1], from, to);
    }
}

#define FPNA_ILU(NUMBER)                                                                                            \
    template Ilu<NUMBER> ilu_factor(array<i64>, array<Index>, array<NUMBER>, array<i64>, bool, int);                \
    template void ilu_solve(array<i64>, array<i64>, array<Index>, array<NUMBER>, array<i64>, array<Index>,          \
                            array<NUMBER>, array<NUMBER>, array<NUMBER>, array<NUMBER>, int);
FPNA_ILU(double)
FPNA_ILU(float)
