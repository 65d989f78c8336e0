// Double-word sums for kernels/allreduce/accumulate.py: an element is a pair (sum, error), side by side in memory. Pairs
// are added by AccurateDWPlusDW (Joldes, Muller, Popescu 2017, Algorithm 6), whose relative error is at most
// 3 u^2 / (1 - 4 u), u being half a unit in the last place of 1. Where a sum is not finite its error is 0, so that
// infinities stay what IEEE makes of them.
#include <algorithm>

#include "contributions.hpp"
#include "kernels.hpp"

namespace {

template <typename Float>
struct Pairs {
    alignas(64) Float sum[BLOCK], error[BLOCK];
};

// (sum, error) += (x, e).
template <typename Float>
inline __attribute__((always_inline)) void add_pair(Float &sum, Float &error, Float x, Float e) {
    const Float s = sum + x, s_error = error_of(sum, x, s);
    const Float t = error + e, t_error = error_of(error, e, t);
    const Float c = s_error + t, v = s + c, w = t_error + (c - (v - s));
    const Float z = v + w, z_error = w - (z - v);
    const bool finite = z_error - z_error == 0;
    sum = finite ? z : s;
    error = finite ? z_error : 0;
}

template <typename Float>
FPNA_CLONES void sum_pairs(const Float *const *x, std::size_t sources, std::size_t from, std::size_t n, Pairs<Float> &to) {
    for (std::size_t i = 0; i < n; ++i) {
        to.sum[i] = x[0][2 * (from + i)];
        to.error[i] = x[0][2 * (from + i) + 1];
    }
    for (std::size_t q = 1; q < sources; ++q)
        for (std::size_t i = 0; i < n; ++i)
            add_pair(to.sum[i], to.error[i], x[q][2 * (from + i)], x[q][2 * (from + i) + 1]);
}

template <typename Float>
FPNA_CLONES void load_pairs(const Float *x, std::size_t k, std::size_t columns, std::size_t n, Pairs<Float> &to) {
    for (std::size_t i = 0; i < n; ++i) to.sum[i] = to.error[i] = 0;
    for (std::size_t q = 0; q < k; ++q, x += columns)
        for (std::size_t i = 0; i < n; ++i) add_pair(to.sum[i], to.error[i], x[i], Float(0));
}

// Calls make(from, count, pairs) for n elements, block by block, and fills `out` (n, 2), which `make` may read.
template <typename Float, typename Make>
void in_blocks(std::size_t n, Float *out, Make make) {
    Pairs<Float> pairs;
    for (std::size_t from = 0; from < n; from += BLOCK) {
        const std::size_t count = std::min(BLOCK, n - from);
        make(from, count, pairs);
        for (std::size_t i = 0; i < count; ++i) {
            out[2 * (from + i)] = pairs.sum[i];
            out[2 * (from + i) + 1] = pairs.error[i];
        }
    }
}

}  // namespace

template <typename Float>
void compensated_sum(const Sources &sources, array<Float> out) {
    const auto x = sources_of<Float>(sources, out.size());
    in_blocks(out.size() / 2, out.mutable_data(), [&](std::size_t from, std::size_t count, Pairs<Float> &pairs) {
        sum_pairs(x.data(), x.size(), from, count, pairs);
    });
}

template <typename Float>
void compensated_load(array<Float> x, array<Float> out) {
    const std::size_t k = x.shape(0), n = out.size() / 2;
    if (std::size_t(x.size()) != k * n) throw std::invalid_argument("there must be two words per element");
    in_blocks(n, out.mutable_data(), [&](std::size_t from, std::size_t count, Pairs<Float> &pairs) {
        load_pairs(x.data() + from, k, n, count, pairs);
    });
}

template void compensated_sum(const Sources &, array<double>);
template void compensated_sum(const Sources &, array<float>);
template void compensated_load(array<double>, array<double>);
template void compensated_load(array<float>, array<float>);
