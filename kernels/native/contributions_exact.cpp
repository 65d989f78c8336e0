// Order-free sums of a few vectors, element by element: what the owner of a chunk adds when the contributions themselves
// travel (kernels/allreduce/execution/order_free.py). All sources are read once and the result is written once.
#include "cascade.hpp"

namespace {

template <typename Source, typename Float>
std::size_t add(const py::handle &sources, const py::array &out, bool marks) {
    const std::size_t n = out.size();
    const auto x = sources_of<Source>(sources, n);
    Float *total = mutable_pointer<Float>(out);
    if (n <= BLOCK) return exact_sum(x.data(), x.size(), n, total, marks);
    py::gil_scoped_release release;
    return exact_sum(x.data(), x.size(), n, total, marks);
}

py::handle first_of(const py::handle &sources) {
    if (!py::isinstance<py::list>(sources)) return sources;
    const auto list = py::reinterpret_borrow<py::list>(sources);
    return list.empty() ? py::handle(Py_None) : py::handle(list[0]);
}

}  // namespace

void register_contributions_exact(Module &m) {
    // sources: vectors of the type of `out`, or of float64. Returns how many elements were added by words.
    m.def("exact_sum", [](const py::object &sources, const py::object &out, bool marks) {
        const bool wide = is<double>(first_of(sources));
        std::size_t resolved = 0;
        const auto into = [&](auto zero) {
            using Float = decltype(zero);
            const auto to = py::reinterpret_borrow<py::array>(out);
            resolved = wide ? add<double, Float>(sources, to, marks) : add<Float, Float>(sources, to, marks);
        };
        with_type_of(out, into, "the result");
        return resolved;
    }, py::arg("sources"), py::arg("out"), py::arg("marks") = false);
}
