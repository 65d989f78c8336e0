// The calls of MPI that C and C++ programs make, observed through the profiling interface: what went in, what came out,
// when, and from where in the program. Loaded by `fpna run` (LD_PRELOAD); the program needs no change.
//
// Every function calls the library's own one with the program's arguments and returns what it returns; sums may be added
// here instead (sums.hpp), and messages from any source taken in a recorded order (receives.hpp), if the user asks.
#include "start.hpp"

using namespace fpna;

#define LIST(...) __VA_ARGS__

extern "C" {

int MPI_Init(int *argc, char ***argv) {
    require_launch();
    const int code = PMPI_Init(argc, argv);
    if (code == MPI_SUCCESS) start();
    return code;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    require_launch();
    const int code = PMPI_Init_thread(argc, argv, required, provided);
    if (code == MPI_SUCCESS) start();
    return code;
}

int MPI_Finalize(void) {
    stop();
    return PMPI_Finalize();
}

#define COUNT int
#define PLACE int
#define COLLECTIVE(NAME, LOWER, PARAMETERS, ARGUMENTS, SHAPE)                                                        \
    int MPI_##NAME PARAMETERS {                                                                                      \
        return on() ? collective(SHAPE, SITE, [&] { return PMPI_##NAME ARGUMENTS; }) : PMPI_##NAME ARGUMENTS;         \
    }                                                                                                                \
    int MPI_I##LOWER(LIST PARAMETERS, MPI_Request *request) {                                                        \
        const auto run = [&] { return PMPI_I##LOWER(LIST ARGUMENTS, request); };                                     \
        return on() ? started(SHAPE, SITE, run, [&] { return *request; }) : run();                                   \
    }
#include "collectives.inc"
#undef COLLECTIVE

#if MPI_VERSION >= 4
#define COLLECTIVE(NAME, LOWER, PARAMETERS, ARGUMENTS, SHAPE)                                                        \
    int MPI_##NAME##_init(LIST PARAMETERS, MPI_Info info, MPI_Request *request) {                                    \
        const auto run = [&] { return PMPI_##NAME##_init(LIST ARGUMENTS, info, request); };                          \
        return on() ? prepared(SHAPE, SITE, run, request) : run();                                                   \
    }
#include "collectives.inc"
#undef COLLECTIVE
#undef COUNT
#undef PLACE
#define COUNT MPI_Count
#define PLACE MPI_Aint
#define LARGE_COUNTS
#define COLLECTIVE(NAME, LOWER, PARAMETERS, ARGUMENTS, SHAPE)                                                        \
    int MPI_##NAME##_c PARAMETERS {                                                                                  \
        return on() ? collective(SHAPE, SITE, [&] { return PMPI_##NAME##_c ARGUMENTS; }) : PMPI_##NAME##_c ARGUMENTS; \
    }                                                                                                                \
    int MPI_I##LOWER##_c(LIST PARAMETERS, MPI_Request *request) {                                                    \
        const auto run = [&] { return PMPI_I##LOWER##_c(LIST ARGUMENTS, request); };                                 \
        return on() ? started(SHAPE, SITE, run, [&] { return *request; }) : run();                                   \
    }                                                                                                                \
    int MPI_##NAME##_init_c(LIST PARAMETERS, MPI_Info info, MPI_Request *request) {                                  \
        const auto run = [&] { return PMPI_##NAME##_init_c(LIST ARGUMENTS, info, request); };                        \
        return on() ? prepared(SHAPE, SITE, run, request) : run();                                                   \
    }
#include "collectives.inc"
#undef COLLECTIVE
#endif

// Messages: those from any source always, others where they were asked for.

#define RECEIVE_FROM(source) (on() && (point_to_point || (source) == MPI_ANY_SOURCE))

int MPI_Recv(void *data, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status *status) {
    if (!RECEIVE_FROM(source)) return PMPI_Recv(data, count, type, source, tag, comm, status);
    MPI_Status own;
    if (status == MPI_STATUS_IGNORE) status = &own;
    const Shape shape = received(data, count, type, source, tag, comm);
    replay(source);
    const Waiting waiting;
    return observed(shape, SITE, [&] { return PMPI_Recv(data, count, type, source, tag, comm, status); }, status);
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *request) {
    if (!RECEIVE_FROM(source)) return PMPI_Irecv(data, count, type, source, tag, comm, request);
    const Shape shape = received(data, count, type, source, tag, comm);
    replay(source);
    return started(shape, SITE, [&] { return PMPI_Irecv(data, count, type, source, tag, comm, request); },
                   [&] { return *request; });
}

int MPI_Recv_init(void *data, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *request) {
    const auto run = [&] { return PMPI_Recv_init(data, count, type, source, tag, comm, request); };
    if (!RECEIVE_FROM(source)) return run();
    return prepared(received(data, count, type, source, tag, comm), SITE, run, request);
}

int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status *status) {
    if (!on() || source != MPI_ANY_SOURCE) return PMPI_Probe(source, tag, comm, status);
    MPI_Status own;
    if (status == MPI_STATUS_IGNORE) status = &own;
    const Shape shape = probed(source, tag, comm);
    replay(source);
    const Waiting waiting;
    return observed(shape, SITE, [&] { return PMPI_Probe(source, tag, comm, status); }, status);
}

int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status) {
    if (!on() || source != MPI_ANY_SOURCE) return PMPI_Mprobe(source, tag, comm, message, status);
    MPI_Status own;
    if (status == MPI_STATUS_IGNORE) status = &own;
    const Shape shape = probed(source, tag, comm);
    replay(source);
    const Waiting waiting;
    return observed(shape, SITE, [&] { return PMPI_Mprobe(source, tag, comm, message, status); }, status);
}

// Probes that do not wait are recorded where they found something.

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status) {
    if (!on() || source != MPI_ANY_SOURCE) return PMPI_Iprobe(source, tag, comm, flag, status);
    MPI_Status own;
    if (status == MPI_STATUS_IGNORE) status = &own;
    const Shape shape = probed(source, tag, comm);
    replay(source, false);
    const int code = PMPI_Iprobe(source, tag, comm, flag, status);
    return code == MPI_SUCCESS && *flag ? probe_succeeded(shape, SITE, status) : code;
}

