// Fused vector updates for kernels/vectors/native.py: element-wise steps and the dot products after them, tile by tile.
// So one pass over memory does all of them, and every vector is still in the first-level cache.
//
// Steps are element-wise, so neither tiles nor threads enter their bits; a dot product of a block is added in the fixed
// 64-lane order of lanes.hpp by one thread.
#include <omp.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels.hpp"
#include "lanes.hpp"

namespace {

using i64 = std::int64_t;

constexpr i64 TILES = 24 << 10;             // bytes of all vectors' tiles, in a first cache of 32 KiB or more
constexpr i64 LEAST_TILE = 256;             // elements; where vectors are many, the second cache serves as well
constexpr i64 ENOUGH = 64 << 10;            // bytes per thread that are worth waking it
constexpr unsigned MOST_TERMS = 4;          // of a step, as in kernels/vectors/steps.py

template <typename Float>
struct Term {  // by * x, or by * x * y
    Float by;
    const Float *x, *y;
};

template <unsigned K, unsigned PAIRS, typename Float>
inline __attribute__((always_inline)) Float value(const Term<Float> *terms, i64 i) {
    const Float product = terms[K].by * terms[K].x[i];
    if constexpr (PAIRS >> K & 1)
        return product * terms[K].y[i];
    else
        return product;
}

// Terms 0 ... K from the left.
template <unsigned K, unsigned PAIRS, typename Float>
inline __attribute__((always_inline)) Float sum_to(const Term<Float> *terms, i64 i) {
    if constexpr (K == 0)
        return value<0, PAIRS>(terms, i);
    else
        return sum_to<K - 1, PAIRS>(terms, i) + value<K, PAIRS>(terms, i);
}

// to[i] = the sum of the terms, from <= i < from + n; bit k of PAIRS: whether term k has two vectors. `to` may be any of
// them: an element is read before it is written.
template <typename Float, unsigned COUNT, unsigned PAIRS>
FPNA_CLONES void update(const Term<Float> *terms, Float *to, i64 from, i64 n) {
    Term<Float> local[COUNT];
    for (unsigned k = 0; k < COUNT; ++k)
        local[k] = {terms[k].by, terms[k].x + from, PAIRS >> k & 1 ? terms[k].y + from : nullptr};
    to += from;
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) to[i] = sum_to<COUNT - 1, PAIRS>(local, i);
}

template <typename Float>
using Function = void (*)(const Term<Float> *, Float *, i64, i64);

template <typename Float, unsigned COUNT, unsigned... PAIRS>
Function<Float> update_of(unsigned pairs, std::integer_sequence<unsigned, PAIRS...>) {
    const Function<Float> all[] = {update<Float, COUNT, PAIRS>...};
    return all[pairs];
}

template <typename Float, unsigned COUNT = 1>
Function<Float> update_of(std::size_t count, unsigned pairs) {
    if constexpr (COUNT < MOST_TERMS) {
        if (count > COUNT) return update_of<Float, COUNT + 1>(count, pairs);
    }
    return update_of<Float, COUNT>(pairs, std::make_integer_sequence<unsigned, 1u << COUNT>());
}

template <typename Float>
FPNA_CLONES void add_products(Lanes &lanes, const Float *x, const Float *y, i64 n) {
    lanes.add_products(x, y, n);
}

template <typename Float>
class Update final : public Fused {
  public:
    // kernels/vectors/fused.py has checked all arguments.
    Update(const std::vector<array<Float>> &vectors, const std::vector<CodedStep> &steps,
           const std::vector<std::pair<int, int>> &dots, const std::vector<i64> &starts, int threads)
        : vectors(vectors.size()), starts(starts), threads(threads) {
        const auto at = [&](int place) { return vectors[place].data(); };
        for (const auto &[target, coded] : steps) {
            unsigned pairs = 0;
            const std::size_t first = terms.size();
            for (const auto &[number, scalar, x, others] : coded) {
                pairs |= unsigned(!others.empty()) << (terms.size() - first);
                terms.push_back({Float(number), at(x), others.empty() ? nullptr : at(others[0])});
                factors.push_back({Float(number), scalar});
            }
            this->steps.push_back({vectors[target].mutable_data(), first, update_of<Float>(coded.size(), pairs)});
        }
        for (const auto &[x, y] : dots) this->dots.push_back({at(x), at(y)});
        const i64 count = std::max<i64>(1, vectors.size());
        tile = std::max<i64>(LEAST_TILE, TILES / i64(sizeof(Float)) / count / Lanes::WIDTH * Lanes::WIDTH);
    }

