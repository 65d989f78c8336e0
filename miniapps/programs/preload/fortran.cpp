// Records the MPI calls of Fortran programs at the program's call site, and calls the MPI library's Fortran functions. (Open
// MPI's Fortran functions call its C functions by names that cannot be intercepted.)
//
// Programs that include mpif.h or use the module mpi call `mpi_x_`. With the module mpi_f08, Open MPI calls `mpi_x_f08_` with
// the same arguments; MPICH does so for functions without buffers, and calls its C functions otherwise.
#include "next.hpp"
#include "start.hpp"

#ifndef MPI_ABI_VERSION  // the ABI of MPI 5 has separate libraries for Fortran

using namespace fpna;

#define LIST(...) __VA_ARGS__
#define EACH_BINDING(X, ...) X(_, __VA_ARGS__) X(_f08_, __VA_ARGS__)

namespace {

// The addresses of Fortran's MPI_IN_PLACE and MPI_BOTTOM: common blocks with names chosen by the MPI library.
const void *sentinel(const char *openmpi, const char *mpich) {
    if (void *place = dlsym(RTLD_DEFAULT, openmpi)) return place;
    void **place = static_cast<void **>(dlsym(RTLD_DEFAULT, mpich));
    return place ? *place : nullptr;
}

// A Fortran buffer as a C buffer.
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
MPI_Message message_of(const MPI_Fint *handle) { return PMPI_Message_f2c(*handle); }
MPI_Op op_of(const MPI_Fint *handle) { return PMPI_Op_f2c(*handle); }
MPI_Request request_of(const MPI_Fint *handle) { return PMPI_Request_f2c(*handle); }

constexpr std::size_t STATUS = 32;  // integers: more than a status has in any library

// A constant of MPICH for the module mpi_f08.
const void *f08(const char *name) {
    void **place = static_cast<void **>(dlsym(RTLD_DEFAULT, name));
    return place ? *place : nullptr;
}

bool ignored(const MPI_Fint *status) {
    static const void *one = f08("MPI_F08_STATUS_IGNORE"), *many = f08("MPI_F08_STATUSES_IGNORE");
    return status == nullptr || status == MPI_F_STATUS_IGNORE || status == MPI_F_STATUSES_IGNORE || status == one ||
           status == many;
}

// A Fortran status for the MPI library to write: the program's, or one here if the program ignores it.
class Status {
  public:
    explicit Status(MPI_Fint *given) : place_(ignored(given) ? own_ : given) {}
    MPI_Fint *place() { return place_; }
    // The code of a call of C, whose status it becomes.
    template <typename Run>
    int of(Run run) {
        const int code = run(&status_);
        PMPI_Status_c2f(&status_, place_);
        return code;
    }
    MPI_Status *c() {
        PMPI_Status_f2c(place_, &status_);
        return &status_;
    }

  private:
    MPI_Fint own_[STATUS] = {}, *place_;
    MPI_Status status_;
};

// The number of integers of a status in an array of statuses, by the MPI library.
int status_size() {
    return int(sizeof(MPI_Status) / sizeof(MPI_Fint));
}

class FortranCompletion : public Ending {
  public:
    FortranCompletion(int count, MPI_Fint *handles, MPI_Fint *given) : handles_(handles), given_(given) {
        begin(count, [=](int i) { return request_of(handles + i); });
        if (watches() && ignored(given)) own_.resize(STATUS * std::size_t(count + 1));
    }
    MPI_Fint *statuses() { return own_.empty() ? given_ : own_.data(); }
    void over(const std::vector<int> &which, int code) {
        Ending::over(
            which, code,
            [this](int i) {
                MPI_Status status{};
                PMPI_Status_f2c(statuses() + std::size_t(i) * std::size_t(status_size()), &status);
                return status;
            },
            [this](int i) { return request_of(handles_ + i) == MPI_REQUEST_NULL; });
    }
    void over(int code) { over(all(), code); }

  private:
    void put(int i, MPI_Request request) override { handles_[i] = PMPI_Request_c2f(request); }
    void put_status(int place, const MPI_Status &status) override {
        if (!ignored(given_)) PMPI_Status_c2f(&status, given_ + std::size_t(place) * std::size_t(status_size()));
    }

