// Sparse matrix-vector products on the CPU (kernels/sparse/native.py has their guarantees).
// A row, or the piece of one, is added by add_entries.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "entries.hpp"
#include "../include/merge.hpp"
#include "kernels.hpp"

namespace {

using i64 = std::int64_t;
using Index = std::int32_t;

constexpr i64 ENOUGH = 8192;     // rows + entries per thread that are worth waking it
constexpr int AHEAD = 16 << 10;  // bytes of prefetching

template <typename Number>
struct Csr {
    const i64 *indptr;
    const Index *indices;
    const Number *data;
    const Index *rows;  // the place of each row in y; null: its own number
    i64 m;

    inline __attribute__((always_inline)) Number add(const Number *x, i64 begin, i64 end) const {
        return add_entries<AHEAD>(data, indices, x, begin, end);
    }
    i64 items() const { return indptr[m] + m; }
    i64 place(i64 i) const { return rows ? rows[i] : i; }
};

template <bool MAPPED, typename Number>
FPNA_CLONES void multiply_rows(const Csr<Number> &a, const Number *x, Number *y, i64 first, i64 last) {
    i64 begin = a.indptr[first];
    for (i64 i = first; i < last; ++i) {
        const i64 end = a.indptr[i + 1];
        y[MAPPED ? a.rows[i] : i] = a.add(x, begin, end);
        begin = end;
    }
}

// Whole rows; each thread has a run of them with its share of rows + entries.
template <typename Number>
void multiply_csr(const Csr<Number> &a, const Number *x, Number *y, int threads) {
    const i64 items = a.items(), parts = std::min<i64>(threads, std::max<i64>(1, items / ENOUGH));
    const auto run = a.rows ? multiply_rows<true, Number> : multiply_rows<false, Number>;
    if (parts == 1) return run(a, x, y, 0, a.m);
#pragma omp parallel num_threads(int(parts))
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(static, 1)
        for (i64 p = 0; p < parts; ++p)
            run(a, x, y, cut_path(a.indptr, a.m, items * p / parts).row,
                p + 1 < parts ? cut_path(a.indptr, a.m, items * (p + 1) / parts).row : a.m);
    }
}

// r = b - A x. The errors of products and additions of a row are added separately, and the sum is rounded to float64 at
// the end: as if with twice its digits (Ogita, Rump & Oishi 2005, algorithm 5.3).
template <typename Number>
FPNA_CLONES void residual_rows(const Csr<Number> &a, const Number *x, const Number *b, double *r, i64 first, i64 last) {
    for (i64 i = first; i < last; ++i) {
        double sum = b[a.place(i)], error = 0;
        for (i64 e = a.indptr[i]; e < a.indptr[i + 1]; ++e) {
            const double minus = -double(a.data[e]), factor = x[a.indices[e]], product = minus * factor;
            const double next = sum + product, part = next - sum;
            error += std::fma(minus, factor, -product) + ((sum - (next - part)) + (product - part));
            sum = next;
        }
        r[a.place(i)] = sum + error;
    }
}

template <typename Number>
void residual(const Csr<Number> &a, const Number *x, const Number *b, double *r, int threads) {
    const i64 items = a.items(), parts = std::min<i64>(threads, std::max<i64>(1, items / ENOUGH));
#pragma omp parallel num_threads(int(parts)) if (parts > 1)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(static, 1)
        for (i64 p = 0; p < parts; ++p)
            residual_rows(a, x, b, r, cut_path(a.indptr, a.m, items * p / parts).row,
                          p + 1 < parts ? cut_path(a.indptr, a.m, items * (p + 1) / parts).row : a.m);
    }
}

// Computes the rows that end between two cuts; returns the sum of the rest, which belongs to a row that ends later.
template <typename Number>
FPNA_CLONES Number multiply_piece(const Csr<Number> &a, const Number *x, Number *y, Cut from, Cut to) {
    i64 entry = from.entry;
    for (i64 i = from.row; i < to.row; ++i) {
        y[a.place(i)] = a.add(x, entry, a.indptr[i + 1]);
        entry = a.indptr[i + 1];
    }
    return a.add(x, entry, to.entry);
}

