// The calls of MPI that Fortran programs make: observed here, where the call site is the program's, and passed on to the
// library's own Fortran functions. (Open MPI's call its C functions by names that cannot be intercepted.)
//
// `mpi_x_` is called by programs that include mpif.h or use the module mpi; with the module mpi_f08, Open MPI calls
// `mpi_x_f08_`, whose arguments are passed alike, and MPICH its C functions, whose site is then in MPICH's library.
#include <cstdio>
#include <cstdlib>

#include "start.hpp"

#ifndef MPI_ABI_VERSION  // the ABI of MPI 5 leaves Fortran to libraries of its own

using namespace fpna;

#define LIST(...) __VA_ARGS__
#define EACH_BINDING(X, ...) X(_, __VA_ARGS__) X(_f08_, __VA_ARGS__)

namespace {

// The library's own function of this name.
template <typename Function>
Function next(const char *name) {
    void *place = dlsym(RTLD_NEXT, name);
    if (!place) {
        std::fprintf(stderr, "fpna run: no %s behind the one that observes: the program is linked in a way that is not "
                     "supported\n", name);
        std::abort();
    }
    return reinterpret_cast<Function>(place);
}

// Where Fortran's MPI_IN_PLACE and MPI_BOTTOM lie: in common blocks whose names are the library's.
const void *sentinel(const char *openmpi, const char *mpich) {
    if (void *place = dlsym(RTLD_DEFAULT, openmpi)) return place;
    void **place = static_cast<void **>(dlsym(RTLD_DEFAULT, mpich));
    return place ? *place : nullptr;
}

// A buffer of Fortran as C has it.
template <typename Buffer>
Buffer *at(Buffer *buffer) {
    static const void *in_place = sentinel("mpi_fortran_in_place_", "MPIR_F_MPI_IN_PLACE");
    static const void *bottom = sentinel("mpi_fortran_bottom_", "MPIR_F_MPI_BOTTOM");
    if (in_place && buffer == in_place) return static_cast<Buffer *>(const_cast<void *>(static_cast<const void *>(MPI_IN_PLACE)));
    if (bottom && buffer == bottom) return static_cast<Buffer *>(MPI_BOTTOM);
    return buffer;
}

MPI_Comm comm_of(const MPI_Fint *handle) { return PMPI_Comm_f2c(*handle); }
MPI_Datatype type_of(const MPI_Fint *handle) { return PMPI_Type_f2c(*handle); }
MPI_Op op_of(const MPI_Fint *handle) { return PMPI_Op_f2c(*handle); }
MPI_Request request_of(const MPI_Fint *handle) { return PMPI_Request_f2c(*handle); }

constexpr std::size_t STATUS = 32;  // integers: more than a status has in any library

bool ignored(const MPI_Fint *status) {
    return status == nullptr || status == MPI_F_STATUS_IGNORE || status == MPI_F_STATUSES_IGNORE;
}

// A status of Fortran, which the library writes: the program's, or one of ours where it wants none.
class Status {
  public:
    explicit Status(MPI_Fint *given) : place_(ignored(given) ? own_ : given) {}
    MPI_Fint *place() { return place_; }
    MPI_Status *c() {
        PMPI_Status_f2c(place_, &status_);
        return &status_;
    }

  private:
    MPI_Fint own_[STATUS] = {}, *place_;
    MPI_Status status_;
};

// Integers of one status in an array of them: what the library itself says.
int status_size() {
    return int(sizeof(MPI_Status) / sizeof(MPI_Fint));
}

class FortranCompletion {
  public:
    FortranCompletion(const MPI_Fint *requests, int count, MPI_Fint *given) : on_(on() && under_way), given_(given) {
        if (!on_) return;
        inside = true;
        for (int i = 0; i < count; ++i) handles_.push_back(number_of(request_of(requests + i)));
        if (ignored(given)) own_.resize(STATUS * std::size_t(count + 1));
    }
    ~FortranCompletion() {
        if (on_) inside = false;
    }
    MPI_Fint *statuses() { return own_.empty() ? given_ : own_.data(); }
    void all() {
        std::vector<int> which;
        for (std::size_t i = 0; i < handles_.size(); ++i) which.push_back(int(i));
        done(which);
    }
    // The i-th status is that of request which[i].
    void done(const std::vector<int> &which) {
        if (!on_) return;
        const std::lock_guard<std::mutex> held(lock);
        for (std::size_t i = 0; i < which.size(); ++i) {
            MPI_Status status;
            PMPI_Status_f2c(statuses() + i * std::size_t(status_size()), &status);
            complete(handles_[std::size_t(which[i])], status);
        }
    }