    MPI_Fint *handles_;
    MPI_Fint *given_;
    std::vector<MPI_Fint> own_;
};

// Fortran's .true., which compilers write differently.
MPI_Fint truth() {
    static const MPI_Fint own = [] {
        MPI_Fint flag = 0, code = 0;
        next<void (*)(MPI_Fint *, MPI_Fint *)>("mpi_initialized_")(&flag, &code);
        return flag;
    }();
    return own;
}

// Makes a call that is not recorded and posts a request.
template <typename Run>
void posting(Run run, const MPI_Fint *request) {
    if (!on()) return void(run());
    int code;
    {
        const Inside from_here;
        code = run();
    }
    if (code == MPI_SUCCESS) postings.post(request_of(request));
}

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

// A collective, blocking and nonblocking. SHAPE: of the arguments converted to C.
#define COLLECTIVE(SUFFIX, LOWER, PARAMETERS, ARGUMENTS, SHAPE)                                     \
    BEGIN(SUFFIX, LOWER, PARAMETERS)                                                                \
        const auto run = [&] { return real(LIST ARGUMENTS, code), *code; };                         \
        if (on(comm_of(comm)))                                                                      \
            *code = collective(SHAPE, SITE, run);                                                   \
        else                                                                                        \
            run();                                                                                  \
    }                                                                                               \
    BEGIN(SUFFIX, i##LOWER, (LIST PARAMETERS, MPI_Fint *request))                                   \
        const auto run = [&] { return real(LIST ARGUMENTS, request, code), *code; };                \
        if (on(comm_of(comm)))                                                                      \
            *code = nonblocking(SHAPE, SITE, run, [&] { return request_of(request); },              \
                                [&](MPI_Request own) { *request = PMPI_Request_c2f(own); });        \
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
EACH_BINDING(COLLECTIVE, neighbor_allgather, (void *send, F *count, F *type, void *recv, F *each, F *to, F *comm),
             (send, count, type, recv, each, to, comm),
             neighbor_allgather(at(send), *count, type_of(type), at(recv), *each, type_of(to), comm_of(comm)))
EACH_BINDING(COLLECTIVE, neighbor_allgatherv,
             (void *send, F *count, F *type, void *recv, F *counts, F *places, F *to, F *comm),
             (send, count, type, recv, counts, places, to, comm),
             neighbor_allgatherv(at(send), *count, type_of(type), at(recv), counts, places, type_of(to), comm_of(comm)))
EACH_BINDING(COLLECTIVE, neighbor_alltoall, (void *send, F *count, F *type, void *recv, F *each, F *to, F *comm),
             (send, count, type, recv, each, to, comm),
             neighbor_alltoall(at(send), *count, type_of(type), at(recv), *each, type_of(to), comm_of(comm)))
EACH_BINDING(COLLECTIVE, neighbor_alltoallv,
             (void *send, F *counts, F *places, F *type, void *recv, F *recv_counts, F *recv_places, F *to, F *comm),
             (send, counts, places, type, recv, recv_counts, recv_places, to, comm),
             neighbor_alltoallv(at(send), counts, places, type_of(type), at(recv), recv_counts, recv_places, type_of(to),
                                comm_of(comm)))
EACH_BINDING(COLLECTIVE, neighbor_alltoallw,
             (void *send, F *counts, MPI_Aint *places, F *types, void *recv, F *recv_counts, MPI_Aint *recv_places,
              F *recv_types, F *comm),
             (send, counts, places, types, recv, recv_counts, recv_places, recv_types, comm),
             neighbor_alltoallw(at(send), counts, places, types, at(recv), recv_counts, recv_places, recv_types,
                                comm_of(comm), [](const F *of, std::size_t i) { return type_of(of + i); }))

// Operations of the program.

#define OPERATIONS(SUFFIX, _)                                                                       \
    BEGIN(SUFFIX, op_create, (void *function, F *commutes, F *op))                                  \
        {                                                                                           \
            const Inside from_here;                                                                 \
            real(function, commutes, op, code);                                                     \
        }                                                                                           \
        if (*code == MPI_SUCCESS && on()) introduce_operation(op_of(op), function);                 \
    }
EACH_BINDING(OPERATIONS, 0)

// Messages.

#define RECEIVES_FROM(source, comm) (on(comm_of(comm)) && (point_to_point || *(source) == MPI_ANY_SOURCE))
#define SENDS_ON(comm) (point_to_point && on(comm_of(comm)))

