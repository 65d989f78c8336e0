// The Python module kernels._native: names for the functions of kernels.hpp. Only this file and environment.cpp know
// Python, and only this one includes pybind11.
//
// A function runs in the default floating-point environment, whatever that of the caller is. Threads that it starts have
// environments of their own, and need a guard each. Arrays are never converted: a kernel would write into the copy.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "../include/processor.hpp"
#include "kernels.hpp"

namespace py = pybind11;
using i64 = std::int64_t;

PyObject *guarded_type();  // environment.cpp

namespace pybind11::detail {

inline Array view_of(handle of) {
    const auto *x = array_proxy(of.ptr());
    const auto type = reinterpret_borrow<dtype>(x->descr);
    const char order = type.byteorder();
    return {x->data, order == '<' || order == '>' ? char(0) : type.kind(), std::size_t(type.itemsize()), x->nd,
            x->dimensions, x->strides, (x->flags & npy_api::NPY_ARRAY_C_CONTIGUOUS_) != 0,
            (x->flags & npy_api::NPY_ARRAY_WRITEABLE_) != 0};
}

template <>
struct type_caster<Array> {
    PYBIND11_TYPE_CASTER(Array, const_name("numpy.ndarray"));
    bool load(handle from, bool) {
        if (!isinstance<pybind11::array>(from)) return false;
        value = view_of(from);
        return true;
    }
};

template <typename T>
struct type_caster<::array<T>> {
    using Typed = array_t<T, pybind11::array::c_style>;
    PYBIND11_TYPE_CASTER(::array<T>, handle_type_name<Typed>::name);
    bool load(handle from, bool) {
        if (!Typed::check_(from)) return false;
        value = ::array<T>(view_of(from));
        return true;
    }
};

template <>
struct type_caster<Sources> {
    PYBIND11_TYPE_CASTER(Sources, const_name("numpy.ndarray | list[numpy.ndarray]"));
    bool load(handle from, bool) {
        const auto add = [this](handle a) { value.arrays.push_back(isinstance<pybind11::array>(a) ? view_of(a) : Array()); };
        value.rows = !isinstance<list>(from);
        if (value.rows) {
            add(from);
        } else {
            value.arrays.reserve(len(from));
            for (const handle a : reinterpret_borrow<list>(from)) add(a);
        }
        return true;
    }
};

template <typename T>
struct type_caster<Made<T>> {
    static constexpr auto name = handle_type_name<array_t<T>>::name;
    static handle cast(Made<T> &&made, return_value_policy, handle) {
        T *elements = made.elements.release();
        const capsule owner(elements, [](void *all) { delete[] static_cast<T *>(all); });
        return array_t<T>(made.size, elements, owner).release();
    }
};

}  // namespace pybind11::detail

namespace {

class Module : public py::module_ {
public:
    explicit Module(const py::module_ &m) : py::module_(m) {}

    // Other Python threads run meanwhile.
    template <typename Function, typename... Extra>
    void def(const char *name, Function &&function, const Extra &...extra) {
        py::module_::def(name, std::forward<Function>(function),
                         py::call_guard<DefaultEnvironment, py::gil_scoped_release>(), extra...);
    }