// Pieces of the merge path, one per thread. A piece without entries of a row adds +0.0, which changes no bit, as no sum
// is -0.0.
template <typename Number>
void multiply_merge(const Csr<Number> &a, const Number *x, Number *y, int pieces) {
    const i64 items = a.items(), length = (items + pieces - 1) / pieces;
    const auto cut = [&](int p) { return cut_path(a.indptr, a.m, std::min(items, length * p)); };
    std::vector<Number> left(pieces);
#pragma omp parallel num_threads(pieces) if (pieces > 1)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(static, 1)
        for (int p = 0; p < pieces; ++p) left[p] = multiply_piece(a, x, y, cut(p), cut(p + 1));
    }
    Number before = 0;  // of the row that the piece begins in
    for (int p = 0; p < pieces; ++p) {
        const i64 row = cut(p).row;
        if (cut(p + 1).row > row) {
            y[a.place(row)] = before + y[a.place(row)];
            before = 0;
        }
        before += left[p];
    }
}

// Entries by themselves: `places` has where in y each belongs.
template <typename Number>
struct Coo {
    const Index *places, *indices;
    const Number *data;
    i64 nnz;

    Number product(const Number *x, i64 e) const { return data[e] * x[indices[e]]; }
};

template <typename Number>
void add_atomic(const Coo<Number> &a, const Number *x, Number *y, int threads) {
#pragma omp parallel num_threads(threads)
    {
        const DefaultEnvironment environment;
#pragma omp for schedule(static)
        for (i64 e = 0; e < a.nnz; ++e) {
            const Number product = a.product(x, e);
#pragma omp atomic
            y[a.places[e]] += product;
        }
    }
}

// Units of `width` entries in the order of `units`.
template <typename Number>
void add_units(const Coo<Number> &a, const Number *x, Number *y, const i64 *units, i64 count, i64 width) {
    for (i64 k = 0; k < count; ++k) {
        const i64 begin = units[k] * width, end = std::min(begin + width, a.nnz);
        for (i64 e = begin; e < end; ++e) y[a.places[e]] += a.product(x, e);
    }
}

int team(int threads) { return threads > 0 ? threads : omp_get_max_threads(); }

template <typename Number>
Csr<Number> csr_of(const array<i64> &indptr, const array<Index> &indices, const array<Number> &data,
                   const array<Index> &rows) {
    return {indptr.data(), indices.data(), data.data(), rows.size() ? rows.data() : nullptr, indptr.size() - 1};
}

}  // namespace

template <typename Number>
void spmv_csr(array<i64> indptr, array<Index> indices, array<Number> data, array<Index> rows, array<Number> x,
              array<Number> y, int threads) {
    multiply_csr(csr_of(indptr, indices, data, rows), x.data(), y.mutable_data(), team(threads));
}

template <typename Number>
void spmv_merge(array<i64> indptr, array<Index> indices, array<Number> data, array<Index> rows, array<Number> x,
                array<Number> y, int threads) {
    multiply_merge(csr_of(indptr, indices, data, rows), x.data(), y.mutable_data(), team(threads));
}

template <typename Number>
void spmv_residual(array<i64> indptr, array<Index> indices, array<Number> data, array<Index> rows, array<Number> x,
                   array<Number> b, array<double> r, int threads) {
    residual(csr_of(indptr, indices, data, rows), x.data(), b.data(), r.mutable_data(), team(threads));
}

template <typename Number>
void spmv_atomic(array<Index> places, array<Index> indices, array<Number> data, array<Number> x, array<Number> y,
                 int threads) {
    add_atomic(Coo<Number>{places.data(), indices.data(), data.data(), data.size()}, x.data(), y.mutable_data(),
               team(threads));
}

template <typename Number>
void spmv_units(array<Index> places, array<Index> indices, array<Number> data, array<Number> x, array<Number> y,
                array<i64> units, i64 width) {
    add_units(Coo<Number>{places.data(), indices.data(), data.data(), data.size()}, x.data(), y.mutable_data(),
              units.data(), units.size(), width);
}

#define FPNA_SPMV(NUMBER)                                                                                            \
    template void spmv_csr(array<i64>, array<Index>, array<NUMBER>, array<Index>, array<NUMBER>, array<NUMBER>, int); \
    template void spmv_merge(array<i64>, array<Index>, array<NUMBER>, array<Index>, array<NUMBER>, array<NUMBER>,    \
                             int);                                                                                   \
    template void spmv_residual(array<i64>, array<Index>, array<NUMBER>, array<Index>, array<NUMBER>, array<NUMBER>, \
                                array<double>, int);                                                                 \
    template void spmv_atomic(array<Index>, array<Index>, array<NUMBER>, array<NUMBER>, array<NUMBER>, int);         \
    template void spmv_units(array<Index>, array<Index>, array<NUMBER>, array<NUMBER>, array<NUMBER>, array<i64>, i64);
FPNA_SPMV(double)
FPNA_SPMV(float)