#define RECEIVES(SUFFIX, _)                                                                                                \
    BEGIN(SUFFIX, recv, (void *data, F *count, F *type, F *source, F *tag, F *comm, F *status))                            \
        if (!RECEIVES_FROM(source, comm)) return real(data, count, type, source, tag, comm, status, code);                 \
        const Shape shape = received(at(data), *count, type_of(type), *source, *tag, comm_of(comm));                       \
        F from = *source;                                                                                                  \
        replay(from, shape);                                                                                               \
        Status got(status);                                                                                                \
        observed_with(shape, SITE, known(shape.comm), [&] {                                                                \
            real(data, count, type, &from, tag, comm, got.place(), code);                                                  \
            return *code;                                                                                                  \
        }, [&] { return got.c(); });                                                                                       \
    }                                                                                                                      \
    BEGIN(SUFFIX, irecv, (void *data, F *count, F *type, F *source, F *tag, F *comm, F *request))                          \
        F from = *source;                                                                                                  \
        const auto run = [&] { return real(data, count, type, &from, tag, comm, request, code), *code; };                  \
        if (!RECEIVES_FROM(source, comm)) return posting(run, request);                                                    \
        const Shape shape = received(at(data), *count, type_of(type), *source, *tag, comm_of(comm));                       \
        replay(from, shape, NONBLOCKING);                                                                                  \
        started(shape, SITE, run, [&] { return request_of(request); });                                                    \
        if (from != *source && *code == MPI_SUCCESS) choose(request_of(request), shape.comm, *tag);                        \
    }                                                                                                                      \
    BEGIN(SUFFIX, recv_init, (void *data, F *count, F *type, F *source, F *tag, F *comm, F *request))                      \
        const auto run = [&] { return real(data, count, type, source, tag, comm, request, code), *code; };                 \
        if (!RECEIVES_FROM(source, comm)) return void(run());                                                              \
        prepared(received(at(data), *count, type_of(type), *source, *tag, comm_of(comm)), SITE, run,                       \
                 [&] { return request_of(request); });                                                                     \
    }                                                                                                                      \
    BEGIN(SUFFIX, sendrecv, (void *send, F *count, F *type, F *target, F *send_tag, void *recv, F *recv_count, F *recv_type,\
                             F *source, F *recv_tag, F *comm, F *status))                                                  \
        if (!RECEIVES_FROM(source, comm))                                                                                  \
            return real(send, count, type, target, send_tag, recv, recv_count, recv_type, source, recv_tag, comm, status, code);\
        const Span given{at(send), *count, type_of(type)};                                                                 \
        const Shape shape = exchanged(SENDRECV, given, {at(recv), *recv_count, type_of(recv_type)}, *source, *recv_tag,    \
                                      comm_of(comm), point_to_point);                                                      \
        F from = *source;                                                                                                  \
        Status got(status);                                                                                                \
        observed_with(shape, SITE, known(shape.comm), [&] {                                                                \
            if (exchanges(given, shape)) return *code = got.of([&](MPI_Status *own) {                                      \
                return exchange(given, *target, *send_tag, from, shape, own);                                              \
            });                                                                                                            \
            real(send, count, type, target, send_tag, recv, recv_count, recv_type, &from, recv_tag, comm, got.place(), code);\
            return *code;                                                                                                  \
        }, [&] { return got.c(); });                                                                                       \
    }                                                                                                                      \
    BEGIN(SUFFIX, sendrecv_replace, (void *data, F *count, F *type, F *target, F *send_tag, F *source, F *recv_tag, F *comm,\
                                     F *status))                                                                           \
        if (!RECEIVES_FROM(source, comm))                                                                                  \
            return real(data, count, type, target, send_tag, source, recv_tag, comm, status, code);                        \
        const Span span{at(data), *count, type_of(type)};                                                                  \
        const Shape shape = exchanged(SENDRECV_REPLACE, span, span, *source, *recv_tag, comm_of(comm), point_to_point);    \
        F from = *source;                                                                                                  \
        Status got(status);                                                                                                \
        observed_with(shape, SITE, known(shape.comm), [&] {                                                                \
            if (exchanges(span, shape)) return *code = got.of([&](MPI_Status *own) {                                       \
                return exchange(span, *target, *send_tag, from, shape, own);                                               \
            });                                                                                                            \
            real(data, count, type, target, send_tag, &from, recv_tag, comm, got.place(), code);                           \
            return *code;                                                                                                  \
        }, [&] { return got.c(); });                                                                                       \
    }                                                                                                                      \
    BEGIN(SUFFIX, mrecv, (void *data, F *count, F *type, F *message, F *status))                                           \
        const auto comm = unmatch(message_of(message));                                                                    \
        if (!comm) return real(data, count, type, message, status, code);                                                  \
        Status got(status);                                                                                                \
        observed_with(matched(at(data), *count, type_of(type)), SITE, *comm, [&] {                                         \
            real(data, count, type, message, got.place(), code);                                                           \
            return *code;                                                                                                  \
        }, [&] { return got.c(); });                                                                                       \
    }                                                                                                                      \
    BEGIN(SUFFIX, imrecv, (void *data, F *count, F *type, F *message, F *request))                                         \
        const auto comm = unmatch(message_of(message));                                                                    \
        const auto run = [&] { return real(data, count, type, message, request, code), *code; };                           \
        if (!comm) return posting(run, request);                                                                           \
        started_on(matched(at(data), *count, type_of(type)), SITE, *comm, run, [&] { return request_of(request); });       \
    }                                                                                                                      \
    BEGIN(SUFFIX, probe, (F *source, F *tag, F *comm, F *status))                                                          \
        if (!on(comm_of(comm)) || *source != MPI_ANY_SOURCE) return real(source, tag, comm, status, code);                 \
        const Shape shape = probed(PROBE, *source, *tag, comm_of(comm));                                                   \
        F from = *source;                                                                                                  \
        replay(from, shape);                                                                                               \
        Status got(status);                                                                                                \
        observed_with(shape, SITE, known(shape.comm), [&] {                                                                \
            real(&from, tag, comm, got.place(), code);                                                                     \
            return *code;                                                                                                  \
        }, [&] { return got.c(); });                                                                                       \
    }                                                                                                                      \
    BEGIN(SUFFIX, iprobe, (F *source, F *tag, F *comm, F *flag, F *status))                                                \
        if (!on(comm_of(comm))) return real(source, tag, comm, flag, status, code);                                        \
        const Shape shape = probed(IPROBE, *source, *tag, comm_of(comm));                                                  \
        Asking asking(shape);                                                                                              \
        Status got(status);                                                                                                \
        {                                                                                                                  \
            const Inside from_here;                                                                                        \
            real(&asking.source, &asking.tag, comm, flag, got.place(), code);                                              \
        }                                                                                                                  \
        if (*code != MPI_SUCCESS) return;                                                                                  \
        if (asking.nothing()) *flag = 0;                                                                                   \
        asking.over(*flag, got.c());                                                                                       \
        if (*flag && shape.wildcard) observed(shape, SITE, [] { return MPI_SUCCESS; }, got.c());                           \
    }                                                                                                                      \
    BEGIN(SUFFIX, mprobe, (F *source, F *tag, F *comm, F *message, F *status))                                             \
        if (!RECEIVES_FROM(source, comm)) return real(source, tag, comm, message, status, code);                           \
        const Shape shape = probed(MPROBE, *source, *tag, comm_of(comm));                                                  \
        F from = *source;                                                                                                  \
        replay(from, shape);                                                                                               \
        Status got(status);                                                                                                \
        const auto run = [&] {                                                                                             \
            real(&from, tag, comm, message, got.place(), code);                                                            \
            return *code;                                                                                                  \
        };                                                                                                                 \
        if (shape.wildcard) {                                                                                              \
            observed_with(shape, SITE, known(shape.comm), run, [&] { return got.c(); });                                   \
        } else {                                                                                                           \
            const Inside from_here;                                                                                        \
            run();                                                                                                         \
        }                                                                                                                  \
        if (*code == MPI_SUCCESS) match(message_of(message), shape.comm, shape.wildcard);                                  \
    }                                                                                                                      \
    BEGIN(SUFFIX, improbe, (F *source, F *tag, F *comm, F *flag, F *message, F *status))                                   \
        if (!on(comm_of(comm))) return real(source, tag, comm, flag, message, status, code);                               \
        const Shape shape = probed(IMPROBE, *source, *tag, comm_of(comm));                                                 \
        Asking asking(shape);                                                                                              \
        Status got(status);                                                                                                \
        if (asking.nothing()) {                                                                                            \
            int there = 0;                                                                                                 \
            *code = PMPI_Iprobe(*source, *tag, shape.comm, &there, MPI_STATUS_IGNORE);                                     \
            *flag = 0;                                                                                                     \
        } else {                                                                                                           \
            const Inside from_here;                                                                                        \
            real(&asking.source, &asking.tag, comm, flag, message, got.place(), code);                                     \
        }                                                                                                                  \
        if (*code != MPI_SUCCESS) return;                                                                                  \
        asking.over(*flag, got.c());                                                                                       \
        if (!*flag || !RECEIVES_FROM(source, comm)) return;                                                                \
        match(message_of(message), shape.comm, shape.wildcard);                                                            \
        if (shape.wildcard) observed(shape, SITE, [] { return MPI_SUCCESS; }, got.c());                                    \
    }
