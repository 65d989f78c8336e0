// The binned sum of one array by threads: its definition is in binned.hpp, its twin in Python in
// kernels/exact/reference.py.
#include "binned_sums.hpp"
#include "kernels.hpp"

namespace {

template <typename Element>
Accumulator<Element> binned_of(const Terms<Element> &terms, std::size_t n, int threads) {
    const Binned total = in_parts(
        n, sizeof(Element), threads, nothing_binned(),
        [&](Binned &state, std::size_t begin, std::size_t end) {
            for_tiles(terms, begin, end, [&](const auto &tile) { add(state, tile); });
        },
        merge);
    return value<Accumulator<Element>>(total);
}

}  // namespace

double binned(const Array &x, const OtherFactor &y, const std::string &element, int threads) {
    return order_free(x, y, element, [threads](auto terms, std::size_t n) { return binned_of(terms, n, threads); });
}
