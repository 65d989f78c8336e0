// Shared by the sources of kernels._native.
#pragma once
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>

namespace py = pybind11;

// One wheel for every x86-64: the compiler makes a clone per instruction set and the loader picks one.
// Sums keep their written order in every clone (no reassociation, no contraction), so bits do not depend on it.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FPNA_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define FPNA_CLONES
#endif

template <typename T>
using array = py::array_t<T, py::array::c_style>;

void register_accumulate(py::module_ &m);
void register_bandwidth(py::module_ &m);
void register_binned(py::module_ &m);
void register_combine(py::module_ &m);
void register_contributions_exact(py::module_ &m);
void register_contributions_fixed(py::module_ &m);
void register_fixed_point(py::module_ &m);
void register_ilu(py::module_ &m);
void register_packed(py::module_ &m);
void register_scatter(py::module_ &m);
void register_sizes(py::module_ &m);
void register_spmv(py::module_ &m);
void register_static(py::module_ &m);
void register_stencil(py::module_ &m);
void register_sums(py::module_ &m);
void register_superaccumulator(py::module_ &m);
void register_vectors(py::module_ &m);
void register_wires(py::module_ &m);
