// Arrays of the caller as kernels see them: the place, number and type of their elements. Python stays in bindings.cpp,
// which makes these from NumPy's arrays; the caller owns the memory for the time of a call.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "../include/environment.hpp"

// One wheel for every x86-64: the compiler makes a clone per instruction set and the loader picks one.
// Sums keep their written order in every clone (no reassociation, no contraction), so bits do not depend on it.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FPNA_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define FPNA_CLONES
#endif

class Array {
public:
    Array() = default;
    // kind: NumPy's letter for the type of elements, 0 where their bytes are swapped; shape and strides (in bytes) have
    // `ndim` elements.
    Array(void *data, char kind, std::size_t itemsize, int ndim, const std::ptrdiff_t *shape, const std::ptrdiff_t *strides,
          bool contiguous, bool writeable)
        : data_(data), shape_(shape), strides_(strides), itemsize_(std::ptrdiff_t(itemsize)), ndim_(ndim), kind_(kind),
          contiguous_(contiguous), writeable_(writeable) {
        for (int d = 0; d < ndim; ++d) size_ *= shape[d];
    }

    std::ptrdiff_t size() const { return size_; }
    std::ptrdiff_t itemsize() const { return itemsize_; }
    std::ptrdiff_t nbytes() const { return size_ * itemsize_; }
    std::ptrdiff_t ndim() const { return ndim_; }
    std::ptrdiff_t shape(std::ptrdiff_t dim) const { return dim < ndim_ ? shape_[dim] : throw lacking(); }
    std::ptrdiff_t strides(std::ptrdiff_t dim) const { return dim < ndim_ ? strides_[dim] : throw lacking(); }
    char kind() const { return kind_; }
    bool contiguous() const { return contiguous_; }  // in C's order
    bool writeable() const { return writeable_; }
    const void *data() const { return data_; }
    void *mutable_data() const { return writeable_ ? data_ : throw std::domain_error("array is not writeable"); }

private:
    static std::out_of_range lacking() { return std::out_of_range("the array has fewer dimensions"); }

    void *data_ = nullptr;
    const std::ptrdiff_t *shape_ = nullptr, *strides_ = nullptr;
    std::ptrdiff_t size_ = 1, itemsize_ = 1;
    int ndim_ = 0;
    char kind_ = 0;
    bool contiguous_ = true, writeable_ = false;
};

// A C-contiguous array of T.
template <typename T>
class array : public Array {
public:
    array() = default;
    explicit array(const Array &of) : Array(of) {}

    const T *data() const { return static_cast<const T *>(Array::data()); }
    T *mutable_data() const { return static_cast<T *>(Array::mutable_data()); }
};

// Sources that a kernel adds element by element: vectors, or the rows of one matrix.
struct Sources {
    std::vector<Array> arrays;
    bool rows = false;
};

// Elements that a kernel has made, for the caller.
template <typename T>
struct Made {
    explicit Made(std::ptrdiff_t n) : elements(new T[std::size_t(n)]), size(n) {}
    T *data() { return elements.get(); }

    std::unique_ptr<T[]> elements;
    std::ptrdiff_t size;
};

// Raised as Python's TypeError.
struct TypeError : std::runtime_error {
    using std::runtime_error::runtime_error;
};