EACH_BINDING(RECEIVES, 0)

#define SENDS(SUFFIX, LOWER, KIND)                                                                                         \
    BEGIN(SUFFIX, LOWER, (void *data, F *count, F *type, F *target, F *tag, F *comm))                                      \
        const auto run = [&] { return real(data, count, type, target, tag, comm, code), *code; };                          \
        if (!SENDS_ON(comm)) return void(run());                                                                           \
        observed(sent(KIND, at(data), *count, type_of(type), *target, *tag, comm_of(comm)), SITE, run);                    \
    }                                                                                                                      \
    BEGIN(SUFFIX, i##LOWER, (void *data, F *count, F *type, F *target, F *tag, F *comm, F *request))                       \
        const auto run = [&] { return real(data, count, type, target, tag, comm, request, code), *code; };                 \
        if (!SENDS_ON(comm)) return posting(run, request);                                                                 \
        started(sent(KIND, at(data), *count, type_of(type), *target, *tag, comm_of(comm)), SITE, run,                      \
                [&] { return request_of(request); });                                                                      \
    }                                                                                                                      \
    BEGIN(SUFFIX, LOWER##_init, (void *data, F *count, F *type, F *target, F *tag, F *comm, F *request))                   \
        const auto run = [&] { return real(data, count, type, target, tag, comm, request, code), *code; };                 \
        if (!SENDS_ON(comm)) return void(run());                                                                           \
        prepared(sent(KIND, at(data), *count, type_of(type), *target, *tag, comm_of(comm)), SITE, run,                     \
                 [&] { return request_of(request); });                                                                     \
    }
EACH_BINDING(SENDS, send, SEND)
EACH_BINDING(SENDS, ssend, SSEND)
EACH_BINDING(SENDS, bsend, BSEND)
EACH_BINDING(SENDS, rsend, RSEND)

// Requests. Statuses describe the received messages; if the program ignores them, this code passes its own.

