// Sums of a few vectors, element by element: the places and the type of the sources.
#pragma once
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "../include/elements.hpp"
#include "arrays.hpp"

constexpr std::size_t BLOCK = 1024;  // elements at a time: intermediate numbers stay in the first-level cache

// Whether a is a C-contiguous array of T. NumPy has no bfloat16: an extension's has kind V.
template <typename T>
bool is(const Array &a) {
    return a.kind() == (std::is_same_v<T, bfloat16> ? 'V' : 'f') && a.itemsize() == sizeof(T) && a.contiguous();
}

template <typename T>
const T *pointer(const Array &a) {
    return static_cast<const T *>(a.data());
}

template <typename T>
T *mutable_pointer(const Array &a) {
    return static_cast<T *>(a.mutable_data());
}

// function(T()) for the type of a, one of float64, float32, float16, bfloat16.
template <typename Function>
void with_type_of(const Array &a, const Function &function, const char *what) {
    if (is<double>(a)) return function(double());
    if (is<float>(a)) return function(float());
    if (is<float16>(a)) return function(float16());
    if (is<bfloat16>(a)) return function(bfloat16());
    throw TypeError(std::string(what) + " must be contiguous, of float64, float32, float16 or bfloat16");
}

// The places of the sources: vectors as long as the result, or the rows of a matrix.
template <typename Float>
std::vector<const Float *> sources_of(const Sources &sources, std::size_t n) {
    const auto check = [](bool fits) {
        if (!fits) throw TypeError("sources need the type and the length of the result, and must be contiguous");
    };
    std::vector<const Float *> x;
    x.reserve(sources.arrays.size());
    for (const Array &source : sources.arrays) {
        check(is<Float>(source));
        if (sources.rows) {
            check(source.ndim() == 2 && std::size_t(source.shape(1)) == n);
            for (std::ptrdiff_t q = 0; q < source.shape(0); ++q) x.push_back(pointer<Float>(source) + q * n);
        } else {
            check(std::size_t(source.size()) == n);
            x.push_back(pointer<Float>(source));
        }
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
