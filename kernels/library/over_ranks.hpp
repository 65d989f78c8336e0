// The totals of all ranks under a guarantee, from the operands of each.
#pragma once
#include <vector>

#include "agreement.hpp"
#include "messages.hpp"
#include "states.hpp"

namespace fpna {

// What travels beside the sums: how many ranks have refused their arguments, how many elements there are, and the call that a
// rank makes (Passed).
struct Beside {
    std::int64_t refused = 0, n = 0, call = 0;
};

inline void require_one_call(std::int64_t marks, fpna_comm comm) {
    if (!one_call(marks, size_of(comm)))
        throw Refused("ranks make different calls, or pass different types; with FPNA_CHECK=1 in the environment it says which");
}

template <typename Real>
struct Totals {
    std::vector<Real> values;
    Beside beside;
};

template <typename G, typename Real>
std::vector<typename G::State> own_sums(const Operands<Real> &in, int threads) {
    using Sums = std::vector<typename G::State>;
    return in_parts(
        in.n, in.bytes(), threads, Sums(in.totals.size(), G::nothing()),
        [&](Sums &sums, size_t begin, size_t end) { G::add(in, sums, begin, end); },
        [](Sums &into, const Sums &sums) {
            for (size_t t = 0; t < into.size(); ++t) G::merge(into[t], sums[t]);
        });
}

template <typename G, typename Real>
std::vector<Real> values_of(const std::vector<typename G::State> &sums) {
    std::vector<Real> values;
    for (const auto &sum : sums) values.push_back(G::template value<Real>(sum));
    return values;
}

// Words add up as integers.
template <typename Real>
Totals<Real> exact_totals(const Operands<Real> &in, int threads, Beside beside, fpna_comm comm) {
    std::vector<Exact::State> sums = own_sums<Exact>(in, threads);
    std::vector<std::int64_t> words;
    words.reserve(sums.size() * Exact::WORDS + 3);
    for (const auto &sum : sums) words.insert(words.end(), sum.words, sum.words + Exact::WORDS);
    words.push_back(mark_of(beside.call));
    words.push_back(beside.refused);
    words.push_back(beside.n);
    join(words.data(), words.size(), Join::SUM, comm);
    require_one_call(words[words.size() - 3], comm);
    for (size_t t = 0; t < sums.size(); ++t) std::copy_n(&words[t * Exact::WORDS], Exact::WORDS, sums[t].words);
    return {values_of<Exact, Real>(sums), {words[words.size() - 2], words.back()}};
}

template <typename Real>
Totals<Real> layout_totals(const Operands<Real> &in, int threads, Beside beside, fpna_comm comm) {
    std::vector<Binned> sums = own_sums<Layout>(in, threads);
    sums.push_back(nothing_binned());
    sums.back().special[0] = beside.refused;
    sums.back().special[1] = beside.n;
    sums.back().special[2] = mark_of(beside.call);
    join(sums.data(), sums.size(), comm);
    require_one_call(sums.back().special[2], comm);
    beside = {sums.back().special[0], sums.back().special[1]};
    sums.pop_back();
    return {values_of<Layout, Real>(sums), beside};
}

// A balanced tree over the ranks, on each of them.
template <typename Real>
Totals<Real> run_totals(const Operands<Real> &in, int threads, Beside beside, fpna_comm comm) {
    constexpr std::int64_t PART = 1 << 20;  // float holds such parts of a count
    std::vector<Real> own = in_blocks(in, threads);
    const size_t fields = own.size(), row = fields + 4;
    own.push_back(Real(beside.refused));
    own.push_back(Real(beside.n % PART));
    own.push_back(Real(beside.n / PART));
    own.push_back(Real(beside.call));
    std::vector<Real> rows = all_of(own, comm);
    const size_t ranks = rows.size() / row;
    std::int64_t marks = 0;
    beside = {};
    for (size_t r = 0; r < ranks; ++r) {
        const Real *last = &rows[r * row + fields];
        beside.refused += std::int64_t(last[0]);
        beside.n += std::int64_t(last[1]) + PART * std::int64_t(last[2]);
        marks += mark_of(std::int64_t(last[3]));
    }
    require_one_call(marks, comm);
    for (size_t step = 1; step < ranks; step *= 2)
        for (size_t r = 0; r + step < ranks; r += 2 * step)
            for (size_t t = 0; t < fields; ++t) rows[r * row + t] += rows[(r + step) * row + t];
    rows.resize(fields);
    return {rows, beside};
}

template <typename Real>
Totals<Real> totals_of(int guarantee, const Operands<Real> &in, int threads, Beside beside, fpna_comm comm) {
    const Promised promised(guarantee);
    switch (guarantee) {
        case FPNA_RUN: return run_totals(in, threads, beside, comm);
        case FPNA_LAYOUT: return layout_totals(in, threads, beside, comm);
        default: return exact_totals(in, threads, beside, comm);
    }
}

}  // namespace fpna
