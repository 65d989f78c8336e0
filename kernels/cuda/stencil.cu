// Block stencils on a GPU, for kernels/stencil/cupy.py; what they compute is defined by kernels/stencil/reference.py.
//
// One thread block per logical block, so the bits of a block depend on the block alone. Points are computed by the
// formulas of include/pointwise.hpp, dot products added in the 64-lane order of native/lanes.hpp: the bits are the
// CPU's. Needs --fmad=false (hipRTC: -ffp-contract=off); no intrinsic of one vendor, so that both compile it.
//
//   nvcc -cubin -arch sm_90 --fmad=false kernels/cuda/stencil.cu
#include "../include/pointwise.hpp"
#include "lanes.hpp"

using i64 = long long;

constexpr int LANES = 64;  // of a dot product
constexpr int DOTS = 3;    // of an iteration of conjugate gradients, one group of 64 threads each
constexpr int POINTWISE = 256;

struct Field {  // one block of a padded field
    i64 rows, columns, pad;
    __device__ i64 pitch() const { return columns + 2 * pad; }
    __device__ i64 stride() const { return (rows + 2 * pad) * pitch(); }
    __device__ i64 interior() const { return blockIdx.x * stride() + pad * pitch() + pad; }
};

// Calls point(j, i) for every point of the block and `margin` points around it, points shared among the threads.
template <typename Point>
__device__ void for_points(i64 rows, i64 columns, i64 margin, Point &&point) {
    const unsigned width = columns + 2 * margin, count = (rows + 2 * margin) * width;
    for (unsigned k = threadIdx.x; k < count; k += blockDim.x) point(k / width - margin, k % width - margin);
}

// What lane `lane` adds up: products lane, lane + 64, ... of the block's points, row by row.
__device__ double lane_sum(const double *a, i64 a_pitch, const double *b, i64 b_pitch, i64 rows, i64 columns,
                           int lane) {
    const i64 down = LANES / columns, along = LANES % columns;
    double sum = 0.0;
    i64 j = lane / columns, i = lane % columns;
    while (j < rows) {
        sum += a[j * a_pitch + i] * b[j * b_pitch + i];
        j += down;
        i += along;
        if (i >= columns) {
            i -= columns;
            ++j;
        }
    }
    return sum;
}

// runs: (n, 5) of source offset, target offset, count, source stride, target stride; one thread block per run
extern "C" __global__ void copy_runs(const double *src, double *dst, const i64 *runs) {
    const i64 *run = runs + 5 * blockIdx.x;
    for (i64 k = threadIdx.x; k < run[2]; k += blockDim.x) dst[run[1] + k * run[4]] = src[run[0] + k * run[3]];
}

extern "C" __global__ void __launch_bounds__(POINTWISE)
cg_update(double alpha, double beta, const double *u, const double *w, double *p, double *s, double *x, i64 x_pad,
          double *r, i64 r_pad, i64 rows, i64 columns) {
    const Field plain{rows, columns, 0}, of_x{rows, columns, x_pad}, of_r{rows, columns, r_pad};
    for_points(rows, columns, 0, [&](i64 j, i64 i) {
        const i64 at = plain.interior() + j * columns + i;
        cg_step(alpha, beta, u[at], w[at], p[at], s[at], x[of_x.interior() + j * of_x.pitch() + i],
                r[of_r.interior() + j * of_r.pitch() + i]);
    });
}

// r = b - A x
extern "C" __global__ void __launch_bounds__(POINTWISE)
poisson_residual(const double *b, const double *x, i64 x_pad, double *r, i64 r_pad, double inverse_h2, i64 rows,
                 i64 columns) {
    const Field plain{rows, columns, 0}, of_x{rows, columns, x_pad}, of_r{rows, columns, r_pad};
    for_points(rows, columns, 0, [&](i64 j, i64 i) {
        const double ax = minus_laplacian(x + of_x.interior() + j * of_x.pitch() + i, of_x.pitch(), inverse_h2);
        r[of_r.interior() + j * of_r.pitch() + i] = b[plain.interior() + j * columns + i] - ax;
    });
}

// u = P(A) r, w = A u and the sums (r, u), (w, u), (r, r), as chebyshev_block in native/stencil.cpp.
// scratch: twice the size of r; every thread block works in its own part of it, which its caches hold.
extern "C" __global__ void __launch_bounds__(DOTS * LANES)
chebyshev_laplacian(const double *r, i64 pad, double *u, double *w, double *dots, double inverse_h2,
                    double inverse_theta, const double *coefficients, i64 degree, i64 rows, i64 columns,
                    double *scratch) {
    const Field padded{rows, columns, pad}, plain{rows, columns, 0};
    const i64 pitch = padded.pitch();
    double *z = scratch + padded.interior();
    double *d = z + gridDim.x * padded.stride();
    r += padded.interior();
    u += plain.interior();
    w += plain.interior();

    for_points(rows, columns, degree + 1, [&](i64 j, i64 i) {
        const i64 at = j * pitch + i;
        d[at] = z[at] = r[at] * inverse_theta;
    });
    __syncthreads();
    for (i64 k = 0; k < degree; ++k) {
        const double keep = coefficients[2 * k], take = coefficients[2 * k + 1];
        for_points(rows, columns, degree - k, [&](i64 j, i64 i) {
            const i64 at = j * pitch + i;
            d[at] = chebyshev_step(keep, d[at], take, r[at], minus_laplacian(z + at, pitch, inverse_h2));
        });
        __syncthreads();
        for_points(rows, columns, degree - k, [&](i64 j, i64 i) { z[j * pitch + i] += d[j * pitch + i]; });
        __syncthreads();
    }
    for_points(rows, columns, 0, [&](i64 j, i64 i) {
        u[j * columns + i] = z[j * pitch + i];
        w[j * columns + i] = minus_laplacian(z + j * pitch + i, pitch, inverse_h2);
    });
    __syncthreads();

    __shared__ double lanes[DOTS][LANES];
    const int dot = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const double *a = dot == 1 ? w : r, *b = dot == 2 ? r : u;
    lanes[dot][lane] = lane_sum(a, dot == 1 ? columns : pitch, b, dot == 2 ? pitch : columns, rows, columns, lane);
    add_lanes(lanes[dot], lane, LANES);  // each group its own
    if (lane == 0) dots[DOTS * blockIdx.x + dot] = lanes[dot][0];
}

extern "C" __global__ void __launch_bounds__(LANES)
block_dots(const double *a, i64 a_pad, const double *b, i64 b_pad, double *out, i64 rows, i64 columns) {
    const Field of_a{rows, columns, a_pad}, of_b{rows, columns, b_pad};
    __shared__ double lanes[LANES];
    const int lane = threadIdx.x;
    lanes[lane] = lane_sum(a + of_a.interior(), of_a.pitch(), b + of_b.interior(), of_b.pitch(), rows, columns, lane);
    add_lanes(lanes, lane, LANES);
    if (lane == 0) out[blockIdx.x] = lanes[0];
}
