// Sums whose bits depend on the number of terms alone (see contract.hpp): up to PIECE terms from the left; of more
// terms the sums of pieces, in the same way. A tree adds the sums of blocks.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "contract.hpp"
#include "kernels.hpp"

namespace contract {
namespace {

constexpr i64 ENOUGH = 1 << 16;  // terms per thread that are worth waking it
constexpr i64 SHARE = 4096;      // outputs of a job

struct Dim {
    i64 size, step;
};

// Dims in row-major order; contiguous ones are merged; at least one.
template <typename T>
std::vector<Dim> dims_of(const Array &x, i64 begin, i64 end) {
    std::vector<Dim> dims;
    for (i64 d = begin; d < end; ++d) {
        const Dim next{x.shape(d), x.strides(d) / i64(sizeof(T))};
        if (next.size == 1) continue;
        if (!dims.empty() && dims.back().step == next.size * next.step)
            dims.back() = {dims.back().size * next.size, next.step};
        else
            dims.push_back(next);
    }
    if (dims.empty()) dims.push_back({1, 1});
    return dims;
}

// The place of the element with that number.
i64 offset(const std::vector<Dim> &dims, i64 number) {
    i64 at = 0;
    for (std::size_t d = dims.size(); d-- > 0; number /= dims[d].size) at += number % dims[d].size * dims[d].step;
    return at;
}

struct Piece {
    i64 first, terms;
};

template <typename T>
struct Sums {
    const Kernels<T> &kernels;
    const T *x;
    std::vector<Dim> outputs, terms;
    i64 count;  // of outputs
    std::vector<Piece> pieces;
    T *sums;  // (pieces, outputs)

    // Calls f(place of the first, how many) for the runs of neighbours in the last dim that make up a piece.
    template <typename F>
    void runs(const Piece &p, F f) const {
        const i64 inner = terms.back().size;
        for (i64 k = p.first; k < p.first + p.terms;) {
            const i64 many = std::min(inner - k % inner, p.first + p.terms - k);
            f(offset(terms, k), many);
            k += many;
        }
    }

    // Computes outputs [begin, end) of a piece, which are neighbours in the last dim of outputs.
    void across(i64 piece, i64 begin, i64 end) const {
        T *to = sums + piece * count + begin;
        const T *from = x + offset(outputs, begin);
        const i64 n = end - begin, step = outputs.back().step, down = terms.back().step;
        std::fill_n(to, n, T(0));
        runs(pieces[piece], [&](i64 at, i64 many) {
            if (step == 1) return kernels.add_rows(to, n, from + at, down, many);
            for (i64 k = 0; k < many; ++k)
                for (i64 j = 0; j < n; ++j) to[j] = to[j] + from[at + k * down + j * step];
        });
    }

    // Computes `many` outputs from `first`, counted through all pieces; these have runs of equal lengths.
    void along(i64 first, i64 many) const {
        T held[MOST_LANES] = {};
        const T *from[MOST_LANES], *base[MOST_LANES];
        const Piece &p = pieces[first / count];
        const i64 start = offset(terms, p.first);
        for (i64 i = 0; i < many; ++i)
            base[i] = x + offset(outputs, (first + i) % count) + offset(terms, pieces[(first + i) / count].first);
        runs(p, [&](i64 at, i64 terms_now) {
            for (i64 i = 0; i < many; ++i) from[i] = base[i] + at - start;
            kernels.add_lines(held, many, from, terms_now);
        });
        std::copy_n(held, many, sums + first);
    }

    // Whether the runs of two pieces have equal lengths, at equal distances from the first.
    bool alike(const Piece &p, const Piece &q) const {
        const i64 inner = terms.back().size, a = p.first % inner, b = q.first % inner;
        const bool one_run = a + p.terms <= inner && b + q.terms <= inner;
        return p.terms == q.terms && (one_run || p.first == q.first || (a == b && terms.size() < 3));
    }

