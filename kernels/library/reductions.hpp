// Reductions over ranks whose additions are ours: one vector of each rank, added element by element.
//
//   TREE     a balanced binary tree over the ranks, for any length, library and network: bits depend only on the
//            contributions and their number
//   EXACT    every sum rounded once, as if added without error: bits depend only on the contributions
//
// Gathers and exchanges of the MPI library move the data, and add nothing. Ranks that need the total of a short vector
// gather all contributions; of a long vector every rank adds a share (twice the vector's bytes in and out of each rank, as
// in a reduce-scatter and an all-gather).
//
// FPNA_MPI_CALL(Name) is the function of MPI that is called, MPI_Name unless it is defined before.
#pragma once
#include <algorithm>
#include <vector>

#include <mpi.h>

#include "../native/words.hpp"

#ifndef FPNA_MPI_CALL
#define FPNA_MPI_CALL(name) MPI_##name
#endif

namespace fpna {

enum class Addition { TREE, EXACT };
enum class Reducing { ALLREDUCE, REDUCE, REDUCE_SCATTER, SCAN, EXSCAN };

constexpr MPI_Aint SHORT = 1 << 15;       // bytes of all contributions together; up to here a vector is short
constexpr MPI_Aint MOST = (1 << 30) - 1;  // numbers in one call of the library

// Adds `rows`, n contributions of `length` numbers each in the order of ranks, into `total`. Overwrites the rows.
template <typename Float>
void add_rows_of_ranks(Addition addition, Float *rows, std::size_t n, std::size_t length, Float *total) {
    if (addition == Addition::EXACT) {
        for (std::size_t i = 0; i < length; ++i) total[i] = superaccumulator::rounded_sum(rows + i, n, length);
        return;
    }
    for (std::size_t step = 1; step < n; step *= 2)
        for (std::size_t r = 0; r + step < n; r += 2 * step)
            for (std::size_t i = 0; i < length; ++i) rows[r * length + i] += rows[(r + step) * length + i];
    for (std::size_t i = 0; i < length; ++i) total[i] = rows[i] + Float(0);  // zeros of any signs are +0.0
}

// One reduction of `length` numbers of the MPI type `basic`. `shares`: those of each rank, of a REDUCE_SCATTER. `send` and
// `recv` may be the same. `run` returns a code of MPI.
template <typename Float>
class Reduction {
  public:
    Reduction(Reducing kind, Addition addition, const Float *send, Float *recv, int length, MPI_Datatype basic,
              MPI_Comm comm, int root = 0, std::vector<int> shares = {})
        : kind_(kind), addition_(addition), send_(send), recv_(recv), length_(length), basic_(basic), comm_(comm),
          root_(root), shares_(std::move(shares)) {
        FPNA_MPI_CALL(Comm_size)(comm, &size_);
        FPNA_MPI_CALL(Comm_rank)(comm, &rank_);
    }

    int run() {
        if (kind_ == Reducing::SCAN || kind_ == Reducing::EXSCAN) return scan();
        if (kind_ == Reducing::REDUCE_SCATTER) return exchange(recv_);
        if (MPI_Aint(length_) * size_ * MPI_Aint(sizeof(Float)) <= SHORT) return gather();
        shares_.resize(std::size_t(size_));
        for (int r = 0; r < size_; ++r) shares_[std::size_t(r)] = length_ / size_ + (r < length_ % size_);
        std::vector<Float> own(static_cast<std::size_t>(shares_[std::size_t(rank_)]));
        if (const int code = exchange(own.data())) return code;
        const std::vector<int> places = starts();
        if (kind_ == Reducing::ALLREDUCE)
            return FPNA_MPI_CALL(Allgatherv)(own.data(), int(own.size()), basic_, recv_, shares_.data(), places.data(),
                                             basic_, comm_);
        return FPNA_MPI_CALL(Gatherv)(own.data(), int(own.size()), basic_, recv_, shares_.data(), places.data(), basic_,
                                      root_, comm_);
    }

  private:
    // Gathers all contributions on each rank that gets the total, and adds them there.
    int gather() {
        const bool gets = kind_ == Reducing::ALLREDUCE || rank_ == root_;
        std::vector<Float> rows(gets ? std::size_t(length_) * std::size_t(size_) : 0);
        const int code =
            kind_ == Reducing::ALLREDUCE
                ? FPNA_MPI_CALL(Allgather)(send_, length_, basic_, rows.data(), length_, basic_, comm_)
                : FPNA_MPI_CALL(Gather)(send_, length_, basic_, rows.data(), length_, basic_, root_, comm_);
        if (code == MPI_SUCCESS && gets) add(rows, std::size_t(size_), std::size_t(length_), recv_);
        return code;
    }

    // Sends each rank its share of all contributions; each adds its share into `total`.
    int exchange(Float *total) {
        const int own = shares_[std::size_t(rank_)];
        std::vector<Float> rows(std::size_t(own) * std::size_t(size_));
        std::vector<int> counts(std::size_t(size_), own), places(std::size_t(size_), 0);
        for (int r = 1; r < size_; ++r) places[std::size_t(r)] = places[std::size_t(r - 1)] + own;
        const int code = FPNA_MPI_CALL(Alltoallv)(send_, shares_.data(), starts().data(), basic_, rows.data(),
                                                  counts.data(), places.data(), basic_, comm_);
        if (code == MPI_SUCCESS) add(rows, std::size_t(size_), std::size_t(own), total);
        return code;
    }

    int scan() {
        std::vector<Float> rows(std::size_t(length_) * std::size_t(size_));
        const int code = FPNA_MPI_CALL(Allgather)(send_, length_, basic_, rows.data(), length_, basic_, comm_);
        const int taken = rank_ + (kind_ == Reducing::SCAN);
        if (code == MPI_SUCCESS && taken) add(rows, std::size_t(taken), std::size_t(length_), recv_);
        return code;
    }

    void add(std::vector<Float> &rows, std::size_t n, std::size_t length, Float *total) const {
        add_rows_of_ranks(addition_, rows.data(), n, length, total);
    }

    std::vector<int> starts() const {
        std::vector<int> places(std::size_t(size_), 0);
        for (int r = 1; r < size_; ++r) places[std::size_t(r)] = places[std::size_t(r - 1)] + shares_[std::size_t(r - 1)];
        return places;
    }

    Reducing kind_;
    Addition addition_;
    const Float *send_;
    Float *recv_;
    int length_;
    MPI_Datatype basic_;
    MPI_Comm comm_;
    int root_;
    std::vector<int> shares_;
    int size_ = 0, rank_ = 0;
};

}  // namespace fpna
