// The superaccumulator on the CPU: words of many sums for kernels/exact/superaccumulator.py, and the exact sum of one
// array by threads (exact_sums.hpp).
#include <algorithm>
#include <vector>

#include "cascade.hpp"
#include "exact_sums.hpp"
#include "kernels.hpp"
#include "levels.hpp"

using namespace superaccumulator;

namespace {

// All products of each pair of vectors, tile by tile, so that memory is read once where pairs share vectors.
template <typename Element>
void add_pairs(Sum *sums, const std::vector<Terms<Element>> &pairs, std::size_t begin, std::size_t end) {
    std::vector<Tiled> words;
    for (std::size_t k = 0; k < pairs.size(); ++k) words.emplace_back(sums[k].words);
    TileMemory memory;
    for (std::size_t i = begin; i < end; i += PRODUCTS)
        for (std::size_t k = 0; k < pairs.size(); ++k)
            add(words[k], products_of<true>(pairs[k], i, std::min(PRODUCTS, end - i), memory));
    for (Tiled &w : words) w.finish();
}

template <typename Element>
Accumulator<Element> exact_of(const Terms<Element> &terms, std::size_t n, int threads) {
    Sum total = in_parts(
        n, sizeof(Element), threads, Sum{},
        [&](Sum &sum, std::size_t begin, std::size_t end) { add(sum.words, terms, begin, end); },
        [](Sum &into, const Sum &sum) { into += sum; });
    return round_words<Accumulator<Element>>(total.words, total.words);
}

template <typename Float>
void round_all(const long long *words, std::size_t n, Float *out) {
    long long used[WORDS], room[CHUNKS];
    for (std::size_t c = 0; c < n; ++c) {
        std::copy_n(words + c * WORDS, WORDS, used);
        out[c] = round_into(used, room, Float());
    }
}

}  // namespace

void exact_add(array<long long> words, array<double> x) {
    const std::size_t sums = words.size() / WORDS, rows = sums ? x.size() / sums : 0;
    long long *w = words.mutable_data();
    for (std::size_t c = 0; c < sums; ++c, w += WORDS) add_column(w, x.data() + c, rows, sums);
}

Made<double> exact_halves(array<double> x, int level) {
    if (level >= levels_here()) throw std::invalid_argument("level: this processor has none such");
    Made<double> halves(3);
    ErrorFlags::clear();
    add_halves(x.data(), std::size_t(x.size()), halves.data(), level);
    halves.data()[2] = !ErrorFlags::set();
    return halves;
}

template <typename Element>
void exact_add_products(array<long long> words, const std::vector<array<Element>> &a, const std::vector<array<Element>> &b,
                        int threads) {
    std::vector<Terms<Element>> pairs;
    for (std::size_t k = 0; k < a.size(); ++k) pairs.push_back({a[k].data(), b[k].data()});
    auto *into = reinterpret_cast<Sum *>(words.mutable_data());
    const std::size_t n = a.empty() ? 0 : a[0].size();
    const auto merge = [&](Sum *to, const Sum *sums) {
        for (std::size_t k = 0; k < pairs.size(); ++k) to[k] += sums[k];
    };
    const auto sums = in_parts(
        n, pairs.size() * sizeof(Element), threads, std::vector<Sum>(pairs.size()),
        [&](auto &part, std::size_t begin, std::size_t end) { add_pairs(part.data(), pairs, begin, end); },
        [&](auto &total, const auto &part) { merge(total.data(), part.data()); });
    merge(into, sums.data());
    for (std::size_t k = 0; k < pairs.size(); ++k) carry(into[k].words);
}

template void exact_add_products(array<long long>, const std::vector<array<double>> &, const std::vector<array<double>> &, int);
template void exact_add_products(array<long long>, const std::vector<array<float>> &, const std::vector<array<float>> &, int);

void exact_carry(array<long long> words) {
    long long *w = words.mutable_data();
    for (std::ptrdiff_t c = 0; c < words.size() / WORDS; ++c) carry(w + c * WORDS);
}

void exact_round(array<long long> words, const Array &out) {
    with_type_of(out, [&](auto zero) {
        round_all(words.data(), out.size(), mutable_pointer<decltype(zero)>(out));
    }, "sums");
}

double exact(const Array &x, const OtherFactor &y, const std::string &element, int threads) {
    return order_free(x, y, element, [threads](auto terms, std::size_t n) { return exact_of(terms, n, threads); });
}
