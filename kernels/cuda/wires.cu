// Codecs of wires on a GPU, for kernels/wires/cuda.py; kernels/wires/reference.py defines their bits. The codec and its
// scale are macros; those here are an example.
//
// A thread block per cell. Results that all threads share are order-free (maxima, counts in a histogram); 16 threads
// sum means and lengths, one for each lane of the definition. Bytes have any alignment, so larger numbers are moved
// byte by byte. Needs --fmad=false (hipRTC: -ffp-contract=off).
//
//   nvcc -cubin -arch sm_90 --fmad=false kernels/cuda/wires.cu
#include "../include/codes.hpp"
#include "portable.hpp"

#ifndef CODEC
#define CODEC Table<4>
#define SCALE MATCH
#endif

using u8 = unsigned char;

enum Scale { NONE, TENSOR, MATCH };

constexpr int THREADS = 256, LANES = 16;

template <typename T>
__device__ inline void put(u8 *to, T value) {
    for (unsigned b = 0; b < sizeof(T); ++b) to[b] = u8(value >> (8 * b));
}

__device__ inline void put(u8 *to, float value) { put(to, bits_of_float(value)); }

__device__ inline unsigned short get_short(const u8 *from) {
    return static_cast<unsigned short>(from[0] | from[1] << 8);
}

__device__ inline float get_float(const u8 *from) {
    return float_of_bits(unsigned(get_short(from)) | unsigned(get_short(from + 2)) << 16);
}

// Returns the largest of values(i), i < m, and at least 0, to all threads.
template <typename Values>
__device__ inline int largest_of(int m, Values values) {
    __shared__ int largest;
    __syncthreads();  // an earlier call may still read it
    if (threadIdx.x == 0) largest = 0;
    __syncthreads();
    int own = 0;
    for (int i = int(threadIdx.x); i < m; i += THREADS) {
        const int value = values(i);
        own = value > own ? value : own;
    }
    atomicMax(&largest, own);
    __syncthreads();
    return largest;
}

// Two sums of float64, of values(0, i) and values(1, i), in the 16 lanes of the definition, for all threads.
template <typename Values>
__device__ inline void two_sums(int m, double *sums, Values values) {
    __shared__ double lanes[2][LANES];
    __syncthreads();
    if (threadIdx.x < 2 * LANES) {
        const int which = int(threadIdx.x) / LANES, lane = int(threadIdx.x) % LANES;
        double sum = 0;
        for (int i = lane; i < m; i += LANES) sum += values(which, i);
        lanes[which][lane] = sum;
    }
    __syncthreads();
    for (int which = 0; which < 2; ++which) {
        double sum[LANES];
        for (int lane = 0; lane < LANES; ++lane) sum[lane] = lanes[which][lane];
        for (int w = LANES / 2; w > 0; w /= 2)
            for (int lane = 0; lane < w; ++lane) sum[lane] += sum[lane + w];
        sums[which] = sum[0];
    }
}

// The stream of codes(i), i < m, of BITS bits; one thread writes eight at a time.
template <int BITS, typename Codes>
__device__ inline void put_stream(u8 *out, int m, Codes codes) {
    for (int first = 8 * int(threadIdx.x); first < m; first += 8 * THREADS) {
        const int count = m - first < 8 ? m - first : 8;
        u64 w = 0;
        for (int k = 0; k < count; ++k) w |= u64(codes(first + k)) << (BITS * k);
        for (int b = 0; b < (BITS * count + 7) / 8; ++b) out[first / 8 * BITS + b] = u8(w >> (8 * b));
    }
}

template <int BITS>
__device__ inline unsigned get_code(const u8 *stream, int i) {
    const int bit = BITS * i, shift = bit % 8;
    const unsigned low = stream[bit / 8], high = shift + BITS > 8 ? stream[bit / 8 + 1] : 0;
    return (low | high << 8) >> shift & ((1u << BITS) - 1);
}