#define REQUESTS(SUFFIX, _)                                                                                                \
    BEGIN(SUFFIX, start, (F *request))                                                                                     \
        if (on()) restart(1, [=](int) { return request_of(request); });                                                    \
        if (on()) give_back();                                                                                             \
        const Inside from_here;                                                                                            \
        real(request, code);                                                                                               \
    }                                                                                                                      \
    BEGIN(SUFFIX, startall, (F *count, F *requests))                                                                       \
        if (on()) restart(*count, [=](int i) { return request_of(requests + i); });                                        \
        if (on()) give_back();                                                                                             \
        const Inside from_here;                                                                                            \
        real(count, requests, code);                                                                                       \
    }                                                                                                                      \
    BEGIN(SUFFIX, cancel, (F *request))                                                                                    \
        if (on()) *request = PMPI_Request_c2f(current(request_of(request)));                                               \
        const Inside from_here;                                                                                            \
        real(request, code);                                                                                               \
    }                                                                                                                      \
    BEGIN(SUFFIX, request_free, (F *request))                                                                              \
        if (on()) *request = PMPI_Request_c2f(current(request_of(request)));                                               \
        if (on()) drop(request_of(request));                                                                               \
        const Inside from_here;                                                                                            \
        real(request, code);                                                                                               \
    }                                                                                                                      \
    BEGIN(SUFFIX, request_get_status, (F *request, F *flag, F *status))                                                    \
        F own = on() ? PMPI_Request_c2f(current(request_of(request), false)) : *request;                                   \
        FortranCompletion completion(1, &own, status);                                                                     \
        if (const auto answer = completion.replayed(REQUEST_GET_STATUS))                                                   \
            return void((*flag = answer->found ? truth() : 0, *code = answer->code));                                      \
        real(&own, flag, status, code);                                                                                    \
        *flag ? completion.seen() : completion.missed();                                                                   \
        if (*flag) add_now(request_of(&own));                                                                              \
    }                                                                                                                      \
    BEGIN(SUFFIX, wait, (F *request, F *status))                                                                           \
        FortranCompletion completion(1, request, status);                                                                  \
        completion.hold();                                                                                                 \
        real(request, completion.statuses(), code);                                                                        \
        completion.over(*code);                                                                                            \
    }                                                                                                                      \
    BEGIN(SUFFIX, test, (F *request, F *flag, F *status))                                                                  \
        FortranCompletion completion(1, request, status);                                                                  \
        if (const auto answer = completion.replayed(TEST))                                                                 \
            return void((*flag = answer->found ? truth() : 0, *code = answer->code));                                      \
        *flag = 0;                                                                                                         \
        real(request, flag, completion.statuses(), code);                                                                  \
        *flag || *code != MPI_SUCCESS ? completion.over(*code) : completion.missed();                                      \
    }                                                                                                                      \
    BEGIN(SUFFIX, waitall, (F *count, F *requests, F *statuses))                                                           \
        FortranCompletion completion(*count, requests, statuses);                                                          \
        completion.hold();                                                                                                 \
        real(count, requests, completion.statuses(), code);                                                                \
        completion.over(*code);                                                                                            \
    }                                                                                                                      \
    BEGIN(SUFFIX, testall, (F *count, F *requests, F *flag, F *statuses))                                                  \
        FortranCompletion completion(*count, requests, statuses);                                                          \
        if (const auto answer = completion.replayed(TESTALL))                                                              \
            return void((*flag = answer->found ? truth() : 0, *code = answer->code));                                      \
        *flag = 0;                                                                                                         \
        real(count, requests, flag, completion.statuses(), code);                                                          \
        *flag || *code != MPI_SUCCESS ? completion.over(*code) : completion.missed();                                      \
    }                                                                                                                      \
    BEGIN(SUFFIX, waitany, (F *count, F *requests, F *index, F *status))                                                   \
        FortranCompletion completion(*count, requests, status);                                                            \
        if (const auto answer = completion.replayed(WAITANY, true))                                                        \
            return void((*index = answer->first(1), *code = answer->code));                                                \
        *index = MPI_UNDEFINED;                                                                                            \
        real(count, requests, index, completion.statuses(), code);                                                         \
        completion.over(one(*index, 1), *code);                                                                            \
    }                                                                                                                      \
    BEGIN(SUFFIX, testany, (F *count, F *requests, F *index, F *flag, F *status))                                          \
        FortranCompletion completion(*count, requests, status);                                                            \
        if (const auto answer = completion.replayed(TESTANY))                                                              \
            return void((*flag = answer->found ? truth() : 0, *index = answer->first(1), *code = answer->code));           \
        *index = MPI_UNDEFINED;                                                                                            \
        *flag = 0;                                                                                                         \
        real(count, requests, index, flag, completion.statuses(), code);                                                   \
        *flag || *code != MPI_SUCCESS ? completion.over(one(*index, 1), *code) : completion.missed();                      \
    }                                                                                                                      \
    BEGIN(SUFFIX, waitsome, (F *count, F *requests, F *ended, F *indices, F *statuses))                                    \
        FortranCompletion completion(*count, requests, statuses);                                                          \
        if (const auto answer = completion.replayed(WAITSOME, true))                                                       \
            return void((*ended = answer->done(indices, 1), *code = answer->code));                                        \
        *ended = MPI_UNDEFINED;                                                                                            \
        real(count, requests, ended, indices, completion.statuses(), code);                                                \
        completion.over(some(*ended, indices, 1), *code);                                                                  \
    }                                                                                                                      \
    BEGIN(SUFFIX, testsome, (F *count, F *requests, F *ended, F *indices, F *statuses))                                    \
        FortranCompletion completion(*count, requests, statuses);                                                          \
        if (const auto answer = completion.replayed(TESTSOME))                                                             \
            return void((*ended = answer->done(indices, 1), *code = answer->code));                                        \
        *ended = MPI_UNDEFINED;                                                                                            \
        real(count, requests, ended, indices, completion.statuses(), code);                                                \
        *ended ? completion.over(some(*ended, indices, 1), *code) : completion.missed();                                   \
    }
EACH_BINDING(REQUESTS, 0)

// Communicators: their names follow from the calls that made them.

#define MAKES(SUFFIX, LOWER, KIND, PARAMETERS, ARGUMENTS)                                                                  \
    BEGIN(SUFFIX, LOWER, PARAMETERS)                                                                                       \
        const auto run = [&] { real(LIST ARGUMENTS, code); };                                                              \
        if (!on(comm_of(comm))) return run();                                                                              \
        const Inside from_here;                                                                                            \
        Making making(comm_of(comm), KIND);                                                                                \
        run();                                                                                                             \
        making.is(*code == MPI_SUCCESS ? comm_of(made) : MPI_COMM_NULL);                                                   \
    }
