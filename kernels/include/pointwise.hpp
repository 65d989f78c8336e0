// The formulas of one grid point, shared by the C++ and the CUDA kernels so that both round alike: every operation
// by itself, because both are compiled without contraction of a*b + c into one rounding.
#pragma once

#include "device.hpp"

// A z with A = -laplace by five points; pitch is the distance between rows.
FPNA_POINT double minus_laplacian(const double *z, long long pitch, double inverse_h2) {
    return (4.0 * z[0] - ((z[-1] + z[1]) + (z[-pitch] + z[pitch]))) * inverse_h2;
}

// The next step d of Chebyshev's semi-iteration for A z = r.
FPNA_POINT double chebyshev_step(double keep, double d, double take, double r, double az) {
    return keep * d + take * (r - az);
}

// The weight of a coarse point at a fine point that lies `part` of `factor` fine points from the next coarse one.
FPNA_POINT double linear_weight(long long part, long long factor) { return double(part) / double(factor); }

// Weights of the 2 factor - 1 fine points around a coarse one, along one axis: 1, 2, ..., factor, ..., 2, 1.
FPNA_POINT double hat_weight(long long k, long long factor) { return double(k < factor ? k + 1 : 2 * factor - 1 - k); }

// 1 / (sum of the weights over both axes).
FPNA_POINT double hat_scale(long long factor) {
    const double area = double(factor) * double(factor);
    return 1.0 / (area * area);
}

// p = u + beta p; s = w + beta s; x += alpha p; r -= alpha s
FPNA_POINT void cg_step(double alpha, double beta, double u, double w, double &p, double &s, double &x, double &r) {
    const double p_next = u + beta * p;
    const double s_next = w + beta * s;
    p = p_next;
    s = s_next;
    x += alpha * p_next;
    r -= alpha * s_next;
}