    void compute(int threads) const {
        struct Job {
            i64 first, many, piece;
        };
        std::vector<Job> jobs;
        const bool by_lines = terms.back().step == 1 && (outputs.back().step != 1 || outputs.back().size == 1);
        const i64 all = count * i64(pieces.size()), inner = outputs.back().size;
        i64 work = 0;
        for (i64 k = 0; k < i64(pieces.size()); ++k) {
            work += pieces[k].terms * count;
            if (by_lines) continue;
            for (i64 j = 0; j < count; j += inner)
                for (i64 i = 0; i < inner; i += SHARE) jobs.push_back({j + i, std::min(SHARE, inner - i), k});
        }
        for (i64 first = 0, many; by_lines && first < all; first += many) {
            for (many = 1; many < kernels.lanes && first + many < all && alike(pieces[first / count], pieces[(first + many) / count]);)
                ++many;
            jobs.push_back({first, many, -1});
        }
        const i64 n = i64(jobs.size()), team = std::min<i64>({threads, n, work / ENOUGH});
#pragma omp parallel num_threads(int(team)) if (team > 1)
        {
            const DefaultEnvironment environment;
#pragma omp for schedule(static)
            for (i64 i = 0; i < n; ++i)
                if (by_lines)
                    along(jobs[i].first, jobs[i].many);
                else
                    across(jobs[i].piece, jobs[i].first, jobs[i].first + jobs[i].many);
        }
    }
};

// Pieces of a block, from `first`.
void cut(i64 first, i64 end, std::vector<Piece> &pieces) {
    for (i64 k = first; k < end; k += PIECE) pieces.push_back({k, std::min(PIECE, end - k)});
}

// Sums x (output dims ..., summed dims ...) into out (outputs), or with `apart` (blocks, outputs); `ends`: of the
// blocks.
template <typename T>
void rowsum(const Array &x, i64 stay, const Array &out, const std::vector<i64> &ends, bool apart, int threads, int level) {
    const Kernels<T> &kernels = kernels_of<T>(level);
    i64 count = 1;
    for (i64 d = 0; d < stay; ++d) count *= x.shape(d);
    Sums<T> of{kernels, static_cast<const T *>(x.data()), dims_of<T>(x, 0, stay), dims_of<T>(x, stay, x.ndim()), count, {}, nullptr};
    T *to = static_cast<T *>(out.mutable_data());
    if (!count) return;
    if (!ends.back()) {
        std::fill_n(to, apart ? i64(ends.size()) * count : count, T(0));
        return;
    }
    std::vector<i64> many;  // pieces of each block
    i64 begin = 0;
    for (const i64 end : ends) {
        const i64 before = i64(of.pieces.size());
        cut(begin, end, of.pieces);
        if (begin == end) of.pieces.push_back({begin, 0});  // the sum of nothing is +0.0
        many.push_back(i64(of.pieces.size()) - before);
        begin = end;
    }
    std::vector<T> sums(of.pieces.size() * count);
    of.sums = sums.data();
    of.compute(threads);
    T *next = sums.data(), *block = sums.data();
    for (i64 left : many) {
        const T *from = next;
        next += left * count;
        T *made = block;
        std::copy_n(from, left * count, made);
        while (left > 1) {  // sums of pieces, in the place of the pieces
            i64 sum = 0;
            for (i64 k = 0; k < left; k += PIECE, ++sum) {
                std::copy_n(made + k * count, count, made + sum * count);
                kernels.add_rows(made + sum * count, count, made + (k + 1) * count, count, std::min(PIECE, left - k) - 1);
            }
            left = sum;
        }
        for (i64 j = 0; j < count; ++j)
            if (std::isnan(made[j])) made[j] = std::numeric_limits<T>::quiet_NaN();
        block += count;
    }
    const i64 blocks = i64(many.size());
    for (i64 s = 1; !apart && s < blocks; s *= 2)
        for (i64 i = 0; i + s < blocks; i += 2 * s)
            kernels.add(sums.data() + i * count, count, sums.data() + (i + s) * count, count, 1, count);
    std::copy_n(sums.data(), apart ? blocks * count : count, to);
}

}  // namespace
}  // namespace contract

void contract_rowsum(const Array &x, std::int64_t stay, const Array &out, const std::vector<std::int64_t> &ends, bool apart,
                     int threads, int level) {
    const auto rowsum = x.itemsize() == sizeof(double) ? contract::rowsum<double> : contract::rowsum<float>;
    rowsum(x, stay, out, ends, apart, threads > 0 ? threads : omp_get_max_threads(), contract::checked_level(level));
}
