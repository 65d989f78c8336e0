// Sums of this library that are begun and end later: nonblocking and persistent reductions.
//
// The MPI library gathers the contributions meanwhile, in one message of any length, so that requests of one communicator may
// end in any order. They are added when the program learns that its request has ended. Each needs memory for all
// contributions that its rank adds.
#pragma once

#include <memory>
#include <vector>

#include <mpi.h>

#include "requests.hpp"
#include "sums.hpp"

namespace fpna {

class Later {
  public:
    explicit Later(const Shape &shape) : shape_(shape), basic_(elements_of(shape.type).basic) {
        const int each = elements_of(shape.type).each;
        PMPI_Comm_size(shape.comm, &ranks_);
        PMPI_Comm_rank(shape.comm, &rank_);
        length_ = int(shape.count * each);
        rows_ = ranks_;
        if (shape.kind == REDUCE && rank_ != shape.peer) rows_ = 0;
        if (shape.kind == SCAN) rows_ = rank_ + 1;
        if (shape.kind == EXSCAN) rows_ = rank_;
        for (MPI_Aint share : shape.shares) {
            starts_.push_back(shares_.empty() ? 0 : starts_.back() + shares_.back());
            shares_.push_back(int(share * each));
        }
        if (!shares_.empty()) {
            length_ = shares_[std::size_t(rank_)];
            counts_.assign(std::size_t(ranks_), length_);
            for (int r = 0; r < ranks_; ++r) places_.push_back(r * length_);
        }
        const bool gets = shape.kind != REDUCE || rank_ == shape.peer;
        room_.resize(gets ? std::size_t(length_) * std::size_t(ranks_) : 0);
    }

    // Begins the message.
    int begin(MPI_Request *request) {
        if (!shares_.empty())
            return PMPI_Ialltoallv(shape_.send, shares_.data(), starts_.data(), basic_, room_.data(), counts_.data(),
                                   places_.data(), basic_, shape_.comm, request);
        if (shape_.kind == REDUCE)
            return PMPI_Igather(shape_.send, length_, basic_, room_.data(), length_, basic_, shape_.peer, shape_.comm,
                                request);
        return PMPI_Iallgather(shape_.send, length_, basic_, room_.data(), length_, basic_, shape_.comm, request);
    }

#if OF_MPI_4
    // Prepares the message, which MPI_Start begins.
    int prepare(MPI_Info info, MPI_Request *request) {
        if (!shares_.empty())
            return PMPI_Alltoallv_init(shape_.send, shares_.data(), starts_.data(), basic_, room_.data(), counts_.data(),
                                       places_.data(), basic_, shape_.comm, info, request);
        if (shape_.kind == REDUCE)
            return PMPI_Gather_init(shape_.send, length_, basic_, room_.data(), length_, basic_, shape_.peer, shape_.comm,
                                    info, request);
        return PMPI_Allgather_init(shape_.send, length_, basic_, room_.data(), length_, basic_, shape_.comm, info, request);
    }
#endif

    void add() {
        if (!rows_) return;
        const DefaultEnvironment environment;
        if (basic_ == MPI_DOUBLE)
            add_as<double>();
        else
            add_as<float>();
    }

  private:
    template <typename Float>
    void add_as() {
        add_rows_of_ranks(order == Order::EXACT ? Addition::EXACT : Addition::TREE, reinterpret_cast<Float *>(room_.data()),
                          std::size_t(rows_), std::size_t(length_), static_cast<Float *>(shape_.recv));
    }

    Shape shape_;
    MPI_Datatype basic_;
    int ranks_ = 0, rank_ = 0, length_ = 0, rows_ = 0;
    std::vector<int> shares_, starts_, counts_, places_;  // of a reduce-scatter
    std::vector<double> room_;                            // for numbers of either type
};

// Begins and records a nonblocking collective, by the MPI library or as a sum of this library. `given(request)`: tells the
// program its request.
template <typename Run, typename Request, typename Give>
int nonblocking(Shape shape, std::uint64_t site, Run run, Request request, Give give) {
    shape.replaced = answers(shape);
    if (!shape.replaced) return started(shape, site, run, request);
    const auto later = std::make_shared<Later>(shape);
    const auto begin = [&] {
        MPI_Request own = MPI_REQUEST_NULL;
        const int code = later->begin(&own);
        give(own);
        return code;
    };
    return started(shape, site, begin, request, [later] { later->add(); });
}

#if OF_MPI_4
template <typename Run>
int persistent_collective(Shape shape, std::uint64_t site, Run run, MPI_Info info, MPI_Request *request) {
    shape.replaced = answers(shape);
    if (!shape.replaced) return prepared(shape, site, run, [=] { return *request; });
    const auto later = std::make_shared<Later>(shape);
    return prepared(
        shape, site, [&] { return later->prepare(info, request); }, [=] { return *request; }, [later] { later->add(); });
}
#endif

}  // namespace fpna
