// Scatter-adds out[index[i]] += x[i] on the CPU (see kernels/scatter/native.py for what they promise).
#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "elements.hpp"
#include "native.hpp"

namespace {

using i64 = std::int64_t;
using u64 = std::uint64_t;

// n elements of `columns` numbers each, to be added to `bins` bins.
template <typename Element, typename Index>
struct Input {
    const Element *x;
    const Index *index;
    i64 n, columns, bins;

    bool fits(i64 i) const { return u64(i64(index[i])) < u64(bins); }
};

// Each returns the place of the first index that is out of range, or a negative number.
template <typename Element, typename Index>
i64 add_atomic(Input<Element, Index> in, Accumulator<Element> *out, int threads) {
    i64 bad = in.n;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(min : bad)
    for (i64 i = 0; i < in.n; ++i) {
        if (!in.fits(i)) {
            bad = std::min(bad, i);
            continue;
        }
        Accumulator<Element> *sums = out + i64(in.index[i]) * in.columns;
        const Element *x = in.x + i * in.columns;
        for (i64 c = 0; c < in.columns; ++c) {
#pragma omp atomic
            sums[c] += widen(x[c]);
        }
    }
    return bad < in.n ? bad : -1;
}

// ---------------------------------------------------------------- Python

template <typename Element, typename Kernel>
i64 with_index(const py::array &x, const py::array &index, py::array &out, Kernel kernel) {
    auto *sums = static_cast<Accumulator<Element> *>(out.mutable_data());
    const auto *elements = static_cast<const Element *>(x.data());
    const i64 n = x.shape(0), columns = x.ndim() == 2 ? i64(x.shape(1)) : 1, bins = out.shape(0);
    const void *places = index.data();
    const bool wide = index.itemsize() == 8;
    py::gil_scoped_release free;
    if (wide) return kernel(Input<Element, i64>{elements, static_cast<const i64 *>(places), n, columns, bins}, sums);
    return kernel(Input<Element, std::int32_t>{elements, static_cast<const std::int32_t *>(places), n, columns, bins},
                  sums);
}

// Types and shapes are checked in kernels/scatter/elements.py.
template <typename Kernel>
i64 with_types(const py::array &x, const std::string &type, const py::array &index, py::array &out, Kernel kernel) {
    if (type == "float64") return with_index<double>(x, index, out, kernel);
    if (type == "float32") return with_index<float>(x, index, out, kernel);
    if (type == "float16") return with_index<float16>(x, index, out, kernel);
    if (type == "bfloat16") return with_index<bfloat16>(x, index, out, kernel);
    throw std::invalid_argument("scatter_add of " + type);
}

int team(int threads) { return threads > 0 ? threads : omp_get_max_threads(); }

}  // namespace

void register_scatter(py::module_ &m) {
    m.def("scatter_atomic", [](py::array x, std::string type, py::array index, py::array out, int threads) {
        return with_types(x, type, index, out, [threads](auto in, auto *sums) {
            return add_atomic(in, sums, team(threads));
        });
    });
}
