// Sums of a few vectors, element by element: what the sources of one and of the other kind of sum share.
#pragma once
#include <stdexcept>
#include <vector>

#include "native.hpp"

constexpr std::size_t BLOCK = 1024;  // elements at a time: what is between source and result stays in the first cache

template <typename T>
bool is(const py::handle &a) {
    return array<T>::check_(a);
}

// Where the sources lie: a list of vectors as long as the result, or the rows of a matrix.
template <typename Float>
std::vector<const Float *> sources_of(const py::handle &sources, std::size_t n) {
    const auto check = [](bool fits) {
        if (!fits) throw py::type_error("sources need the type and the length of the result, and must be contiguous");
    };
    std::vector<const Float *> x;
    if (py::isinstance<py::list>(sources)) {
        for (const py::handle &source : py::reinterpret_borrow<py::list>(sources)) {
            check(is<Float>(source));
            const auto a = py::reinterpret_borrow<array<Float>>(source);
            check(std::size_t(a.size()) == n);
            x.push_back(a.data());
        }
    } else {
        check(is<Float>(sources));
        const auto rows = py::reinterpret_borrow<array<Float>>(sources);
        check(rows.ndim() == 2 && std::size_t(rows.shape(1)) == n);
        x.resize(rows.shape(0));
        for (std::size_t q = 0; q < x.size(); ++q) x[q] = rows.data() + q * n;
    }
    if (x.empty()) throw std::invalid_argument("there must be at least one source");
    return x;
}
