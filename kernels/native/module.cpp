// The Python module kernels._native: each source file here registers its own functions.
#include "contract.hpp"
#include "contract_attention.hpp"
#include "native.hpp"

PYBIND11_MODULE(_native, module) {
    module.doc() = "C++ kernels: order-free accumulators, packed integers, sums, scatter-adds, sparse products and factors, static schedules, products of matrices, block stencils, vector updates, codecs of wires";
    Module m(module);
    register_accumulate(m);
    register_bandwidth(m);
    register_binned(m);
    register_combine(m);
    register_contract(m);
    register_contract_attention(m);
    register_contributions_exact(m);
    register_environment(m);
    register_expansions(m);
    register_fixed_point(m);
    register_ilu(m);
    register_limbs(m);
    register_means(m);
    register_packed(m);
    register_scatter(m);
    register_sizes(m);
    register_spmv(m);
    register_static(m);
    register_stencil(m);
    register_sums(m);
    register_superaccumulator(m);
    register_vectors(m);
    register_wires(m);
}
