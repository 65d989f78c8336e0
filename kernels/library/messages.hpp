// What the library needs of MPI, and what it is without MPI: one rank. A call that fails throws MpiError.
#pragma once
#include <chrono>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "../native/binned.hpp"
#include "fpna.h"

namespace fpna {

struct MpiError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Refused : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class Join { SUM, MAX };

// Seconds in calls of the MPI library on this thread.
inline double &waited() {
    static thread_local double seconds = 0;
    return seconds;
}

#ifdef FPNA_SERIAL

struct Promised {
    explicit Promised(int) {}
    ~Promised() {}
};

inline void require_communicator(fpna_comm) {}
inline int rank_of(fpna_comm) { return 0; }
inline int size_of(fpna_comm) { return 1; }
inline void join(std::int64_t *, size_t, Join, fpna_comm) {}
inline void join(double *, size_t, Join, fpna_comm) {}
inline void join(Binned *, size_t, fpna_comm) {}
template <typename T>
std::vector<T> all_of(const std::vector<T> &own, fpna_comm) {
    return own;
}
inline std::string told_by(int, const std::string &text, fpna_comm) { return text; }

#else

// Adds the time of its life to `waited`.
class Waiting {
    using steady = std::chrono::steady_clock;
    const steady::time_point began_ = steady::now();

  public:
    Waiting() = default;
    Waiting(const Waiting &) = delete;
    Waiting &operator=(const Waiting &) = delete;
    ~Waiting() { waited() += std::chrono::duration<double>(steady::now() - began_).count(); }
};

// Tells a profiler that the calls of MPI in its life belong to a sum with this guarantee: `fpna run` records it. MPI libraries
// do nothing in MPI_Pcontrol, and profilers ignore levels that they do not know.
class Promised {
    static constexpr int LEVEL = 0x66706e61;  // "fpna"; preload/calls.cpp has the same

  public:
    explicit Promised(int guarantee) { MPI_Pcontrol(LEVEL, guarantee); }
    Promised(const Promised &) = delete;
    Promised &operator=(const Promised &) = delete;
    ~Promised() { MPI_Pcontrol(LEVEL, 0); }
};

inline void require(int code, const char *call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    PMPI_Error_string(code, text, &length);
    throw MpiError(std::string(call) + ": " + std::string(text, size_t(length)));
}

// That ranks can add over it.
inline void require_communicator(fpna_comm comm) {
    int initialized = 0, finalized = 0, inter = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (!initialized || finalized) throw Refused("MPI is not running: call it between MPI_Init and MPI_Finalize");
    if (comm == MPI_COMM_NULL) throw Refused("the communicator is MPI_COMM_NULL");
    require(MPI_Comm_test_inter(comm, &inter), "MPI_Comm_test_inter");
    if (inter) throw Refused("the communicator is between two groups: sum over one of them");
}

inline int rank_of(fpna_comm comm) {
    int rank = 0;
    require(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    return rank;
}

inline int size_of(fpna_comm comm) {
    int size = 0;
    require(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    return size;
}

// Each number becomes the sum or the largest of all ranks'.
inline void join(std::int64_t *words, size_t count, Join how, fpna_comm comm) {
    const Waiting waiting;
    require(MPI_Allreduce(MPI_IN_PLACE, words, int(count), MPI_INT64_T, how == Join::SUM ? MPI_SUM : MPI_MAX, comm),
            "MPI_Allreduce");
}

inline void join(double *numbers, size_t count, Join how, fpna_comm comm) {
    const Waiting waiting;
    require(MPI_Allreduce(MPI_IN_PLACE, numbers, int(count), MPI_DOUBLE, how == Join::SUM ? MPI_SUM : MPI_MAX, comm),
            "MPI_Allreduce");
}

inline void merge_binned(void *others, void *into, int *length, MPI_Datatype *) {
    for (int k = 0; k < *length; ++k) merge(static_cast<Binned *>(into)[k], static_cast<const Binned *>(others)[k]);
}

// The operation and the type live until the program ends: MPI frees what is left.
inline void join(Binned *sums, size_t count, fpna_comm comm) {
    struct Made {
        MPI_Op op;
        MPI_Datatype type;
        Made() {
            require(MPI_Op_create(merge_binned, 1, &op), "MPI_Op_create");
            require(MPI_Type_contiguous(int(sizeof(Binned) / 8), MPI_INT64_T, &type), "MPI_Type_contiguous");
            require(MPI_Type_commit(&type), "MPI_Type_commit");
        }
    };
    static const Made made;  // one thread makes it
    const Waiting waiting;
    require(MPI_Allreduce(MPI_IN_PLACE, sums, int(count), made.type, made.op, comm), "MPI_Allreduce");
}

// The vectors of all ranks, in their order; as long on each. T holds only bytes.
template <typename T>
std::vector<T> all_of(const std::vector<T> &own, fpna_comm comm) {
    const Waiting waiting;
    const auto bytes = int(own.size() * sizeof(T));
    std::vector<T> all(own.size() * size_t(size_of(comm)));
    require(MPI_Allgather(own.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, comm), "MPI_Allgather");
    return all;
}

// The text of that rank, on every rank.
inline std::string told_by(int rank, const std::string &text, fpna_comm comm) {
    int length = int(text.size());
    require(MPI_Bcast(&length, 1, MPI_INT, rank, comm), "MPI_Bcast");
    std::string told = text;
    told.resize(size_t(length));
    require(MPI_Bcast(&told[0], length, MPI_CHAR, rank, comm), "MPI_Bcast");
    return told;
}

#endif

// Throws on all ranks if one has refused its arguments.
inline void require_taken(const std::string &own, std::int64_t refused, fpna_comm comm) {
    if (!refused) return;
    const int rank = rank_of(comm), ranks = size_of(comm);
    std::int64_t first = own.empty() ? 0 : ranks - rank;  // the largest is of the lowest rank
    join(&first, 1, Join::MAX, comm);
    const int by = ranks - int(first);
    throw Refused("rank " + std::to_string(by) + ": " + told_by(by, own, comm));
}

}  // namespace fpna