int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status) {
    if (!on() || source != MPI_ANY_SOURCE) return PMPI_Improbe(source, tag, comm, flag, message, status);
    MPI_Status own;
    if (status == MPI_STATUS_IGNORE) status = &own;
    const Shape shape = probed(source, tag, comm);
    replay(source, false);
    const int code = PMPI_Improbe(source, tag, comm, flag, message, status);
    return code == MPI_SUCCESS && *flag ? probe_succeeded(shape, SITE, status) : code;
}

int MPI_Sendrecv(const void *send, int count, MPI_Datatype type, int target, int send_tag, void *recv, int recv_count,
                 MPI_Datatype recv_type, int source, int recv_tag, MPI_Comm comm, MPI_Status *status) {
    const auto run = [&] {
        return PMPI_Sendrecv(send, count, type, target, send_tag, recv, recv_count, recv_type, source, recv_tag, comm, status);
    };
    if (!RECEIVE_FROM(source)) return run();
    MPI_Status own;
    if (status == MPI_STATUS_IGNORE) status = &own;
    const Shape shape = received(recv, recv_count, recv_type, source, recv_tag, comm);
    replay(source);
    if (point_to_point) observed(sent(send, count, type, target, send_tag, comm), SITE, [] { return MPI_SUCCESS; });
    const Waiting waiting;
    return observed(shape, SITE, run, status);
}

int MPI_Sendrecv_replace(void *data, int count, MPI_Datatype type, int target, int send_tag, int source, int recv_tag,
                         MPI_Comm comm, MPI_Status *status) {
    const auto run = [&] {
        return PMPI_Sendrecv_replace(data, count, type, target, send_tag, source, recv_tag, comm, status);
    };
    if (!RECEIVE_FROM(source)) return run();
    MPI_Status own;
    if (status == MPI_STATUS_IGNORE) status = &own;
    const Shape shape = received(data, count, type, source, recv_tag, comm);
    replay(source);
    if (point_to_point) observed(sent(data, count, type, target, send_tag, comm), SITE, [] { return MPI_SUCCESS; });
    const Waiting waiting;
    return observed(shape, SITE, run, status);
}