// Codecs: bytes of the head, `encode` by all threads of a block, `value`: element i of m times `by`.

template <typename As>
struct Cast {
    using Code = typename As::Code;
    static constexpr int TOP = As::TOP;
    __device__ static void encode(const float *x, int m, float by, u8 *out) {
        for (int i = int(threadIdx.x); i < m; i += THREADS) {
            const bool nan = magnitude_of(x[i]) > INFINITE;  // a product would lose its sign
            put(out + sizeof(Code) * i, Code(As::code(nan ? x[i] : x[i] * by)));
        }
    }
    __device__ static float value(const u8 *data, int i, int, float by) {
        const u8 *at = data + sizeof(Code) * i;
        return As::value(Code(sizeof(Code) == 1 ? *at : get_short(at))) * by;
    }
};

template <int BITS>
struct Whole {
    static constexpr int TOP = 0;
    __device__ static void encode(const float *x, int m, float, u8 *out) {
        const int largest = largest_of(m, [&](int i) { return magnitude_of(x[i]); });
        const bool finite = largest < INFINITE;
        const float unit = power_of_two(unit_exponent(largest, BITS)), inverse = 1.0f / unit;
        if (threadIdx.x == 0) put(out, finite ? bits_of_float(unit) : QUIET_NAN);
        for (int i = int(threadIdx.x); i < m; i += THREADS) {
            const int whole = finite ? whole_of<BITS>(x[i] * inverse) : 0;
            for (int b = 0; b < (BITS + 1) / 8; ++b) out[4 + (BITS + 1) / 8 * i + b] = u8(whole >> (8 * b));
        }
    }
    __device__ static float value(const u8 *data, int i, int, float by) {
        const u8 *at = data + 4 + (BITS + 1) / 8 * i;
        const int whole = BITS == 7 ? int(static_cast<signed char>(*at)) : int(static_cast<short>(get_short(at)));
        return float(whole) * get_float(data) * by;
    }
};

struct Sign {
    static constexpr int TOP = 0;
    __device__ static void encode(const float *x, int m, float, u8 *out) {
        __shared__ int negatives;
        __syncthreads();
        if (threadIdx.x == 0) negatives = 0;
        __syncthreads();
        int own = 0;
        for (int i = int(threadIdx.x); i < m; i += THREADS) own += int(bits_of_float(x[i]) >> 31);
        atomicAdd(&negatives, own);
        double sums[2];
        two_sums(m, sums, [&](int negative, int i) {
            return int(bits_of_float(x[i]) >> 31) == negative ? double(x[i]) : 0.0;
        });
        const double counts[] = {double(m - negatives), double(negatives)};
        const bool finite = sums[0] - sums[0] == 0 && sums[1] - sums[1] == 0;
        if (threadIdx.x < 2) {
            const double sum = sums[threadIdx.x], count = counts[threadIdx.x];
            const float mean = count > 0 ? float(sum / count) : 0.0f;
            put(out + 4 * threadIdx.x, finite ? bits_of_float(mean) : QUIET_NAN);
        }
        put_stream<1>(out + 8, m, [&](int i) { return bits_of_float(x[i]) >> 31; });
    }
    __device__ static float value(const u8 *data, int i, int, float by) {
        return get_float(data + 4 * get_code<1>(data + 8, i)) * by;
    }
};

