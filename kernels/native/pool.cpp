// The largest element of each 2 x 2 of an image, with its place, and gradients put back there. Numbers are compared and
// copied, and a bias is added: no bit depends on the instruction set.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels.hpp"
#include "levels.hpp"

namespace {

using i64 = std::int64_t;

struct Planes {
    i64 count, rows, columns, wide;  // rows and columns of the result; columns of an image
    i64 high;                        // rows of an image
};

constexpr i64 MOST = 1024;  // elements between the two comparisons

// b is taken where it is larger, or the first NaN
FPNA_INLINE bool after(float a, float b) { return (b > a) | ((b != b) & (a == a)); }

// Rows of results from twice as many rows of `wide` elements: first the larger of upper and lower, then of left and right;
// of equal ones the upper, and the left one.
FPNA_CLONES void largest(const float *x, i64 rows, i64 wide, float bias, float *y, std::uint8_t *places) {
    float larger[MOST];
    std::int32_t lower[MOST];
    for (i64 r = 0; r < rows; ++r) {
        const float *upper = x + 2 * r * wide;
        for (i64 k = 0; k < wide; ++k) {
            const float u = upper[k], l = upper[wide + k];
            const bool second = after(u, l);
            larger[r * wide + k] = second ? l : u;
            lower[r * wide + k] = second ? 2 : 0;
        }
    }
    // Even rows follow each other without a gap.
    const i64 runs = wide % 2 ? rows : 1, length = wide % 2 ? wide / 2 : rows * wide / 2;
    for (i64 r = 0; r < runs; ++r, y += length, places += length) {
        const float *of = larger + r * wide;
        const std::int32_t *below = lower + r * wide;
        for (i64 j = 0; j < length; ++j) {
            const float left = of[2 * j], right = of[2 * j + 1];
            const bool second = after(left, right);
            const float v = (second ? right : left) + bias;
            y[j] = v < 0.0f ? 0.0f : v;
            places[j] = std::uint8_t(second ? below[2 * j + 1] + 1 : below[2 * j]);
        }
    }
}

FPNA_CLONES void spread(const float *slopes, const std::uint8_t *places, i64 wide, i64 columns, float *x) {
    for (i64 j = 0; j < columns; ++j) {
        const float v = slopes[j];
        const int at = places[j];
        x[2 * j] = at == 0 ? v : 0.0f;
        x[2 * j + 1] = at == 1 ? v : 0.0f;
        x[wide + 2 * j] = at == 2 ? v : 0.0f;
        x[wide + 2 * j + 1] = at == 3 ? v : 0.0f;
    }
}

Planes planes_of(const array<float> &whole, const array<float> &part, const array<std::uint8_t> &places) {
    if (whole.ndim() != 4 || part.ndim() != 4 || places.size() != part.size())
        throw std::invalid_argument("expected images (n, channels, h, w), and as many places as results");
    const Planes of{i64(whole.shape(0) * whole.shape(1)), i64(whole.shape(2) / 2), i64(whole.shape(3) / 2),
                    i64(whole.shape(3)), i64(whole.shape(2))};
    if (i64(part.shape(0) * part.shape(1)) != of.count || i64(part.shape(2)) != of.rows || i64(part.shape(3)) != of.columns)
        throw std::invalid_argument("results: expected (n, channels, h / 2, w / 2)");
    return of;
}

}  // namespace

void pool_largest(array<float> x, array<float> biases, array<float> y, array<std::uint8_t> places) {
    const Planes of = planes_of(x, y, places);
    const i64 channels = x.shape(1);
    if (i64(biases.size()) != channels) throw std::invalid_argument("biases: expected one per channel");
    const float *from = x.data(), *bias = biases.data();
    float *to = y.mutable_data();
    std::uint8_t *at = places.mutable_data();
    if (of.wide > MOST) throw std::invalid_argument("x: expected rows of at most " + std::to_string(MOST));
    const i64 group = MOST / std::max<i64>(of.wide, 1);
    for (i64 p = 0; p < of.count; ++p, from += of.high * of.wide)
        for (i64 r = 0, now; r < of.rows; r += now, to += now * of.columns, at += now * of.columns) {
            now = std::min(group, of.rows - r);
            largest(from + 2 * r * of.wide, now, of.wide, bias[p % channels], to, at);
        }
}

void pool_spread(array<float> slopes, array<std::uint8_t> places, array<float> x) {
    const Planes of = planes_of(x, slopes, places);
    const float *from = slopes.data();
    const std::uint8_t *at = places.data();
    float *to = x.mutable_data();
    if (of.high % 2 || of.wide % 2) std::memset(to, 0, of.count * of.high * of.wide * sizeof(float));
    for (i64 p = 0; p < of.count; ++p, to += of.high * of.wide)
        for (i64 r = 0; r < of.rows; ++r, from += of.columns, at += of.columns)
            spread(from, at, of.wide, of.columns, to + 2 * r * of.wide);
}
