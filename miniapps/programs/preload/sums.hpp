// Sums of float and double that this library adds itself, in an order that does not depend on the MPI library
// (kernels/library/reductions.hpp). It adds in the default floating-point environment and restores the program's
// environment afterwards, with its flags.
#pragma once

#include <vector>

#include <mpi.h>

#define FPNA_MPI_CALL(name) PMPI_##name
#include "library/reductions.hpp"
#include "recorder.hpp"

namespace fpna {

enum class Order { LIBRARY, TREE, EXACT };
inline Order order = Order::LIBRARY;

// The basic type of the numbers in an element, and their number (2 for a complex number); 0 for types not added here.
struct Elements {
    MPI_Datatype basic = MPI_DATATYPE_NULL;
    int each = 0;
};

// The sizes of types of other languages depend on how the MPI library and the compilers were built.
inline Elements elements_of(MPI_Datatype type) {
    enum Family { REAL, COMPLEX };
    static const std::pair<MPI_Datatype, Family> known_types[] = {
        {MPI_DOUBLE, REAL}, {MPI_FLOAT, REAL}, {MPI_C_DOUBLE_COMPLEX, COMPLEX}, {MPI_C_FLOAT_COMPLEX, COMPLEX},
        {MPI_CXX_DOUBLE_COMPLEX, COMPLEX}, {MPI_CXX_FLOAT_COMPLEX, COMPLEX}, {MPI_DOUBLE_PRECISION, REAL},
        {MPI_REAL8, REAL}, {MPI_REAL4, REAL}, {MPI_REAL, REAL}, {MPI_COMPLEX, COMPLEX}, {MPI_DOUBLE_COMPLEX, COMPLEX},
        {MPI_COMPLEX8, COMPLEX}, {MPI_COMPLEX16, COMPLEX}};
    static thread_local std::pair<MPI_Datatype, Elements> last{MPI_DATATYPE_NULL, {}};
    if (type == MPI_DATATYPE_NULL) return {};
    if (type == last.first) return last.second;
    int family = -1;
    for (const auto &[name, own] : known_types)
        if (name == type) family = own;
    if (family < 0) {  // by precision and range, as Fortran's selected_real_kind
        const int combiner = made(type, false).combiner;
        family = combiner == MPI_COMBINER_F90_REAL ? REAL : combiner == MPI_COMBINER_F90_COMPLEX ? COMPLEX : -1;
    }
    if (family < 0) return {};
    int bytes = 0;
    PMPI_Type_size(type, &bytes);
    const int each = family == COMPLEX ? 2 : 1;
    Elements elements;
    if (bytes == each * int(sizeof(double)))
        elements = {MPI_DOUBLE, each};
    else if (bytes == each * int(sizeof(float)))
        elements = {MPI_FLOAT, each};
    last = {type, elements};  // these are never freed
    return elements;
}

// Whether this library adds a reduction. All ranks decide the same, by arguments that MPI requires to be equal on all.
inline bool answers(const Shape &shape) {
    if (order == Order::LIBRARY || shape.op != MPI_SUM || !elements_of(shape.type).each) return false;
    int inter = 0;
    PMPI_Comm_test_inter(shape.comm, &inter);
    return !inter && shape.count * elements_of(shape.type).each <= MOST;
}

template <typename Float>
int add(const Shape &shape, MPI_Datatype basic, int each) {
    static const std::pair<Kind, Reducing> kinds[] = {
        {ALLREDUCE, Reducing::ALLREDUCE}, {REDUCE, Reducing::REDUCE}, {REDUCE_SCATTER, Reducing::REDUCE_SCATTER},
        {REDUCE_SCATTER_BLOCK, Reducing::REDUCE_SCATTER}, {SCAN, Reducing::SCAN}, {EXSCAN, Reducing::EXSCAN}};
    const auto kind = std::find_if(std::begin(kinds), std::end(kinds), [&](auto &k) { return k.first == shape.kind; });
    std::vector<int> shares;
    for (MPI_Aint share : shape.shares) shares.push_back(int(share * each));
    return Reduction<Float>(kind->second, order == Order::EXACT ? Addition::EXACT : Addition::TREE,
                            static_cast<const Float *>(shape.send), static_cast<Float *>(shape.recv),
                            int(shape.count * each), basic, shape.comm, shape.peer, shares)
        .run();
}

inline int answer(const Shape &shape) {
    const DefaultEnvironment environment;
    const Elements elements = elements_of(shape.type);
    return elements.basic == MPI_DOUBLE ? add<double>(shape, MPI_DOUBLE, elements.each)
                                        : add<float>(shape, MPI_FLOAT, elements.each);
}

// The MPI library's reduction of this shape, with the contribution at `shape.send`.
inline int reduce_by_library(const Shape &shape) {
    const void *send = shape.send;
    const int count = int(shape.count);
    std::vector<int> shares(shape.shares.begin(), shape.shares.end());
    switch (shape.kind) {
        case ALLREDUCE: return PMPI_Allreduce(send, shape.recv, count, shape.type, shape.op, shape.comm);
        case REDUCE: return PMPI_Reduce(send, shape.recv, count, shape.type, shape.op, shape.peer, shape.comm);
        case REDUCE_SCATTER: return PMPI_Reduce_scatter(send, shape.recv, shares.data(), shape.type, shape.op, shape.comm);
        case REDUCE_SCATTER_BLOCK:
            return PMPI_Reduce_scatter_block(send, shape.recv, shares[0], shape.type, shape.op, shape.comm);
        case SCAN: return PMPI_Scan(send, shape.recv, count, shape.type, shape.op, shape.comm);
        default: return PMPI_Exscan(send, shape.recv, count, shape.type, shape.op, shape.comm);
    }
}

// Whether the contribution to this reduction is disturbed: this rank has one, and the reduction rounds.
inline bool disturbs(const Shape &shape) {
    if (!disturbing || direction >= 0 || (shape.op != MPI_SUM && shape.op != MPI_PROD) || !shape.send) return false;
    int inter = 0;
    PMPI_Comm_test_inter(shape.comm, &inter);
    const MPI_Aint each = elements_of(shape.type).each;
    return !inter && each && shape.count >= 0 && shape.count * each <= MOST;
}

// A contribution, moved by at most one unit in the last place of each number.
class Disturbed {
  public:
    explicit Disturbed(const Shape &shape) {
        const DefaultEnvironment environment;
        const Elements elements = elements_of(shape.type);
        const std::size_t n = std::size_t(shape.count) * std::size_t(elements.each);
        if (elements.basic == MPI_DOUBLE)
            move(doubles_, static_cast<const double *>(shape.send), n);
        else
            move(floats_, static_cast<const float *>(shape.send), n);
    }
    const void *data() const { return data_; }

  private:
    template <typename Float>
    void move(std::vector<Float> &moved, const Float *given, std::size_t n) {
        moved.assign(given, given + n);
        disturb(moved.data(), n);
        data_ = moved.data();
    }

    std::vector<double> doubles_;
    std::vector<float> floats_;
    const void *data_ = nullptr;
};

// Runs and records a blocking collective, by the MPI library or as a sum of this library.
template <typename Run>
int collective(Shape shape, std::uint64_t site, Run run) {
    shape.replaced = answers(shape);
    if (disturbs(shape)) {
        const Disturbed contribution(shape);
        shape.send = contribution.data();
        shape.in = {{shape.send, shape.count, shape.type}};
        return observed(shape, site, [&] { return shape.replaced ? answer(shape) : reduce_by_library(shape); });
    }
    return shape.replaced ? observed(shape, site, [&] { return answer(shape); }) : observed(shape, site, run);
}

}  // namespace fpna