EACH_BINDING(MAKES, comm_dup, "dup", (F *comm, F *made), (comm, made))
EACH_BINDING(MAKES, comm_dup_with_info, "dup", (F *comm, F *info, F *made), (comm, info, made))
EACH_BINDING(MAKES, comm_create, "group", (F *comm, F *group, F *made), (comm, group, made))
EACH_BINDING(MAKES, comm_create_group, "group with tag " + std::to_string(*tag) + ",", (F *comm, F *group, F *tag, F *made),
             (comm, group, tag, made))
EACH_BINDING(MAKES, comm_split, "split", (F *comm, F *color, F *key, F *made), (comm, color, key, made))
EACH_BINDING(MAKES, comm_split_type, "split", (F *comm, F *type, F *key, F *info, F *made), (comm, type, key, info, made))
EACH_BINDING(MAKES, cart_create, "cart", (F *comm, F *n, F *lengths, F *periods, F *reorder, F *made),
             (comm, n, lengths, periods, reorder, made))
EACH_BINDING(MAKES, cart_sub, "sub", (F *comm, F *kept, F *made), (comm, kept, made))
EACH_BINDING(MAKES, graph_create, "graph", (F *comm, F *n, F *index, F *edges, F *reorder, F *made),
             (comm, n, index, edges, reorder, made))
EACH_BINDING(MAKES, dist_graph_create, "graph",
             (F *comm, F *n, F *from, F *degrees, F *to, F *weights, F *info, F *reorder, F *made),
             (comm, n, from, degrees, to, weights, info, reorder, made))
EACH_BINDING(MAKES, dist_graph_create_adjacent, "graph",
             (F *comm, F *in, F *from, F *in_weights, F *out, F *to, F *out_weights, F *info, F *reorder, F *made),
             (comm, in, from, in_weights, out, to, out_weights, info, reorder, made))
EACH_BINDING(MAKES, intercomm_create, "inter", (F *comm, F *leader, F *peer, F *other, F *tag, F *made),
             (comm, leader, peer, other, tag, made))
EACH_BINDING(MAKES, intercomm_merge, "merged", (F *comm, F *high, F *made), (comm, high, made))

#define COMMUNICATORS(SUFFIX, _)                                                                                           \
    BEGIN(SUFFIX, comm_idup, (F *comm, F *made, F *request))                                                               \
        const auto run = [&] { real(comm, made, request, code); };                                                         \
        if (!on(comm_of(comm))) return run();                                                                              \
        const Inside from_here;                                                                                            \
        Making making(comm_of(comm), "dup");                                                                               \
        run();                                                                                                             \
        if (*code == MPI_SUCCESS) postings.post(request_of(request));                                                      \
        *code == MPI_SUCCESS ? making.becomes(comm_of(made)) : making.is(MPI_COMM_NULL);                                   \
    }                                                                                                                      \
    BEGIN(SUFFIX, comm_free, (F *comm))                                                                                    \
        if (on(comm_of(comm))) leave(comm_of(comm));                                                                       \
        const Inside from_here;                                                                                            \
        real(comm, code);                                                                                                  \
    }                                                                                                                      \
    BEGIN(SUFFIX, comm_disconnect, (F *comm))                                                                              \
        if (on(comm_of(comm))) leave(comm_of(comm));                                                                       \
        const Inside from_here;                                                                                            \
        real(comm, code);                                                                                                  \
    }
EACH_BINDING(COMMUNICATORS, 0)

// Windows.

namespace {

MPI_Win window_of(const MPI_Fint *handle) { return PMPI_Win_f2c(*handle); }

}  // namespace

// One-sided calls, and their forms with a request.
#define ACCESS(SUFFIX, LOWER, PARAMETERS, ARGUMENTS, ACCESSED)                                                             \
    BEGIN(SUFFIX, LOWER, PARAMETERS)                                                                                       \
        const auto run = [&] { return real(LIST ARGUMENTS, code), *code; };                                                \
        const MPI_Win own = window_of(window);                                                                             \
        on() && own != MPI_WIN_NULL ? Access ACCESSED.blocking(SITE, run) : run();                                         \
    }
#define ACCESS_WITH_REQUEST(SUFFIX, LOWER, PARAMETERS, ARGUMENTS, ACCESSED)                                                \
    ACCESS(SUFFIX, LOWER, PARAMETERS, ARGUMENTS, ACCESSED)                                                                 \
    BEGIN(SUFFIX, r##LOWER, (LIST PARAMETERS, F *request))                                                                 \
        const auto run = [&] { return real(LIST ARGUMENTS, request, code), *code; };                                       \
        const MPI_Win own = window_of(window);                                                                             \
        if (!on() || own == MPI_WIN_NULL) return void(run());                                                              \
        Access ACCESSED.nonblocking(SITE, run, [&] { return request_of(request); });                                       \
    }
EACH_BINDING(ACCESS_WITH_REQUEST, put,
             (void *origin, F *count, F *type, F *target, MPI_Aint *place, F *there, F *to, F *window),
             (origin, count, type, target, place, there, to, window),
             (PUT, own, *target, *place, *count, type_of(type), {{at(origin), *count, type_of(type)}}, {}))
