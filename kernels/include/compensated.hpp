// Sums that keep the errors of their additions, shared by the C++ and the CUDA kernels. The error of an infinite or NaN
// sum would be NaN, so there the sum alone is the result: infinities stay as IEEE makes them.
#pragma once
#include "device.hpp"

template <typename T>
FPNA_POINT bool is_finite(T x) {
    return x - x == T(0);
}

// The error of each addition is taken from the next term (Kahan 1965).
template <typename T>
struct Kahan {
    T sum = 0, error = 0;

    FPNA_POINT void add(T x) {
        const T term = x - error;
        const T next = sum + term;
        error = (next - sum) - term;
        if (!is_finite(error)) error = 0;
        sum = next;
    }
    FPNA_POINT T total() const { return sum; }
};

// The errors of the additions are added separately (Neumaier 1974).
template <typename T>
struct Neumaier {
    T sum = 0, error = 0;

    FPNA_POINT void add(T x) {
        const T next = sum + x;
        const T larger = sum < 0 ? -sum : sum, other = x < 0 ? -x : x;
        error += larger >= other ? (sum - next) + x : (x - next) + sum;
        sum = next;
    }
    FPNA_POINT T total() const { return is_finite(sum) && is_finite(error) ? sum + error : sum; }
};
