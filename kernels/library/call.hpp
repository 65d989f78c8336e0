// A call of the library, whatever language it comes from.
#pragma once
#include <cstddef>
#include <cstdint>

#include "agreement.hpp"

namespace fpna {

using std::ptrdiff_t;
using std::size_t;

// The arguments of a call. `width`: real numbers of an element. `refused`: what is wrong with them on this rank, if that is
// known already; all ranks then refuse the call.
template <typename Real>
struct Arguments {
    const char *who;
    Of of;  // SUM, DOT or NORM
    int guarantee, width;
    fpna_comm comm;
    size_t n, fields;
    const Real *x;
    ptrdiff_t stride, field_stride;
    const Real *y;
    ptrdiff_t stride_y, field_stride_y;
    Real *total;
    const fpna_options &options;
    const char *refused = nullptr;
};

// Returns an fpna_code. Collective over `comm`. For float and double (sums.cpp).
template <typename Real>
int carry_out(const Arguments<Real> &a);

// fpna_minloc or fpna_maxloc, and fpna_scatter_add with a number of the first cell and element; `refused` as above. For
// float and double (locations.cpp, scatter.cpp).
template <typename Real>
int locate(const char *who, bool largest, fpna_comm comm, size_t n, const Real *x, ptrdiff_t stride,
           const std::int64_t *numbers, Real *value, std::int64_t *number, const char *refused = nullptr);

template <typename Real>
int scatter_add(const char *who, fpna_comm comm, size_t n, const std::int64_t *cell, std::int64_t first, const Real *x,
                size_t cells, Real *total, int threads, const char *refused = nullptr);

}  // namespace fpna