  private:
    bool on_;
    MPI_Fint *given_;
    std::vector<std::uint64_t> handles_;
    std::vector<MPI_Fint> own_;
};

}  // namespace

extern "C" {

#define BEGIN(SUFFIX, LOWER, PARAMETERS)                                        \
    void mpi_##LOWER##SUFFIX(LIST PARAMETERS, MPI_Fint *code) {                 \
        static const auto real = next<decltype(&mpi_##LOWER##SUFFIX)>("mpi_" #LOWER #SUFFIX); \
        MPI_Fint own_code = 0;                                                  \
        if (!code) code = &own_code;

#define INIT(SUFFIX)                                                            \
    void mpi_init##SUFFIX(MPI_Fint *code) {                                     \
        static const auto real = next<decltype(&mpi_init##SUFFIX)>("mpi_init" #SUFFIX); \
        require_launch();                                                       \
        real(code);                                                             \
        start();                                                                \
    }                                                                           \
    BEGIN(SUFFIX, init_thread, (MPI_Fint *required, MPI_Fint *provided))        \
        require_launch();                                                       \
        real(required, provided, code);                                         \
        start();                                                                \
    }                                                                           \
    void mpi_finalize##SUFFIX(MPI_Fint *code) {                                 \
        static const auto real = next<decltype(&mpi_finalize##SUFFIX)>("mpi_finalize" #SUFFIX); \
        stop();                                                                 \
        real(code);                                                             \
    }
INIT(_)
INIT(_f08_)

// A collective, blocking and nonblocking. SHAPE is of the arguments as C has them.
#define COLLECTIVE(SUFFIX, LOWER, PARAMETERS, ARGUMENTS, SHAPE)                                     \
    BEGIN(SUFFIX, LOWER, PARAMETERS)                                                                \
        const auto run = [&] { return real(LIST ARGUMENTS, code), *code; };                         \
        if (on())                                                                                   \
            *code = collective(SHAPE, SITE, run);                                                   \
        else                                                                                        \
            run();                                                                                  \
    }                                                                                               \
    BEGIN(SUFFIX, i##LOWER, (LIST PARAMETERS, MPI_Fint *request))                                   \
        const auto run = [&] { return real(LIST ARGUMENTS, request, code), *code; };                \
        if (on())                                                                                   \
            started(SHAPE, SITE, run, [&] { return request_of(request); });                         \
        else                                                                                        \
            run();                                                                                  \
    }

#define F MPI_Fint

EACH_BINDING(COLLECTIVE, allreduce, (void *send, void *recv, F *count, F *type, F *op, F *comm),
             (send, recv, count, type, op, comm),
             allreduce(at(send), at(recv), *count, type_of(type), op_of(op), comm_of(comm)))
EACH_BINDING(COLLECTIVE, reduce, (void *send, void *recv, F *count, F *type, F *op, F *root, F *comm),
             (send, recv, count, type, op, root, comm),
             reduce(at(send), at(recv), *count, type_of(type), op_of(op), *root, comm_of(comm)))
EACH_BINDING(COLLECTIVE, reduce_scatter, (void *send, void *recv, F *counts, F *type, F *op, F *comm),
             (send, recv, counts, type, op, comm),
             reduce_scatter(at(send), at(recv), counts, type_of(type), op_of(op), comm_of(comm)))
EACH_BINDING(COLLECTIVE, reduce_scatter_block, (void *send, void *recv, F *count, F *type, F *op, F *comm),
             (send, recv, count, type, op, comm),
             reduce_scatter_block(at(send), at(recv), *count, type_of(type), op_of(op), comm_of(comm)))
EACH_BINDING(COLLECTIVE, scan, (void *send, void *recv, F *count, F *type, F *op, F *comm),
             (send, recv, count, type, op, comm),
             scan(at(send), at(recv), *count, type_of(type), op_of(op), comm_of(comm)))
EACH_BINDING(COLLECTIVE, exscan, (void *send, void *recv, F *count, F *type, F *op, F *comm),
             (send, recv, count, type, op, comm),
             exscan(at(send), at(recv), *count, type_of(type), op_of(op), comm_of(comm)))
EACH_BINDING(COLLECTIVE, bcast, (void *data, F *count, F *type, F *root, F *comm), (data, count, type, root, comm),
             bcast(at(data), *count, type_of(type), *root, comm_of(comm)))
