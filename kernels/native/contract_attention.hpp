// Attention whose bits depend on a head's own queries, keys and values alone; docs/explanation/contract.md has the definition.
#pragma once
#include <algorithm>

#include "contract.hpp"

namespace contract {

enum class Begin { zero, resume, add };  // a chain from +0.0, on from c, or from +0.0 and then added to c

// c[r * c_row + j] = the chain over k, ascending, of a[r * a_row + k * a_step] * b[k * b_row + j].
//
// All rows have terms k in [from, till). Terms in [first, from) belong to rows r <= k - diagonal alone, terms in [till,
// last) to rows r >= k - diagonal alone.
template <typename T>
struct Chains {
    const T *a;
    i64 a_row, a_step;
    const T *b;
    i64 b_row;
    T *c;
    i64 c_row;
    i64 first, from, till, last, diagonal;
    Begin begin;
};

// Rows of scores: row i has `columns` of them, at most i + `most` + 1 where that is not negative.
template <typename T>
struct Scores {
    T *scores;
    i64 pitch;  // elements from row to row, a multiple of SUMS
    i64 rows, columns, most;
    T scale;

    i64 count(i64 i) const { return most < 0 ? columns : std::min(columns, i + most + 1); }
};

// The kernels of one instruction set. Arrays of rows have room for a whole number of vectors.
template <typename T>
struct RowKernels {
    i64 lanes, rows;  // of a vector; at most of chains
    void (*chains)(const Chains<T> &, i64 rows, i64 vectors);  // 1 or 2 vectors of columns
    // Scores become exponentials; over[i] = 1 / their sum, logs[i] = log of the sum of exp(score).
    void (*softmax)(const Scores<T> &, T *over, T *logs);
    // Scores become weights p, and elements of g, in the same places, p (g - dots[i]).
    void (*weights)(const Scores<T> &, T *g, const T *logs, const T *dots);
    // to[i] = the dot product of rows i of a and b in SUMS partial sums; rows have a whole number of vectors.
    void (*dots)(T *to, const T *a, i64 a_row, const T *b, i64 b_row, i64 rows, i64 columns);
    // to[i * to_row + j] = from[i * from_row + j] * factors[i * step], zeros and NaN without sign.
    void (*scaled)(T *to, i64 to_row, const T *from, i64 from_row, i64 rows, i64 columns, const T *factors, i64 step);
};

template <typename T>
const RowKernels<T> &row_kernels_of(int level);

}  // namespace contract