    void run(const std::optional<array<double>> &partials, const std::vector<double> &values) override {
        for (std::size_t k = 0; k < terms.size(); ++k)
            if (factors[k].scalar >= 0) terms[k].by = factors[k].number * Float(values[factors[k].scalar]);
        double *out = partials ? partials->mutable_data() : nullptr;
        const i64 bytes = starts.back() * i64(vectors * sizeof(Float));
        const int team = int(std::min<i64>(threads, std::max<i64>(1, bytes / ENOUGH)));
        if (team == 1) return run_part(0, 1, out);
#pragma omp parallel num_threads(team)
        {
            const DefaultEnvironment environment;
            run_part(omp_get_thread_num(), omp_get_num_threads(), out);
        }
    }

  private:
    struct Factor {
        Float number;
        int scalar;
    };
    struct Step {
        Float *to;
        std::size_t first;  // of its terms
        Function<Float> update;
    };
    struct Dot {
        const Float *x, *y;
    };

    // The part of a thread: blocks that begin in its share of the elements, or without dot products just the share.
    void run_part(i64 part, i64 parts, double *out) {
        const i64 n = starts.back(), blocks = starts.size() - 1;
        const auto share = [=](i64 p) { return n / Lanes::WIDTH * p / parts * Lanes::WIDTH; };
        if (dots.empty()) return run_range(share(part), part + 1 < parts ? share(part + 1) : n, nullptr);
        const auto block_from = [&](i64 element) {
            return std::lower_bound(starts.begin(), starts.end() - 1, element) - starts.begin();
        };
        std::vector<Lanes> lanes(dots.size());
        const i64 end = part + 1 < parts ? block_from(share(part + 1)) : blocks;
        for (i64 block = block_from(share(part)); block < end; ++block) {
            std::fill(lanes.begin(), lanes.end(), Lanes());
            run_range(starts[block], starts[block + 1], lanes.data());
            for (std::size_t k = 0; k < dots.size(); ++k) out[block * dots.size() + k] = lanes[k].total();
        }
    }

    void run_range(i64 begin, i64 end, Lanes *lanes) {
        for (i64 from = begin; from < end; from += tile) {
            const i64 n = std::min(tile, end - from);
            for (const Step &step : steps) step.update(terms.data() + step.first, step.to, from, n);
            for (std::size_t k = 0; k < dots.size(); ++k) add_products(lanes[k], dots[k].x + from, dots[k].y + from, n);
        }
    }

    std::size_t vectors;  // their number
    std::vector<i64> starts;
    int threads;
    std::vector<Step> steps;
    std::vector<Term<Float>> terms;
    std::vector<Factor> factors;  // of the terms
    std::vector<Dot> dots;
    i64 tile;
};

}  // namespace

template <typename Float>
std::unique_ptr<Fused> fuse(const std::vector<array<Float>> &vectors, const std::vector<CodedStep> &steps,
                            const std::vector<std::pair<int, int>> &dots, const std::vector<std::int64_t> &starts, int threads) {
    return std::make_unique<Update<Float>>(vectors, steps, dots, starts, threads);
}

template std::unique_ptr<Fused> fuse(const std::vector<array<double>> &, const std::vector<CodedStep> &,
                                     const std::vector<std::pair<int, int>> &, const std::vector<std::int64_t> &, int);
template std::unique_ptr<Fused> fuse(const std::vector<array<float>> &, const std::vector<CodedStep> &,
                                     const std::vector<std::pair<int, int>> &, const std::vector<std::int64_t> &, int);
