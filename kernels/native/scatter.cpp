// Scatter-adds out[index[i]] += x[i] on the CPU (see kernels/scatter/native.py for what they promise).
#include <omp.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "by_bin.hpp"
#include "elements.hpp"
#include "native.hpp"

namespace {

using i64 = std::int64_t;

// Each returns the place of the first index that is out of range, or NONE_BAD.
template <typename In>
i64 add_atomic(const In &in, Accumulator<typename In::Element> *out, int threads) {
    i64 bad = in.n;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(min : bad)
    for (i64 i = 0; i < in.n; ++i) {
        if (!in.fits(i)) {
            bad = std::min(bad, i);
            continue;
        }
        auto *sums = out + in.bin(i) * in.columns;
        const auto *x = in.row(i);
        for (i64 c = 0; c < in.columns; ++c) {
#pragma omp atomic
            sums[c] += widen(x[c]);
        }
    }
    return bad < in.n ? bad : NONE_BAD;
}

// Floating-point sums, each by ascending place: the bits of the reference.
template <typename Element, bool ROWS>
struct FloatSums {
    static constexpr i64 BYTES = sizeof(Accumulator<Element>);
    static constexpr bool MOVES = !ROWS;
    Accumulator<Element> *out;
    i64 columns;

    void add(i64 bin, i64, const Element *x) {
        Accumulator<Element> *sums = out + bin * (ROWS ? columns : 1);
#pragma GCC ivdep
        for (i64 c = 0; c < (ROWS ? columns : 1); ++c) sums[c] += widen(x[c]);
    }
};

template <typename In>
i64 add_sorted(const In &in, Accumulator<typename In::Element> *out, int threads) {
    if (in.columns == 1) {
        FloatSums<typename In::Element, false> sums{out, 1};
        return by_bin(in, sums, threads);
    }
    FloatSums<typename In::Element, true> sums{out, in.columns};
    return by_bin(in, sums, threads);
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
    if (wide) return kernel(Scatter<Element, i64>{elements, static_cast<const i64 *>(places), n, columns, bins}, sums);
    return kernel(Scatter<Element, std::int32_t>{elements, static_cast<const std::int32_t *>(places), n, columns,
                                                   bins}, sums);
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

}  // namespace

void register_scatter(py::module_ &m) {
    const auto define = [&m](const char *name, auto kernel) {
        m.def(name, [kernel](py::array x, std::string type, py::array index, py::array out, int threads) {
            return with_types(x, type, index, out, [kernel, threads](const auto &in, auto *sums) {
                return kernel(in, sums, threads > 0 ? threads : omp_get_max_threads());
            });
        });
    };
    define("scatter_atomic", [](const auto &in, auto *out, int threads) { return add_atomic(in, out, threads); });
    define("scatter_sorted", [](const auto &in, auto *out, int threads) { return add_sorted(in, out, threads); });
}
