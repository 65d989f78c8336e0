// The tree over the lanes of a thread block: lane[i] += lane[i + w] for w = count/2, count/4, ..., 1.
#pragma once

// Adds `count` lanes (a power of two); this thread owns lane `lane`. Lane 0 then holds the total. Every thread of the
// block must call it; a thread with lane >= count only waits.
template <typename Number>
__device__ void add_lanes(Number *lanes, unsigned lane, unsigned count) {
    for (unsigned width = count / 2; width > 0; width /= 2) {
        __syncthreads();
        if (lane < width) lanes[lane] += lanes[lane + width];
    }
}