EACH_BINDING(COLLECTIVE, allgather, (void *send, F *count, F *type, void *recv, F *each, F *to, F *comm),
             (send, count, type, recv, each, to, comm),
             allgather(at(send), *count, type_of(type), at(recv), *each, type_of(to), comm_of(comm)))
EACH_BINDING(COLLECTIVE, allgatherv,
             (void *send, F *count, F *type, void *recv, F *counts, F *places, F *to, F *comm),
             (send, count, type, recv, counts, places, to, comm),
             allgatherv(at(send), *count, type_of(type), at(recv), counts, places, type_of(to), comm_of(comm)))
EACH_BINDING(COLLECTIVE, alltoall, (void *send, F *count, F *type, void *recv, F *each, F *to, F *comm),
             (send, count, type, recv, each, to, comm),
             alltoall(at(send), *count, type_of(type), at(recv), *each, type_of(to), comm_of(comm)))
EACH_BINDING(COLLECTIVE, alltoallv,
             (void *send, F *counts, F *places, F *type, void *recv, F *recv_counts, F *recv_places, F *to, F *comm),
             (send, counts, places, type, recv, recv_counts, recv_places, to, comm),
             alltoallv(at(send), counts, places, type_of(type), at(recv), recv_counts, recv_places, type_of(to),
                       comm_of(comm)))
EACH_BINDING(COLLECTIVE, gather, (void *send, F *count, F *type, void *recv, F *each, F *to, F *root, F *comm),
             (send, count, type, recv, each, to, root, comm),
             gather(at(send), *count, type_of(type), at(recv), *each, type_of(to), *root, comm_of(comm)))
EACH_BINDING(COLLECTIVE, gatherv,
             (void *send, F *count, F *type, void *recv, F *counts, F *places, F *to, F *root, F *comm),
             (send, count, type, recv, counts, places, to, root, comm),
             gatherv(at(send), *count, type_of(type), at(recv), counts, places, type_of(to), *root, comm_of(comm)))
EACH_BINDING(COLLECTIVE, scatter, (void *send, F *count, F *type, void *recv, F *each, F *to, F *root, F *comm),
             (send, count, type, recv, each, to, root, comm),
             scatter(at(send), *count, type_of(type), at(recv), *each, type_of(to), *root, comm_of(comm)))
EACH_BINDING(COLLECTIVE, scatterv,
             (void *send, F *counts, F *places, F *type, void *recv, F *each, F *to, F *root, F *comm),
             (send, counts, places, type, recv, each, to, root, comm),
             scatterv(at(send), counts, places, type_of(type), at(recv), *each, type_of(to), *root, comm_of(comm)))
EACH_BINDING(COLLECTIVE, barrier, (F *comm), (comm), barrier(comm_of(comm)))

// Messages.

#define RECEIVES(SUFFIX, _)                                                                                        \
    BEGIN(SUFFIX, recv, (void *data, F *count, F *type, F *source, F *tag, F *comm, F *status))                    \
        if (!on() || !(point_to_point || *source == MPI_ANY_SOURCE)) {                                             \
            real(data, count, type, source, tag, comm, status, code);                                              \
            return;                                                                                                \
        }                                                                                                          \
        const Shape shape = received(at(data), *count, type_of(type), *source, *tag, comm_of(comm));               \
        F from = *source;                                                                                       \
        replay(from);                                                                                              \
        Status got(status);                                                                                        \
        const Waiting waiting;                                                                                     \
        observed_with(shape, SITE, [&] {                                                                           \
            real(data, count, type, &from, tag, comm     , got.place(), code);                                     \
            return *code;                                                                                          \
        }, [&] { return got.c(); });                                                                               \
    }                                                                                                              \
    BEGIN(SUFFIX, irecv, (void *data, F *count, F *type, F *source, F *tag, F *comm, F *request))                  \
        if (!on() || !(point_to_point || *source == MPI_ANY_SOURCE)) {                                             \
            real(data, count, type, source, tag, comm, request, code);                                             \
            return;                                                                                                \
        }                                                                                                          \
        const Shape shape = received(at(data), *count, type_of(type), *source, *tag, comm_of(comm));               \
        F from = *source;                                                                                       \
        replay(from);                                                                                              \
        started(shape, SITE, [&] {                                                                                 \
            real(data, count, type, &from, tag, comm     , request, code);                                         \
            return *code;                                                                                          \
        }, [&] { return request_of(request); });                                                                   \
    }                                                                                                              \
    BEGIN(SUFFIX, probe, (F *source, F *tag, F *comm, F *status))                                                  \
        if (!on() || *source != MPI_ANY_SOURCE) {                                                                  \
            real(source, tag, comm, status, code);                                                                 \
            return;                                                                                                \
        }                                                                                                          \
        const Shape shape = probed(*source, *tag, comm_of(comm));                                                  \
        F from = *source;                                                                                       \
        replay(from);                                                                                              \
        Status got(status);                                                                                        \
        const Waiting waiting;                                                                                     \
        observed_with(shape, SITE, [&] {                                                                           \
            real(&from, tag, comm     , got.place(), code);                                                        \
            return *code;                                                                                          \
        }, [&] { return got.c(); });                                                                               \
    }
