// The terms of a sum: the elements of one array, or the rounded products of the elements of two.
#pragma once
#include <cstddef>

#include "../include/elements.hpp"

template <typename Element>
struct Elements {
    using Sum = Accumulator<Element>;
    const Element *x;

    FPNA_POINT Sum operator()(std::size_t i) const { return widen(x[i]); }
    FPNA_POINT Elements from(std::size_t i) const { return {x + i}; }
};

template <typename Element>
struct Products {
    using Sum = Accumulator<Element>;
    const Element *x, *y;

    FPNA_POINT Sum operator()(std::size_t i) const { return widen(x[i]) * widen(y[i]); }
    FPNA_POINT Products from(std::size_t i) const { return {x + i, y + i}; }
};

// Products in float64 of narrower elements, which are exact.
template <typename Element>
struct WideProducts {
    using Sum = double;
    const Element *x, *y;

    FPNA_POINT Sum operator()(std::size_t i) const { return double(widen(x[i])) * double(widen(y[i])); }
    FPNA_POINT WideProducts from(std::size_t i) const { return {x + i, y + i}; }
};

template <typename Terms>
using Sum = typename Terms::Sum;
