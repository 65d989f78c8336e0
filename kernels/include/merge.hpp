// The merge path of a sparse matrix, shared by the C++ and the CUDA kernels: every row's entries, then the row's end, row
// after row, as one list of rows + entries items that can be cut anywhere into pieces of equal work (Merrill & Garland,
// Merge-based parallel sparse matrix-vector multiplication, SC 2016).
#pragma once

#include "device.hpp"

// The place of a cut: before the end of `row`, before `entry`.
struct Cut {
    long long row, entry;
};

// The cut before item `at` of the path, 0 <= at <= rows + entries: `row` is the number of rows that end before it.
template <typename Offset>
FPNA_POINT Cut cut_path(const Offset *indptr, long long rows, long long at) {
    long long low = 0, high = rows;
    while (low < high) {
        const long long middle = (low + high) / 2;
        if (indptr[middle + 1] + middle < at)
            low = middle + 1;
        else
            high = middle;
    }
    return {low, at - low};
}