EACH_BINDING(RECEIVES, 0)

#define SENDS(SUFFIX, LOWER)                                                                                       \
    BEGIN(SUFFIX, LOWER, (void *data, F *count, F *type, F *target, F *tag, F *comm))                              \
        const auto run = [&] { return real(data, count, type, target, tag, comm, code), *code; };                  \
        if (on() && point_to_point)                                                                                \
            observed(sent(at(data), *count, type_of(type), *target, *tag, comm_of(comm)), SITE, run);              \
        else                                                                                                       \
            run();                                                                                                 \
    }                                                                                                              \
    BEGIN(SUFFIX, i##LOWER, (void *data, F *count, F *type, F *target, F *tag, F *comm, F *request))               \
        const auto run = [&] { return real(data, count, type, target, tag, comm, request, code), *code; };         \
        if (on() && point_to_point)                                                                                \
            started(sent(at(data), *count, type_of(type), *target, *tag, comm_of(comm)), SITE, run,                \
                    [&] { return request_of(request); });                                                          \
        else                                                                                                       \
            run();                                                                                                 \
    }
EACH_BINDING(SENDS, send)
EACH_BINDING(SENDS, ssend)

// Requests. What came in is read from the statuses; where the program wants none, they are asked for here.

#define REQUESTS(SUFFIX, _)                                                                                        \
    BEGIN(SUFFIX, wait, (F *request, F *status))                                                                   \
        const Waiting waiting;                                                                                     \
        FortranCompletion completion(request, 1, status);                                                          \
        real(request, completion.statuses(), code);                                                                \
        completion.done({0});                                                                                      \
    }                                                                                                              \
    BEGIN(SUFFIX, test, (F *request, F *flag, F *status))                                                          \
        FortranCompletion completion(request, 1, status);                                                          \
        real(request, flag, completion.statuses(), code);                                                          \
        if (*flag) completion.done({0});                                                                           \
    }                                                                                                              \
    BEGIN(SUFFIX, waitall, (F *count, F *requests, F *statuses))                                                   \
        const Waiting waiting;                                                                                     \
        FortranCompletion completion(requests, *count, statuses);                                                  \
        real(count, requests, completion.statuses(), code);                                                        \
        completion.all();                                                                                          \
    }                                                                                                              \
    BEGIN(SUFFIX, testall, (F *count, F *requests, F *flag, F *statuses))                                          \
        FortranCompletion completion(requests, *count, statuses);                                                  \
        real(count, requests, flag, completion.statuses(), code);                                                  \
        if (*flag) completion.all();                                                                               \
    }                                                                                                              \
    BEGIN(SUFFIX, waitany, (F *count, F *requests, F *index, F *status))                                           \
        const Waiting waiting;                                                                                     \
        FortranCompletion completion(requests, *count, status);                                                    \
        real(count, requests, index, completion.statuses(), code);                                                 \
        if (*index != MPI_UNDEFINED) completion.done({*index - 1});                                                \
    }                                                                                                              \
    BEGIN(SUFFIX, waitsome, (F *count, F *requests, F *ended, F *indices, F *statuses))                            \
        const Waiting waiting;                                                                                     \
        FortranCompletion completion(requests, *count, statuses);                                                  \
        real(count, requests, ended, indices, completion.statuses(), code);                                        \
        std::vector<int> which;                                                                                    \
        for (int i = 0; *ended != MPI_UNDEFINED && i < *ended; ++i) which.push_back(indices[i] - 1);                \
        completion.done(which);                                                                                    \
    }

EACH_BINDING(REQUESTS, 0)

}  // extern "C"

#endif