// Sends of every mode, blocking, nonblocking and persistent.
#define SENDS(MODE, LOWER)                                                                                           \
    int MPI_##MODE(const void *data, int count, MPI_Datatype type, int target, int tag, MPI_Comm comm) {             \
        const auto run = [&] { return PMPI_##MODE(data, count, type, target, tag, comm); };                          \
        if (!on() || !point_to_point) return run();                                                                  \
        return observed(sent(data, count, type, target, tag, comm), SITE, run);                                      \
    }                                                                                                                \
    int MPI_I##LOWER(const void *data, int count, MPI_Datatype type, int target, int tag, MPI_Comm comm,             \
                     MPI_Request *request) {                                                                         \
        const auto run = [&] { return PMPI_I##LOWER(data, count, type, target, tag, comm, request); };               \
        if (!on() || !point_to_point) return run();                                                                  \
        return started(sent(data, count, type, target, tag, comm), SITE, run, [&] { return *request; });             \
    }                                                                                                                \
    int MPI_##MODE##_init(const void *data, int count, MPI_Datatype type, int target, int tag, MPI_Comm comm,        \
                          MPI_Request *request) {                                                                    \
        const auto run = [&] { return PMPI_##MODE##_init(data, count, type, target, tag, comm, request); };          \
        if (!on() || !point_to_point) return run();                                                                  \
        return prepared(sent(data, count, type, target, tag, comm), SITE, run, request);                             \
    }
SENDS(Send, send)
SENDS(Ssend, ssend)
SENDS(Bsend, bsend)
SENDS(Rsend, rsend)

// Requests.

int MPI_Start(MPI_Request *request) {
    if (on()) restart(request, 1);
    return PMPI_Start(request);
}

int MPI_Startall(int count, MPI_Request requests[]) {
    if (on()) restart(requests, count);
    return PMPI_Startall(count, requests);
}

int MPI_Request_free(MPI_Request *request) {
    if (on()) drop(*request);
    return PMPI_Request_free(request);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status) {
    Completion completion(request, 1);
    const Waiting waiting;
    const int code = PMPI_Wait(request, completion.status(status));
    completion.all(status);
    return code;
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
    Completion completion(request, 1);
    const int code = PMPI_Test(request, flag, completion.status(status));
    if (*flag) completion.all(status);
    return code;
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
    Completion completion(requests, count);
    const Waiting waiting;
    const int code = PMPI_Waitall(count, requests, completion.statuses(statuses));
    completion.all(statuses);
    return code;
}

int MPI_Testall(int count, MPI_Request requests[], int *flag, MPI_Status statuses[]) {
    Completion completion(requests, count);
    const int code = PMPI_Testall(count, requests, flag, completion.statuses(statuses));
    if (*flag) completion.all(statuses);
    return code;
}

int MPI_Waitany(int count, MPI_Request requests[], int *index, MPI_Status *status) {
    Completion completion(requests, count);
    const Waiting waiting;
    const int code = PMPI_Waitany(count, requests, index, completion.status(status));
    if (*index != MPI_UNDEFINED) completion.one(*index, status);
    return code;
}

int MPI_Testany(int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status) {
    Completion completion(requests, count);
    const int code = PMPI_Testany(count, requests, index, flag, completion.status(status));
    if (*flag && *index != MPI_UNDEFINED) completion.one(*index, status);
    return code;
}

int MPI_Waitsome(int count, MPI_Request requests[], int *done, int indices[], MPI_Status statuses[]) {
    Completion completion(requests, count);
    const Waiting waiting;
    const int code = PMPI_Waitsome(count, requests, done, indices, completion.statuses(statuses));
    completion.some(*done, indices, statuses);
    return code;
}

int MPI_Testsome(int count, MPI_Request requests[], int *done, int indices[], MPI_Status statuses[]) {
    Completion completion(requests, count);
    const int code = PMPI_Testsome(count, requests, done, indices, completion.statuses(statuses));
    completion.some(*done, indices, statuses);
    return code;
}

}  // extern "C"
