// Fused vector updates on a GPU, for kernels/vectors/cupy.py; kernels/vectors/reference.py defines the results. The
// steps are macros (kernels/vectors/generate.py); those here are an example.
//
// One thread block of 64 lanes per logical block of elements. One thread loads each element, applies all steps, stores
// it, and adds its products to the sums of its lane. So memory is passed over once, and a dot product has the order of
// native/lanes.hpp. Needs --fmad=false (hipRTC: -ffp-contract=off).
//
//   nvcc -cubin -arch sm_90 --fmad=false kernels/cuda/vectors.cu
#include "lanes.hpp"

#ifndef NUMBER
#define NUMBER double
#endif
#ifndef STEPS  // x = x + a*y, and x.x
#define DOTS 1
#define PARAMETERS NUMBER *__restrict__ v0, const NUMBER *__restrict__ v1, double s0
#define COEFFICIENTS const NUMBER c0 = NUMBER(0x1p+0), c1 = NUMBER(0x1p+0) * NUMBER(s0);
#define STEPS NUMBER e0 = v0[i]; const NUMBER e1 = v1[i]; e0 = c0 * e0 + c1 * e1; v0[i] = e0;
#define PRODUCTS sums[0] += double(e0) * double(e0);
#endif

using i64 = long long;

constexpr int LANES = 64;

// Block b has the elements starts[b] ... starts[b + 1] and the dot products partials[b * DOTS + k].
extern "C" __global__ void __launch_bounds__(LANES)
update(const i64 *starts, double *partials, PARAMETERS) {
    const unsigned lane = threadIdx.x;
    const i64 end = starts[blockIdx.x + 1];
    double sums[DOTS + 1] = {};  // at least one
    COEFFICIENTS
    for (i64 i = starts[blockIdx.x] + lane; i < end; i += LANES) {
        STEPS
        PRODUCTS
    }
    __shared__ double lanes[LANES];
    for (int k = 0; k < DOTS; ++k) {
        lanes[lane] = sums[k];
        add_lanes(lanes, lane, LANES);
        if (lane == 0) partials[i64(blockIdx.x) * DOTS + k] = lanes[0];
        __syncthreads();  // lane 1 is read last
    }
}
