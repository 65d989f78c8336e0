// Order-free sums of a few vectors, element by element: the sum at the owner of a chunk when contributions travel
// unchanged (kernels/allreduce/execution/order_free.py). All sources are read once and the result is written once.
#include "cascade.hpp"
#include "kernels.hpp"

std::size_t exact_sum(const Sources &sources, const Array &out, bool marks) {
    const bool wide = !sources.arrays.empty() && is<double>(sources.arrays[0]);
    const std::size_t n = out.size();
    std::size_t resolved = 0;
    const auto add = [&](auto source, auto result) {
        const auto x = sources_of<decltype(source)>(sources, n);
        resolved = exact_sum(x.data(), x.size(), n, mutable_pointer<decltype(result)>(out), marks);
    };
    with_type_of(out, [&](auto zero) { wide ? add(0.0, zero) : add(zero, zero); }, "the result");
    return resolved;
}