    // Other Python threads wait: the call takes less time than releasing the lock.
    template <typename Function, typename... Extra>
    void def_short(const char *name, Function &&function, const Extra &...extra) {
        py::module_::def(name, std::forward<Function>(function), py::call_guard<DefaultEnvironment>(), extra...);
    }
};

constexpr std::ptrdiff_t SHORT = 1024;  // elements

template <typename Function>
auto unlocked_if_long(const Array &x, const Function &function) {
    if (x.size() <= SHORT) return function();
    const py::gil_scoped_release release;
    return function();
}

// A kernel that is looked up once and run many times, and the arrays that own its memory.
template <typename Kernel>
struct Kept {
    Kernel kernel;
    py::tuple arrays;
};

template <typename Value>
Value viewed(const py::handle &of) {
    py::detail::make_caster<Value> caster;
    if (!caster.load(of, false)) throw py::type_error("expected NumPy arrays that are C-contiguous and of the kernel's type");
    return py::detail::cast_op<Value>(std::move(caster));
}

// (used, places, values); None instead of the arrays if they are empty, as mostly.
py::tuple beside_of(int used, const Beside &beside) {
    if (beside.place.empty()) return py::make_tuple(used, py::none(), py::none());
    return py::make_tuple(used, py::array_t<long long>(beside.place.size(), beside.place.data()),
                          py::array_t<double>(beside.value.size(), beside.value.data()));
}

void define_sums(Module &m) {
    m.def("sum_lanes", sum_lanes);
    m.def("sum_left_to_right", sum_left_to_right);
    m.def("sum_pairwise", sum_pairwise);
    m.def("sum_kahan", sum_kahan);
    m.def("sum_neumaier", sum_neumaier);
    m.def("sum_omp_reduction", sum_omp_reduction);
    m.def("sum_omp_ordered", sum_omp_ordered);
    m.def("sum_omp_atomic", sum_omp_atomic);
    m.def("dot2", static_cast<double (*)(const Array &, const OtherFactor &, const std::string &)>(dot2));
    for (const auto &[name, sum] : {std::pair{"binned", binned}, {"exact", exact}, {"fixed_point", fixed_point}})
        m.def(name, sum, py::arg("x"), py::arg("y"), py::arg("element"), py::arg("threads") = 0);
    m.def_short("sum_aligned", py::overload_cast<array<double>>(sum_aligned));
    m.def_short("sum_aligned", py::overload_cast<array<float>>(sum_aligned));
    m.def("sum_partials", sum_partials);
    m.def("sum_samples", sum_samples);
    m.def("arrivals", arrivals);
}

void define_exact(Module &m) {
    m.def("exact_add", exact_add);
    m.def("exact_add_products", exact_add_products<double>);
    m.def("exact_add_products", exact_add_products<float>);
    m.def("exact_halves", exact_halves);
    m.def_short("exact_carry", exact_carry);
    m.def_short("exact_round", exact_round);
    m.def_short("exact_sum", [](const Sources &sources, const Array &out, bool marks) {
        return unlocked_if_long(out, [&] { return exact_sum(sources, out, marks); });
    }, py::arg("sources"), py::arg("out"), py::arg("marks") = false);
    m.def("exact_mean", exact_mean);
    m.def("limb_range", limb_range);
    m.def("limb_add", limb_add);
    m.def("limb_round", limb_round);
}

void define_contributions(Module &m) {
    py::class_<Kept<Combination>>(m, "Combination")
        .def(py::init([](const std::string &operation, const std::string &element, const py::sequence &sources,
                         const py::array &out) {
            const py::tuple arrays(sources);
            return std::make_unique<Kept<Combination>>(Kept<Combination>{
                {operation, element, viewed<std::vector<Array>>(arrays), viewed<Array>(out)}, py::make_tuple(arrays, out)});
        }))
        .def("__call__", [](const Kept<Combination> &of) { of.kernel.run(); }, py::call_guard<DefaultEnvironment>());
    m.def_short("combine_rows", combine_rows);
    m.def_short("address", [](const Array &a) { return std::uintptr_t(a.data()); });
    m.def("compensated_sum", compensated_sum<double>);
    m.def("compensated_sum", compensated_sum<float>);
    m.def("compensated_load", compensated_load<double>);
    m.def("compensated_load", compensated_load<float>);
    m.def_short("exact_expand", [](const Array &x, const array<double> &parts, int used) {
        Beside beside;
        used = unlocked_if_long(x, [&] { return exact_expand(x, parts, used, beside); });
        return beside_of(used, beside);
    }, py::arg("x"), py::arg("parts"), py::arg("used") = 0);
    m.def_short("exact_expand_words", [](const array<long long> &words, const array<double> &parts) {
        Beside beside;
        const int used = exact_expand_words(words, parts, beside);
        return beside_of(used, beside);
    });
    m.def_short("exact_marked", [](const Array &x) {
        const auto places = exact_marked(x);
        return py::array_t<long long>(places.size(), places.data());
    });
    m.def("expansion_load", expansion_load, py::arg("x"), py::arg("width"), py::arg("words"), py::arg("marks") = false);
    m.def("expansion_sum", expansion_sum);
    m.def("expansion_store", expansion_store);
    m.attr("EXACT_PARTS") = EXACT_PARTS;
    m.attr("MARK") = exact_mark();
}

template <typename Number>
void define_sparse(Module &m) {
    m.def("spmv_csr", spmv_csr<Number>);
    m.def("spmv_merge", spmv_merge<Number>);
    m.def("spmv_residual", spmv_residual<Number>);
    m.def("spmv_atomic", spmv_atomic<Number>);
    m.def("spmv_units", spmv_units<Number>);
    m.def_short("ilu_factor", [](const array<i64> &indptr, const array<std::int32_t> &indices, const array<Number> &data,
                                 const array<i64> &starts, bool positive, int threads) -> py::tuple {
        std::optional<py::gil_scoped_release> release(std::in_place);
        auto ilu = ilu_factor(indptr, indices, data, starts, positive, threads);
        release.reset();
        if (ilu.problem) return py::make_tuple(ilu.problem, ilu.row);
        return py::make_tuple(std::move(ilu.lower_indptr), std::move(ilu.lower_indices), std::move(ilu.lower),
                              std::move(ilu.upper_indptr), std::move(ilu.upper_indices), std::move(ilu.upper),
                              std::move(ilu.pivots), std::move(ilu.inverse), std::move(ilu.shifts));
    });
    m.def("ilu_solve", ilu_solve<Number>);
}

void define_contract(Module &m) {
    const std::vector<i64> one_block;
    m.def("contract_matmul", contract_matmul, py::arg("a"), py::arg("b"), py::arg("c"), py::arg("threads"),
          py::arg("level") = -1, py::arg("ends") = one_block);
    m.def("contract_conv", contract_conv, py::arg("what"), py::arg("x"), py::arg("w"), py::arg("y"), py::arg("stride"),
          py::arg("dilation"), py::arg("low"), py::arg("groups"), py::arg("threads"), py::arg("level") = -1,
          py::arg("ends") = one_block);
    m.def("contract_rowsum", contract_rowsum);
    m.def("contract_attention", contract_attention, py::arg("arrays"), py::arg("mask"), py::arg("logs"), py::arg("scale"),
          py::arg("causal"), py::arg("threads"), py::arg("level") = -1);
    m.def("contract_layer_norm", contract_layer_norm);
    m.def("contract_softmax", contract_softmax);
    m.def("pool_largest", pool_largest);
    m.def("pool_spread", pool_spread);
    py::dict known;
    known["levels"] = contract_levels();
    known["piece"] = contract_piece();
    m.attr("CONTRACT") = known;
}

void define_static(Module &m) {
    using Program = Kept<std::unique_ptr<StaticProgram>>;
    py::class_<Program>(m, "StaticProgram")
        .def(py::init([](const array<i64> &operations, const py::array &constants, const array<i64> &tables, i64 input,
                         i64 output, i64 arena, i64 tile) {
            return std::make_unique<Program>(Program{static_program(operations, viewed<array<float>>(constants), tables,
                                                                    input, output, arena, tile),
                                                     py::make_tuple(constants)});
        }))
        .def("run", [](const Program &of, const array<float> &x, const array<float> &y, const array<float> &scratch,
                       int threads, int level) { of.kernel->run(x, y, scratch, threads, level); },
             py::call_guard<DefaultEnvironment, py::gil_scoped_release>(), py::arg("x"), py::arg("y"), py::arg("scratch"),
             py::arg("threads"), py::arg("level") = -1);
    m.def_short("element", element, py::arg("function"), py::arg("x"), py::arg("y"), py::arg("level") = -1);
    const StaticNames names = static_names();
    py::dict known;
    for (const auto &[name, list] : names.lists) known[name] = list;
    known["registers"] = names.registers;
    known["words"] = names.words;
    m.attr("STATIC") = known;
}

template <typename Float>
void define_fused(Module &m, const char *name) {
    struct Of : Kept<std::unique_ptr<Fused>> {};
    py::class_<Of>(m, name)
        .def(py::init([](const py::sequence &vectors, const std::vector<CodedStep> &steps,
                         const std::vector<std::pair<int, int>> &dots, const std::vector<i64> &starts, int threads) {
            const py::tuple arrays(vectors);
            return std::make_unique<Of>(
                Of{{fuse(viewed<std::vector<array<Float>>>(arrays), steps, dots, starts, threads), arrays}});
        }))
        .def("run", [](Of &of, const std::optional<array<double>> &partials,
                       const std::vector<double> &values) { of.kernel->run(partials, values); },
             py::call_guard<DefaultEnvironment, py::gil_scoped_release>());
}

void define_rest(Module &m) {
    m.def("scatter_atomic", scatter_atomic);
    m.def("scatter_sorted", scatter_sorted);
    m.def("scatter_exact", scatter_exact);
    m.def("scatter_means", scatter_means);
    m.def("prefix_exact", prefix_exact);
    m.def_short("copy_runs", copy_runs);
    m.def_short("cg_update", cg_update);
    m.def_short("poisson_residual", poisson_residual);
    m.def_short("smooth_restrict", smooth_restrict);
    m.def_short("prolong_smooth", prolong_smooth);
    m.def_short("block_dots", block_dots);
    m.def("encode_cells", encode_cells);
    m.def("decode_cells", decode_cells);
    m.def("decode_add_cells", decode_add_cells);
    m.def_short("packed_bytes", packed_bytes);
    m.def("pack", pack);
    m.def("unpack", unpack);
    m.def_short("sizes", [](const Array &x, const std::string &type, i64 n, i64 count, i64 sample) {
        std::optional<py::gil_scoped_release> release(std::in_place);
        auto sizes = sizes_of(x, type, n, count, sample);
        release.reset();
        return py::cast(std::move(sizes)).attr("reshape")(n, 6);
    });
    m.def("read", read_memory, py::arg("x"), py::arg("threads") = 0);
    m.py::module_::def("processor", [] {
        const Processor own = this_processor();
        return std::make_tuple(own.vendor, own.family, own.flags);
    });
    m.attr("guarded") = py::reinterpret_steal<py::object>(guarded_type());
    // Outside the guard, which would give the caller's environment back.
    m.py::module_::def("set_default_environment", &DefaultEnvironment::set);
}

}  // namespace

PYBIND11_MODULE(_native, module) {
    module.doc() = "C++ kernels: order-free accumulators, packed integers, sums, scatter-adds, sparse products and factors, static schedules, products of matrices, block stencils, vector updates, codecs of wires";
    py::register_local_exception_translator([](std::exception_ptr raised) {
        try {
            std::rethrow_exception(raised);
        } catch (const TypeError &error) {
            PyErr_SetString(PyExc_TypeError, error.what());
        }
    });
    Module m(module);
    define_sums(m);
    define_exact(m);
    define_contributions(m);
    define_sparse<double>(m);
    define_sparse<float>(m);
    define_contract(m);
    define_static(m);
    define_fused<double>(m, "FusedFloat64");
    define_fused<float>(m, "FusedFloat32");
    define_rest(m);
}
