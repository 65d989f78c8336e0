// Rows that are normalised: layer norm and softmax, by fixed operations; kernels/contract/norms.py has the definitions. A
// row's bits depend on its own elements, and those of sums over rows on the number of rows.
#pragma once
#include "contract.hpp"

namespace contract {

// x, y, slopes, of_x: (rows, columns); weight, bias: (columns) or null; mean, scale: (rows).
template <typename T>
struct Norm {
    i64 columns;
    T eps;
    const T *x, *weight, *bias;
    T *y, *mean, *scale;
    // of the backward pass
    const T *slopes;  // the gradient of y
    T *of_x;          // null if it is not wanted, as the sums
};

// Rows of exponentials over their sum, or the logarithms of these; of the backward pass x is that result.
template <typename T>
struct Softmax {
    i64 columns;
    const T *x, *slopes;  // the gradient of the result; null in the forward pass
    T *y;
    bool log;
};

// The kernels of one instruction set, for rows [begin, end).
template <typename T>
struct NormKernels {
    void (*forward)(const Norm<T> &, i64 begin, i64 end);
    // The sums over these rows, for weight and bias, are added to those arrays.
    void (*backward)(const Norm<T> &, i64 begin, i64 end, T *of_weight, T *of_bias);
    void (*softmax)(const Softmax<T> &, i64 begin, i64 end);
};

}  // namespace contract
