// Sums of a few vectors, element by element: where the sources lie, and of which type they are.
#pragma once
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "../include/elements.hpp"
#include "native.hpp"

constexpr std::size_t BLOCK = 1024;  // elements at a time: what is between source and result stays in the first cache

// Whether a is a C-contiguous array of T. NumPy has no bfloat16 of its own: an extension's, of kind V.
template <typename T>
bool is(const py::handle &a) {
    if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) {
        if (!py::isinstance<py::array>(a)) return false;
        const auto x = py::reinterpret_borrow<py::array>(a);
        const char kind = std::is_same_v<T, float16> ? 'f' : 'V';
        return x.dtype().kind() == kind && x.itemsize() == 2 && (x.flags() & py::array::c_style);
    } else {
        return array<T>::check_(a);
    }
}

template <typename T>
const T *pointer(const py::handle &a) {
    return static_cast<const T *>(py::reinterpret_borrow<py::array>(a).data());
}

template <typename T>
T *mutable_pointer(py::array a) {
    return static_cast<T *>(a.mutable_data());
}

// function(T()) for the type of a, one of float64, float32, float16, bfloat16.
template <typename Function>
void with_type_of(const py::handle &a, const Function &function, const char *what) {
    if (is<double>(a)) return function(double());
    if (is<float>(a)) return function(float());
    if (is<float16>(a)) return function(float16());
    if (is<bfloat16>(a)) return function(bfloat16());
    throw py::type_error(std::string(what) + " must be contiguous, of float64, float32, float16 or bfloat16");
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
            check(is<Float>(source) && std::size_t(py::reinterpret_borrow<py::array>(source).size()) == n);
            x.push_back(pointer<Float>(source));
        }
    } else {
        check(is<Float>(sources));
        const auto rows = py::reinterpret_borrow<py::array>(sources);
        check(rows.ndim() == 2 && std::size_t(rows.shape(1)) == n);
        x.resize(rows.shape(0));
        for (std::size_t q = 0; q < x.size(); ++q) x[q] = pointer<Float>(sources) + q * n;
    }
    if (x.empty()) throw std::invalid_argument("there must be at least one source");
    return x;
}

// The error of a + b = sum (TwoSum: Knuth 1969).
template <typename Float>
inline __attribute__((always_inline)) Float error_of(Float a, Float b, Float sum) {
    const Float rounded = sum - a;
    return (a - (sum - rounded)) + (b - rounded);
}