template <int BITS>
struct Table {
    static constexpr int TOP = 0, ENTRIES = 1 << (BITS - 1), HEAD = 2 * ENTRIES;
    __device__ static void encode(const float *x, int m, float, u8 *out) {
        __shared__ int counts[2][BINS];
        __shared__ unsigned short table[ENTRIES];
        __shared__ float middle[ENTRIES];
        const int largest = largest_of(m, [&](int i) { return magnitude_of(x[i]); }), least = least_bin(largest);
        for (int b = int(threadIdx.x); b < BINS; b += THREADS) counts[0][b] = 0;
        __syncthreads();
        if (largest < INFINITE)
            for (int i = int(threadIdx.x); i < m; i += THREADS)
                atomicAdd(&counts[0][bin_of(magnitude_of(x[i]), least)], 1);
        __syncthreads();
        int from = 0;
        for (int w = 1; w < BINS; w *= 2, from = 1 - from) {  // counts up to each bin
            for (int b = int(threadIdx.x); b < BINS; b += THREADS)
                counts[1 - from][b] = counts[from][b] + (b >= w ? counts[from][b - w] : 0);
            __syncthreads();
        }
        for (int k = int(threadIdx.x); k < ENTRIES; k += THREADS) {
            const long long needed = rank_of(k + 1, ENTRIES, m);
            int bin = 0;
            for (int step = BINS / 2; step > 0; step /= 2) bin += counts[from][bin + step - 1] < needed ? step : 0;
            const auto nan = static_cast<unsigned short>(QUIET_NAN >> 16);
            const unsigned short entry = largest < INFINITE ? entry_of(bin, least) : nan;
            table[k] = entry;
            put(out + 2 * k, entry);
        }
        __syncthreads();
        for (int j = int(threadIdx.x); j + 1 < ENTRIES; j += THREADS)
            middle[j] = (widen(bfloat16{table[j]}) + widen(bfloat16{table[j + 1]})) * 0.5f;
        __syncthreads();
        put_stream<BITS>(out + HEAD, m, [&](int i) {
            const float magnitude = float_of_bits(unsigned(magnitude_of(x[i])));
            int place = 0;
            for (int step = ENTRIES / 2; step > 0; step /= 2) place += magnitude > middle[place + step - 1] ? step : 0;
            return unsigned(place) | bits_of_float(x[i]) >> 31 << (BITS - 1);
        });
    }
    __device__ static float value(const u8 *data, int i, int, float by) {
        const unsigned code = get_code<BITS>(data + HEAD, i);
        const float entry = widen(bfloat16{get_short(data + 2 * (code & (ENTRIES - 1)))}) * by;
        return code >> (BITS - 1) ? -entry : entry;
    }
};

constexpr int GROUP = 32;  // elements that a rotation mixes

__device__ inline void rotate(float *x) {
    for (int apart = 1; apart < GROUP; apart *= 2)
        for (int i = 0; i < GROUP; ++i)
            if (!(i & apart)) {
                const float a = x[i], b = x[i + apart];
                x[i] = a + b;
                x[i + apart] = a - b;
            }
}

// Blocks of BLOCK elements, a thread for each; a thread rotates a group.
template <typename As, int BLOCK, bool ROTATES>
struct Four {
    using Head = typename As::Head;
    static constexpr int TOP = 0, CELL = 4096;  // elements of a cell, at most
    __device__ static int heads_of(int m) { return int(sizeof(Head)) * ((m + BLOCK - 1) / BLOCK); }  // bytes
    __device__ static Head get(const u8 *at) { return Head(sizeof(Head) == 1 ? *at : get_short(at)); }
    __device__ static void encode(const float *x, int m, float, u8 *out) {
        __shared__ float turned[CELL];
        __shared__ Head heads[CELL / GROUP];
        for (int first = GROUP * int(threadIdx.x); first < m; first += GROUP * THREADS) {
            const int count = m - first < GROUP ? m - first : GROUP;
            float group[GROUP];
            for (int l = 0; l < count; ++l) group[l] = x[first + l];
            if (ROTATES && count == GROUP) rotate(group);
            for (int l = 0; l < count; ++l) turned[first + l] = group[l];
        }
        __syncthreads();
        for (int b = int(threadIdx.x); b * BLOCK < m; b += THREADS) {
            int largest = 0;
            for (int i = b * BLOCK; i < m && i < (b + 1) * BLOCK; ++i) {
                const int magnitude = magnitude_of(turned[i]);
                largest = magnitude > largest ? magnitude : largest;
            }
            heads[b] = largest < INFINITE ? As::head_of(largest) : As::NAN_HEAD;
            put(out + sizeof(Head) * b, heads[b]);
        }
        __syncthreads();
        put_stream<4>(out + heads_of(m), m, [&](int i) {
            const Head head = heads[i / BLOCK];
            return head == As::NAN_HEAD ? 0u : As::code(turned[i] * As::inverse_of(head)) & 15u;
        });
        __syncthreads();  // the next call may write `turned`
    }
    __device__ static float value(const u8 *data, int i, int m, float by) {
        const float scale = As::scale_of(get(data + sizeof(Head) * (i / BLOCK)));
        const u8 *codes = data + heads_of(m);
        if (!ROTATES || i >= m / GROUP * GROUP) return As::value(get_code<4>(codes, i)) * scale * by;
        float group[GROUP];
        for (int l = 0; l < GROUP; ++l) group[l] = As::value(get_code<4>(codes, i / GROUP * GROUP + l));
        rotate(group);
        return group[i % GROUP] * (scale * (1.0f / GROUP)) * by;
    }
};

