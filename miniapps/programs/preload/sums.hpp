// Sums of float and double that this library adds itself, in an order that does not depend on the MPI library.
//
//   tree     a balanced binary tree over the ranks, for any length, library and network: bits depend only on the
//            contributions and their number
//   exact    every sum rounded once, as if added without error: bits depend only on the contributions
//
// It adds in the default floating-point environment and restores the program's environment afterwards, with its flags.
//
// Gathers and exchanges of the MPI library move the data, and add nothing. Ranks that need the total of a short vector
// gather all contributions; of a long vector every rank adds a share (twice the vector's bytes in and out of each rank, as
// in a reduce-scatter and an all-gather).
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <mpi.h>

#include "include/environment.hpp"
#include "include/superaccumulator.hpp"
#include "recorder.hpp"

namespace fpna {

enum class Order { LIBRARY, TREE, EXACT };
inline Order order = Order::LIBRARY;

constexpr MPI_Aint SHORT = 1 << 15;     // bytes of all contributions together; up to here a vector is short
constexpr MPI_Aint MOST = (1 << 30) - 1;  // elements in one call of the library

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

// The sum of x[0], x[stride], ... (n numbers), rounded once. Adds and keeps the rounding errors (Knuth's TwoSum); if they do
// not decide the rounding of the sum, adds all again without error.
template <typename Float>
Float exact_sum(const Float *x, std::size_t n, std::size_t stride) {
    double sum = 0, error = 0, size = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const double value = x[i * stride], before = sum;
        sum += value;
        const double part = sum - before, lost = (before - (sum - part)) + (value - part);
        error += lost;
        size += std::fabs(lost);
    }
    const double bound = double(n) * 0x1p-52 * size;
    if (sizeof(Float) == sizeof(double)) {
        const double low = sum + (error - bound), high = sum + (error + bound);
        if (low == high && low != 0) return Float(low);
    } else {  // this rounds twice, so widen the bounds by one unit of double on each side
        const Float low = Float(std::nextafter(sum + (error - bound), -INFINITY));
        const Float high = Float(std::nextafter(sum + (error + bound), INFINITY));
        if (low == high && low != 0) return low;
    }
    long long words[WORDS] = {}, room[CHUNKS];
    for (std::size_t i = 0; i < n; ++i) {
        deposit(words, x[i * stride]);
        if (i % 512 == 511) carry(words);
    }
    return round_words<Float>(words, room);
}

// Adds `rows`, n contributions of `length` numbers each in the order of ranks, into `total`. Overwrites the rows.
template <typename Float>
void add(Float *rows, std::size_t n, std::size_t length, Float *total) {
    if (order == Order::EXACT) {
        for (std::size_t i = 0; i < length; ++i) total[i] = exact_sum(rows + i, n, length);
        return;
    }
    for (std::size_t step = 1; step < n; step *= 2)
        for (std::size_t r = 0; r + step < n; r += 2 * step)
            for (std::size_t i = 0; i < length; ++i) rows[r * length + i] += rows[(r + step) * length + i];
    std::copy(rows, rows + length, total);
}

// One reduction that this library adds.
template <typename Float>
class Sum {
  public:
    Sum(const Shape &shape, MPI_Datatype basic, int each)
        : shape_(shape), basic_(basic), length_(int(shape.count * each)), send_(static_cast<const Float *>(shape.send)),
          recv_(static_cast<Float *>(shape.recv)) {
        PMPI_Comm_size(shape.comm, &size_);
        PMPI_Comm_rank(shape.comm, &rank_);
        for (MPI_Aint share : shape.shares) shares_.push_back(int(share * each));
    }

    int run() {
        switch (shape_.kind) {
            case SCAN:
            case EXSCAN: return scan();
            case REDUCE_SCATTER:
            case REDUCE_SCATTER_BLOCK: return exchange(recv_);
            default: break;
        }
        const bool gets = shape_.kind == ALLREDUCE || rank_ == shape_.peer;
        if (MPI_Aint(length_) * size_ * MPI_Aint(sizeof(Float)) <= SHORT) return gather(gets);
        shares_.resize(std::size_t(size_));
        for (int r = 0; r < size_; ++r) shares_[std::size_t(r)] = length_ / size_ + (r < length_ % size_);
        std::vector<Float> own(static_cast<std::size_t>(shares_[std::size_t(rank_)]));
        if (const int code = exchange(own.data())) return code;
        const std::vector<int> places = starts();
        if (shape_.kind == ALLREDUCE)
            return PMPI_Allgatherv(own.data(), int(own.size()), basic_, recv_, shares_.data(), places.data(), basic_,
                                   shape_.comm);
        return PMPI_Gatherv(own.data(), int(own.size()), basic_, recv_, shares_.data(), places.data(), basic_, shape_.peer,
                            shape_.comm);
    }

  private:
    // Gathers all contributions on each rank that gets the total, and adds them there.
    int gather(bool gets) {
        std::vector<Float> rows(gets ? std::size_t(length_) * std::size_t(size_) : 0);
        const int code = shape_.kind == ALLREDUCE
                             ? PMPI_Allgather(send_, length_, basic_, rows.data(), length_, basic_, shape_.comm)
                             : PMPI_Gather(send_, length_, basic_, rows.data(), length_, basic_, shape_.peer, shape_.comm);
        if (code == MPI_SUCCESS && gets) add(rows.data(), std::size_t(size_), std::size_t(length_), recv_);
        return code;
    }

    // Sends each rank its share of all contributions; each adds its share into `total`.
    int exchange(Float *total) {
        const int own = shares_[std::size_t(rank_)];
        std::vector<Float> rows(std::size_t(own) * std::size_t(size_));
        std::vector<int> counts(std::size_t(size_), own), places(std::size_t(size_), 0);
        for (int r = 1; r < size_; ++r) places[std::size_t(r)] = places[std::size_t(r - 1)] + own;
        const int code = PMPI_Alltoallv(send_, shares_.data(), starts().data(), basic_, rows.data(), counts.data(),
                                        places.data(), basic_, shape_.comm);
        if (code == MPI_SUCCESS) add(rows.data(), std::size_t(size_), std::size_t(own), total);
        return code;
    }

    int scan() {
        std::vector<Float> rows(std::size_t(length_) * std::size_t(size_));
        const int code = PMPI_Allgather(send_, length_, basic_, rows.data(), length_, basic_, shape_.comm);
        const int taken = rank_ + (shape_.kind == SCAN);
        if (code == MPI_SUCCESS && taken) add(rows.data(), std::size_t(taken), std::size_t(length_), recv_);
        return code;
    }

    std::vector<int> starts() const {
        std::vector<int> places(std::size_t(size_), 0);
        for (int r = 1; r < size_; ++r) places[std::size_t(r)] = places[std::size_t(r - 1)] + shares_[std::size_t(r - 1)];
        return places;
    }

    const Shape &shape_;
    MPI_Datatype basic_;
    int length_, size_ = 0, rank_ = 0;
    const Float *send_;
    Float *recv_;
    std::vector<int> shares_;
};

inline int answer(const Shape &shape) {
    const DefaultEnvironment environment;
    const Elements elements = elements_of(shape.type);
    return elements.basic == MPI_DOUBLE ? Sum<double>(shape, MPI_DOUBLE, elements.each).run()
                                        : Sum<float>(shape, MPI_FLOAT, elements.each).run();
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