EACH_BINDING(ACCESS_WITH_REQUEST, get,
             (void *result, F *count, F *type, F *target, MPI_Aint *place, F *there, F *from, F *window),
             (result, count, type, target, place, there, from, window),
             (GET, own, *target, *place, *count, type_of(type), {}, {{at(result), *count, type_of(type)}}))
EACH_BINDING(ACCESS_WITH_REQUEST, accumulate,
             (void *origin, F *count, F *type, F *target, MPI_Aint *place, F *there, F *to, F *op, F *window),
             (origin, count, type, target, place, there, to, op, window),
             (ACCUMULATE, own, *target, *place, *count, type_of(type), {{at(origin), *count, type_of(type)}}, {}, op_of(op)))
EACH_BINDING(ACCESS_WITH_REQUEST, get_accumulate,
             (void *origin, F *count, F *type, void *result, F *got, F *as, F *target, MPI_Aint *place, F *there, F *to, F *op,
              F *window),
             (origin, count, type, result, got, as, target, place, there, to, op, window),
             (GET_ACCUMULATE, own, *target, *place, *got, type_of(as), {{at(origin), *count, type_of(type)}},
              {{at(result), *got, type_of(as)}}, op_of(op)))
EACH_BINDING(ACCESS, fetch_and_op, (void *origin, void *result, F *type, F *target, MPI_Aint *place, F *op, F *window),
             (origin, result, type, target, place, op, window),
             (FETCH_AND_OP, own, *target, *place, 1, type_of(type), {{at(origin), 1, type_of(type)}},
              {{at(result), 1, type_of(type)}}, op_of(op)))
EACH_BINDING(ACCESS, compare_and_swap,
             (void *origin, void *compared, void *result, F *type, F *target, MPI_Aint *place, F *window),
             (origin, compared, result, type, target, place, window),
             (COMPARE_AND_SWAP, own, *target, *place, 1, type_of(type),
              {{at(origin), 1, type_of(type)}, {at(compared), 1, type_of(type)}}, {{at(result), 1, type_of(type)}}))

// The functions that end in `_cptr_` are those with a C pointer for the memory.
#define MAKES_WINDOW(SUFFIX, LOWER, PARAMETERS, ARGUMENTS)                                                                 \
    BEGIN(SUFFIX, LOWER, PARAMETERS)                                                                                       \
        making_window(comm_of(comm), [&] { return real(LIST ARGUMENTS, code), *code; }, [&] { return window_of(window); }); \
    }
EACH_BINDING(MAKES_WINDOW, win_create, (void *base, MPI_Aint *size, F *unit, F *info, F *comm, F *window),
             (base, size, unit, info, comm, window))
EACH_BINDING(MAKES_WINDOW, win_allocate, (MPI_Aint *size, F *unit, F *info, F *comm, void *base, F *window),
             (size, unit, info, comm, base, window))
EACH_BINDING(MAKES_WINDOW, win_allocate_shared, (MPI_Aint *size, F *unit, F *info, F *comm, void *base, F *window),
             (size, unit, info, comm, base, window))
MAKES_WINDOW(_, win_allocate_cptr, (MPI_Aint *size, F *unit, F *info, F *comm, void *base, F *window),
             (size, unit, info, comm, base, window))
MAKES_WINDOW(_, win_allocate_shared_cptr, (MPI_Aint *size, F *unit, F *info, F *comm, void *base, F *window),
             (size, unit, info, comm, base, window))
EACH_BINDING(MAKES_WINDOW, win_create_dynamic, (F *info, F *comm, F *window), (info, comm, window))

#define SYNCHRONISES(SUFFIX, LOWER, PARAMETERS, ARGUMENTS, TARGET)                                                         \
    BEGIN(SUFFIX, LOWER, PARAMETERS)                                                                                       \
        synchronising(window_of(window), TARGET, [&] { return real(LIST ARGUMENTS, code), *code; });                       \
    }
EACH_BINDING(SYNCHRONISES, win_complete, (F *window), (window), ALL_TARGETS)
EACH_BINDING(SYNCHRONISES, win_unlock, (F *target, F *window), (target, window), *target)
EACH_BINDING(SYNCHRONISES, win_unlock_all, (F *window), (window), ALL_TARGETS)
EACH_BINDING(SYNCHRONISES, win_flush, (F *target, F *window), (target, window), *target)
EACH_BINDING(SYNCHRONISES, win_flush_all, (F *window), (window), ALL_TARGETS)
EACH_BINDING(SYNCHRONISES, win_flush_local, (F *target, F *window), (target, window), *target)
EACH_BINDING(SYNCHRONISES, win_flush_local_all, (F *window), (window), ALL_TARGETS)

#define WINDOWS(SUFFIX, _)                                                                                                 \
    BEGIN(SUFFIX, win_free, (F *window))                                                                                   \
        freeing_window(window_of(window), [&] { return real(window, code), *code; });                                      \
    }                                                                                                                      \
    BEGIN(SUFFIX, win_fence, (F *assertion, F *window))                                                                    \
        const auto run = [&] { return real(assertion, window, code), *code; };                                             \
        const MPI_Win own = window_of(window);                                                                             \
        on() && own != MPI_WIN_NULL ? ending_exposure(WIN_FENCE, own, SITE, run) : run();                                  \
    }                                                                                                                      \
    BEGIN(SUFFIX, win_wait, (F *window))                                                                                   \
        const auto run = [&] { return real(window, code), *code; };                                                        \
        const MPI_Win own = window_of(window);                                                                             \
        on() && own != MPI_WIN_NULL ? ending_exposure(WIN_WAIT, own, SITE, run) : run();                                   \
    }                                                                                                                      \
    BEGIN(SUFFIX, win_test, (F *window, F *flag))                                                                          \
        {                                                                                                                  \
            const Inside from_here;                                                                                        \
            real(window, flag, code);                                                                                      \
        }                                                                                                                  \
        if (*code == MPI_SUCCESS && *flag && on())                                                                         \
            ending_exposure(WIN_TEST, window_of(window), SITE, [] { return MPI_SUCCESS; });                                \
    }