constexpr int FACTOR = SCALE == NONE ? 0 : 4;  // bytes before the head of the codec

// Cell b has the elements starts[b] ... starts[b + 1] and the bytes from offsets[b]; where plain[b], these are its
// floats.
extern "C" __global__ void __launch_bounds__(THREADS)
encode(const float *x, const i64 *starts, const u8 *plain, const i64 *offsets, u8 *data) {
    const int m = int(starts[blockIdx.x + 1] - starts[blockIdx.x]);
    x += starts[blockIdx.x];
    data += offsets[blockIdx.x];
    if (plain[blockIdx.x]) {
        for (int i = int(threadIdx.x); i < m; i += THREADS) put(data + 4 * i, x[i]);
        return;
    }
    float by = 1;
    if (SCALE == TENSOR) {
        const int largest = largest_of(m, [&](int i) {
            const int magnitude = magnitude_of(x[i]);
            return magnitude < INFINITE ? magnitude : 0;
        });
        const float s = power_of_two(exponent_of(largest) - (CODEC::TOP - 1));
        if (threadIdx.x == 0) put(data, s);
        by = 1.0f / s;
    }
    CODEC::encode(x, m, by, data + FACTOR);
    if (SCALE == MATCH) {
        double squares[2];
        two_sums(m, squares, [&](int decoded, int i) {
            const double value = decoded ? CODEC::value(data + FACTOR, i, m, 1.0f) : x[i];
            return value * value;
        });
        if (threadIdx.x == 0) put(data, factor_of(squares[0], squares[1]));
    }
}

template <typename To>
__device__ inline void decode_cell(const u8 *data, const i64 *starts, const u8 *plain, const i64 *offsets, To to) {
    const int m = int(starts[blockIdx.x + 1] - starts[blockIdx.x]);
    const i64 first = starts[blockIdx.x];
    data += offsets[blockIdx.x];
    if (plain[blockIdx.x]) {
        for (int i = int(threadIdx.x); i < m; i += THREADS) to(first + i, get_float(data + 4 * i));
        return;
    }
    const float by = SCALE == NONE ? 1.0f : get_float(data);
    for (int i = int(threadIdx.x); i < m; i += THREADS) to(first + i, CODEC::value(data + FACTOR, i, m, by));
}

extern "C" __global__ void __launch_bounds__(THREADS)
decode(const u8 *data, const i64 *starts, const u8 *plain, const i64 *offsets, float *out) {
    decode_cell(data, starts, plain, offsets, [&](i64 i, float value) { out[i] = value; });
}

extern "C" __global__ void __launch_bounds__(THREADS)
decode_add(const u8 *data, const i64 *starts, const u8 *plain, const i64 *offsets, float *into) {
    decode_cell(data, starts, plain, offsets, [&](i64 i, float value) { into[i] += value; });
}
