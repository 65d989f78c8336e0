// Shared by the sources of kernels._native.
#pragma once
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <utility>

#include "../include/environment.hpp"

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

// The module: its functions run in the default floating-point environment, whatever that of the caller is. Threads that
// they start have environments of their own, and need a guard each.
class Module : public py::module_ {
public:
    explicit Module(const py::module_ &m) : py::module_(m) {}

    template <typename Function, typename... Extra>
    Module &def(const char *name, Function &&function, const Extra &...extra) {
        py::module_::def(name, std::forward<Function>(function), py::call_guard<DefaultEnvironment>(), extra...);
        return *this;
    }
};

// A class of it, whose methods do so as well.
template <typename T>
class Class : public py::class_<T> {
public:
    using py::class_<T>::class_;

    template <typename Method, typename... Extra>
    Class &def(const char *name, Method &&method, const Extra &...extra) {
        py::class_<T>::def(name, std::forward<Method>(method), py::call_guard<DefaultEnvironment>(), extra...);
        return *this;
    }
    template <typename... Arguments, typename... Extra>
    Class &def(const py::detail::initimpl::constructor<Arguments...> &made, const Extra &...extra) {
        py::class_<T>::def(made, extra...);
        return *this;
    }
};

void register_accumulate(Module &m);
void register_bandwidth(Module &m);
void register_binned(Module &m);
void register_combine(Module &m);
void register_contributions_exact(Module &m);
void register_environment(Module &m);
void register_expansions(Module &m);
void register_fixed_point(Module &m);
void register_ilu(Module &m);
void register_limbs(Module &m);
void register_means(Module &m);
void register_packed(Module &m);
void register_scatter(Module &m);
void register_sizes(Module &m);
void register_spmv(Module &m);
void register_static(Module &m);
void register_stencil(Module &m);
void register_sums(Module &m);
void register_superaccumulator(Module &m);
void register_vectors(Module &m);
void register_wires(Module &m);