EACH_BINDING(WINDOWS, 0)

// Files.

namespace {

// A text of Fortran, without the blanks at its end.
std::string text_of(const char *text, std::size_t length) {
    while (length && text[length - 1] == ' ') --length;
    return std::string(text, length);
}

MPI_File file_of(const MPI_Fint *handle) { return PMPI_File_f2c(*handle); }

}  // namespace

#define FILES(SUFFIX, _)                                                                                                   \
    void mpi_file_open##SUFFIX(F *comm, char *name, F *mode, F *info, F *file, F *code, std::size_t length) {              \
        static const auto real = next<decltype(&mpi_file_open##SUFFIX)>("mpi_file_open" #SUFFIX);                          \
        F own_code = 0;                                                                                                    \
        if (!code) code = &own_code;                                                                                       \
        opening(comm_of(comm), text_of(name, length), *mode, [&] {                                                         \
            real(comm, name, mode, info, file, code, length);                                                              \
            return *code;                                                                                                  \
        }, [&] { return file_of(file); });                                                                                 \
    }                                                                                                                      \
    void mpi_file_set_view##SUFFIX(F *file, MPI_Offset *begin, F *element, F *pattern, char *name, F *info, F *code,       \
                                   std::size_t length) {                                                                   \
        static const auto real = next<decltype(&mpi_file_set_view##SUFFIX)>("mpi_file_set_view" #SUFFIX);                  \
        F own_code = 0;                                                                                                    \
        if (!code) code = &own_code;                                                                                       \
        {                                                                                                                  \
            const Inside from_here;                                                                                        \
            real(file, begin, element, pattern, name, info, code, length);                                                 \
        }                                                                                                                  \
        if (*code == MPI_SUCCESS && on()) viewing(file_of(file), type_of(element), type_of(pattern));                                 \
    }                                                                                                                      \
    BEGIN(SUFFIX, file_close, (F *file))                                                                                   \
        if (on()) closing(file_of(file));                                                                                  \
        const Inside from_here;                                                                                            \
        real(file, code);                                                                                                  \
    }
EACH_BINDING(FILES, 0)

#define ENDS(SUFFIX, LOWER)                                                                                                \
    BEGIN(SUFFIX, LOWER##_end, (F *file, void *data, F *status))                                                           \
        Status got(status);                                                                                                \
        const auto run = [&] { return real(file, data, got.place(), code), *code; };                                       \
        on() ? split_end(file_of(file), run, [&] { return got.c(); }) : run();                                             \
    }
EACH_BINDING(ENDS, file_write_all)
EACH_BINDING(ENDS, file_write_at_all)
EACH_BINDING(ENDS, file_write_ordered)
EACH_BINDING(ENDS, file_read_all)
EACH_BINDING(ENDS, file_read_at_all)
EACH_BINDING(ENDS, file_read_ordered)

#define GIVEN_PARAMETER MPI_Offset *offset,
#define GIVEN_ARGUMENT offset,
#define GIVEN_OFFSET *offset
#define NONE_PARAMETER
#define NONE_ARGUMENT
#define NONE_OFFSET 0
#define BLOCKING_PARAMETER , F *status
#define BLOCKING_BEGIN Status got(status);
#define BLOCKING_ARGUMENT , got.place()
#define BLOCKING_RUN transfer.blocking(SITE, run, [&] { return got.c(); });
#define NONBLOCKING_PARAMETER , F *request
#define NONBLOCKING_BEGIN
#define NONBLOCKING_ARGUMENT , request
#define NONBLOCKING_RUN transfer.nonblocking(SITE, run, [&] { return request_of(request); });
#define SPLIT_PARAMETER
#define SPLIT_BEGIN
#define SPLIT_ARGUMENT
#define SPLIT_RUN transfer.split(SITE, own, run);
#define TRANSFERS(SUFFIX, HOW, NAME, DATA, KIND, WHERE, OFFSET)                                                            \
    BEGIN(SUFFIX, file_##NAME, (F *file, OFFSET##_PARAMETER DATA *data, F *count, F *type HOW##_PARAMETER))                \
        HOW##_BEGIN                                                                                                        \
        const auto run = [&] { return real(file, OFFSET##_ARGUMENT data, count, type HOW##_ARGUMENT, code), *code; };      \
        const MPI_File own = file_of(file);                                                                                \
        if (!on() || own == MPI_FILE_NULL) return void(run());                                                             \
        const Transfer transfer(KIND, own, Where::WHERE, OFFSET##_OFFSET, at(data), *count, type_of(type));                \
        HOW##_RUN                                                                                                          \
    }
#define TRANSFER(...) EACH_BINDING(TRANSFERS, __VA_ARGS__)
#include "files.inc"

}  // extern "C"

#endif
