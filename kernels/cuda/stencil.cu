// Block stencils on a GPU, for kernels/stencil/cupy.py; kernels/stencil/reference.py defines the results.
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

// The sum of lane `lane`: products lane, lane + 64, ... of the block's points, row by row.
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

struct Smoother {  // Chebyshev's semi-iteration for A z = r on one block
    i64 degree;
    double inverse_h2, inverse_theta;
    const double *coefficients;
    i64 rows, columns, pitch;

    // Steps `first` (-1: the very first) to the last; then z is valid on `margin` points around the block.
    __device__ void run(i64 first, i64 margin, const double *r, double *z, double *d) const {
        for (i64 k = first; k < degree; ++k) {
            const i64 around = margin + degree - 1 - k;
            for_points(rows, columns, around, [&](i64 j, i64 i) {
                const i64 at = j * pitch + i;
                const double az = minus_laplacian(z + at, pitch, inverse_h2);
                d[at] = k < 0 ? (r[at] - az) * inverse_theta
                              : chebyshev_step(coefficients[2 * k], d[at], coefficients[2 * k + 1], r[at], az);
            });
            __syncthreads();
            for_points(rows, columns, around, [&](i64 j, i64 i) { z[j * pitch + i] += d[j * pitch + i]; });
            __syncthreads();
        }
    }
};

// The way down of a V-cycle, as restrict_block in native/stencil.cpp. scratch: the size of r; every thread block works
// in its own part, which stays in caches.
extern "C" __global__ void __launch_bounds__(POINTWISE)
smooth_restrict(const double *r, i64 pad, double *z, double *coarse, i64 coarse_pad, i64 factor, double inverse_h2,
                double inverse_theta, const double *coefficients, i64 degree, i64 rows, i64 columns, double *scratch) {
    const Field padded{rows, columns, pad}, of_coarse{rows / factor, columns / factor, coarse_pad};
    const i64 pitch = padded.pitch(), reach = factor - 1;
    double *d = scratch + padded.interior();
    r += padded.interior();
    z += padded.interior();
    coarse += of_coarse.interior();
    const Smoother smoother{degree, inverse_h2, inverse_theta, coefficients, rows, columns, pitch};

    for_points(rows, columns, 2 * degree + 2, [&](i64 j, i64 i) {
        const i64 at = j * pitch + i;
        d[at] = z[at] = r[at] * inverse_theta;
    });
    __syncthreads();
    smoother.run(0, degree + 2, r, z, d);
    for_points(rows, columns, reach, [&](i64 j, i64 i) {
        const i64 at = j * pitch + i;
        d[at] = r[at] - minus_laplacian(z + at, pitch, inverse_h2);
    });
    __syncthreads();
    const double scale = hat_scale(factor);
    for_points(of_coarse.rows, of_coarse.columns, 0, [&](i64 j, i64 i) {
        const double *corner = d + (factor * j - reach) * pitch + factor * i - reach;
        double sum = 0.0;
        for (i64 across = 0; across < 2 * factor - 1; ++across) {
            double line = corner[across];
            for (i64 down = 1; down < 2 * factor - 1; ++down)
                line += hat_weight(down, factor) * corner[down * pitch + across];
            sum = across == 0 ? line : sum + hat_weight(across, factor) * line;
        }
        coarse[j * of_coarse.pitch() + i] = sum * scale;
    });
}

// The way up of a V-cycle with the sums (r, u), (w, u), (r, r), as prolong_block in native/stencil.cpp.
// scratch: twice the size of r.
extern "C" __global__ void __launch_bounds__(DOTS * LANES)
prolong_smooth(const double *r, i64 pad, const double *z, const double *e, i64 e_pad, i64 factor, double *u, i64 u_pad,
               double *w, double *dots, double inverse_h2, double inverse_theta, const double *coefficients, i64 degree,
               i64 rows, i64 columns, double *scratch) {
    const Field padded{rows, columns, pad}, plain{rows, columns, 0}, of_u{rows, columns, u_pad},
        of_e{rows / factor, columns / factor, e_pad};
    const i64 pitch = padded.pitch(), e_pitch = of_e.pitch();
    double *now = scratch + padded.interior();
    double *d = now + gridDim.x * padded.stride();
    r += padded.interior();
    z += padded.interior();
    e += of_e.interior();
    u += of_u.interior();
    w += plain.interior();
    const Smoother smoother{degree, inverse_h2, inverse_theta, coefficients, rows, columns, pitch};

    for_points(rows, columns, degree + 2, [&](i64 j, i64 i) {
        const i64 down = (j + factor * pad) / factor - pad, across = (i + factor * pad) / factor - pad;  // rounded down
        const i64 under = j - factor * down, right = i - factor * across;
        const double *corner = e + down * e_pitch + across;
        const double to_left = linear_weight(factor - right, factor), to_right = linear_weight(right, factor);
        const double upper = to_left * corner[0] + to_right * corner[1];
        const double lower = to_left * corner[e_pitch] + to_right * corner[e_pitch + 1];
        const double correction = linear_weight(factor - under, factor) * upper + linear_weight(under, factor) * lower;
        now[j * pitch + i] = z[j * pitch + i] + correction;
    });
    __syncthreads();
    smoother.run(-1, 1, r, now, d);
    for_points(rows, columns, 0, [&](i64 j, i64 i) {
        u[j * of_u.pitch() + i] = now[j * pitch + i];
        w[j * columns + i] = minus_laplacian(now + j * pitch + i, pitch, inverse_h2);
    });
    __syncthreads();

    __shared__ double lanes[DOTS][LANES];
    const int dot = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const double *a = dot == 1 ? w : r, *b = dot == 2 ? r : u;
    const i64 a_pitch = dot == 1 ? columns : pitch, b_pitch = dot == 2 ? pitch : of_u.pitch();
    lanes[dot][lane] = lane_sum(a, a_pitch, b, b_pitch, rows, columns, lane);
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
