// A call of the library, whatever language it comes from.
#pragma once
#include <cstddef>

#include "fpna.h"

namespace fpna {

using std::ptrdiff_t;
using std::size_t;

enum class Of { SUM, DOT, NORM };

// The arguments of a call. `width`: real numbers of an element. `refused`: what is wrong with them on this rank, if that is
// known already; all ranks then refuse the call.
template <typename Real>
struct Arguments {
    const char *who;
    Of of;
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

}  // namespace fpna
