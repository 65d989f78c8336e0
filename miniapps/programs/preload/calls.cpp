// Records the MPI calls of C and C++ programs through the profiling interface: inputs, outputs, times and places in the
// program. `fpna run` loads it (LD_PRELOAD); the program needs no change.
//
// Every function calls the MPI library's function with the program's arguments and returns its result. With --guarantee this
// library adds sums instead (sums.hpp). With --replay receives from any source follow a recorded order (receives.hpp), and so
// do calls that find requests complete and messages there (completions.hpp).
#include <cstdarg>

#include "start.hpp"

using namespace fpna;

#define LIST(...) __VA_ARGS__

namespace fpna {

// For counted.cpp: the begin and the end of a call.
void *begin_counted(int number) {
    if (!on()) return nullptr;
    count_unseen(number);
    return new Inside;
}
void end_counted(void *begun) { delete static_cast<Inside *>(begun); }

}  // namespace fpna

extern "C" {

#ifdef FPNA_STATIC
// `fpna run` finds this text in the file of a program (building.py).
#define TEXT_OF(VERSION) "fpna run: the recorder of logs of version " #VERSION "\n"
#define RECORDER(VERSION) TEXT_OF(VERSION)
__attribute__((used)) const char fpna_recorder[] = RECORDER(FPNA_STATIC);
#endif

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

// The library of sums tells by this call to which guarantee its calls belong (kernels/library/messages.hpp).
int MPI_Pcontrol(const int level, ...) {
    constexpr int OF_FPNA = 0x66706e61;
    if (level != OF_FPNA) return PMPI_Pcontrol(level);
    va_list rest;
    va_start(rest, level);
    promised = va_arg(rest, int) & 3;
    va_end(rest);
    return MPI_SUCCESS;
}

// Operations of the program: their names are those of their functions.

int MPI_Op_create(MPI_User_function *function, int commutes, MPI_Op *op) {
    const int code = PMPI_Op_create(function, commutes, op);
    if (code == MPI_SUCCESS && on()) introduce_operation(*op, reinterpret_cast<void *>(function));
    return code;
}

#if MPI_VERSION >= 4
int MPI_Op_create_c(MPI_User_function_c *function, int commutes, MPI_Op *op) {
    const int code = PMPI_Op_create_c(function, commutes, op);
    if (code == MPI_SUCCESS && on()) introduce_operation(*op, reinterpret_cast<void *>(function));
    return code;
}
#endif

// Which messages are recorded: sends only with --point-to-point.
#define RECEIVES_FROM(source, comm) (on(comm) && (point_to_point || (source) == MPI_ANY_SOURCE))
#define SENDS_ON(comm) (point_to_point && on(comm))

// mpi4py adds Python objects by its own messages, each after a message with its length. Nothing else sends such a message.
#define PYTHON_SUM(count, type)                                                                                      \
    if ((count) == 1 && (type) == MPI_COUNT && on() && from_mpi4py(__builtin_return_address(0))) count_python_sum(SITE)

// Writes and reads of files; files.inc lists them.
#define GIVEN_PARAMETER MPI_Offset offset,
#define GIVEN_ARGUMENT offset,
#define GIVEN_OFFSET offset
#define NONE_PARAMETER
#define NONE_ARGUMENT
#define NONE_OFFSET 0
#define BLOCKING_PARAMETER , MPI_Status *status
#define BLOCKING_ARGUMENT , status
#define BLOCKING_RUN                                                                                                 \
    MPI_Status own;                                                                                                  \
    if (status == MPI_STATUS_IGNORE) status = &own;                                                                  \
    return transfer.blocking(SITE, run, [&] { return status; });
#define NONBLOCKING_PARAMETER , MPI_Request *request
#define NONBLOCKING_ARGUMENT , request
#define NONBLOCKING_RUN return transfer.nonblocking(SITE, run, [=] { return *request; });
#define SPLIT_PARAMETER
#define SPLIT_ARGUMENT
#define SPLIT_RUN return transfer.split(SITE, file, run);
#define TRANSFER(HOW, NAME, DATA, KIND, WHERE, OFFSET)                                                               \
    int FORM(MPI_File_##NAME)(MPI_File file, OFFSET##_PARAMETER DATA *data, COUNT count,                             \
                              MPI_Datatype type HOW##_PARAMETER) {                                                   \
        const auto run = [&] {                                                                                       \
            return FORM(PMPI_File_##NAME)(file, OFFSET##_ARGUMENT data, count, type HOW##_ARGUMENT);                 \
        };                                                                                                           \
        if (!on() || file == MPI_FILE_NULL) return run();                                                            \
        const Transfer transfer(KIND, file, Where::WHERE, OFFSET##_OFFSET, data, count, type);                       \
        HOW##_RUN                                                                                                    \
    }

// One-sided calls, and their forms with a request.
#define ACCESS(NAME, LOWER, PARAMETERS, ARGUMENTS, ACCESSED)                                                         \
    int FORM(MPI_##NAME) PARAMETERS {                                                                                \
        const auto run = [&] { return FORM(PMPI_##NAME) ARGUMENTS; };                                                \
        return on() && window != MPI_WIN_NULL ? Access ACCESSED.blocking(SITE, run) : run();                         \
    }                                                                                                                \
    int FORM(MPI_R##LOWER)(LIST PARAMETERS, MPI_Request *request) {                                                  \
        const auto run = [&] { return FORM(PMPI_R##LOWER)(LIST ARGUMENTS, request); };                               \
        if (!on() || window == MPI_WIN_NULL) return run();                                                           \
        return Access ACCESSED.nonblocking(SITE, run, [=] { return *request; });                                     \
    }

#define COUNT int
#define PLACE int
#define FORM(NAME) NAME
#include "messages.inc"
#include "files.inc"
#include "accesses.inc"
#define COLLECTIVE(NAME, LOWER, PARAMETERS, ARGUMENTS, SHAPE)                                                        \
    int MPI_##NAME PARAMETERS {                                                                                      \
        return on(comm) ? collective(SHAPE, SITE, [&] { return PMPI_##NAME ARGUMENTS; }) : PMPI_##NAME ARGUMENTS;         \
    }                                                                                                                \
    int MPI_I##LOWER(LIST PARAMETERS, MPI_Request *request) {                                                        \
        const auto run = [&] { return PMPI_I##LOWER(LIST ARGUMENTS, request); };                                     \
        if (!on(comm)) return run();                                                                                 \
        return nonblocking(SHAPE, SITE, run, [&] { return *request; }, [&](MPI_Request own) { *request = own; });         \
    }
#include "collectives.inc"
#undef COLLECTIVE

#if OF_MPI_4
#define COLLECTIVE(NAME, LOWER, PARAMETERS, ARGUMENTS, SHAPE)                                                        \
    int MPI_##NAME##_init(LIST PARAMETERS, MPI_Info info, MPI_Request *request) {                                    \
        const auto run = [&] { return PMPI_##NAME##_init(LIST ARGUMENTS, info, request); };                          \
        return on(comm) ? persistent_collective(SHAPE, SITE, run, info, request) : run();                            \
    }
#include "collectives.inc"
#undef COLLECTIVE
#endif

#if MPI_VERSION >= 4
#undef COUNT
#undef PLACE
#define COUNT MPI_Count
#define PLACE MPI_Aint
#define LARGE_COUNTS
#undef FORM
#define FORM(NAME) NAME##_c
#include "messages.inc"
#include "files.inc"
#include "accesses.inc"
#define COLLECTIVE(NAME, LOWER, PARAMETERS, ARGUMENTS, SHAPE)                                                        \
    int MPI_##NAME##_c PARAMETERS {                                                                                  \
        return on(comm) ? collective(SHAPE, SITE, [&] { return PMPI_##NAME##_c ARGUMENTS; }) : PMPI_##NAME##_c ARGUMENTS; \
    }                                                                                                                \
    int MPI_I##LOWER##_c(LIST PARAMETERS, MPI_Request *request) {                                                    \
        const auto run = [&] { return PMPI_I##LOWER##_c(LIST ARGUMENTS, request); };                                 \
        if (!on(comm)) return run();                                                                                 \
        return nonblocking(SHAPE, SITE, run, [&] { return *request; }, [&](MPI_Request own) { *request = own; });         \
    }                                                                                                                \
    int MPI_##NAME##_init_c(LIST PARAMETERS, MPI_Info info, MPI_Request *request) {                                  \
        const auto run = [&] { return PMPI_##NAME##_init_c(LIST ARGUMENTS, info, request); };                        \
        return on(comm) ? persistent_collective(SHAPE, SITE, run, info, request) : run();                            \
    }
#include "collectives.inc"
#undef COLLECTIVE
#endif

// Probes. Nonblocking ones are recorded if they find a message.

int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status *status) {
    if (!on(comm) || source != MPI_ANY_SOURCE) return PMPI_Probe(source, tag, comm, status);
    MPI_Status own;
    if (status == MPI_STATUS_IGNORE) status = &own;
    const Shape shape = probed(PROBE, source, tag, comm);
    replay(source, shape);
    return observed(shape, SITE, [&] { return PMPI_Probe(source, tag, comm, status); }, status);
}

int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status) {
    if (!RECEIVES_FROM(source, comm)) return PMPI_Mprobe(source, tag, comm, message, status);
    MPI_Status own;
    if (status == MPI_STATUS_IGNORE) status = &own;
    const Shape shape = probed(MPROBE, source, tag, comm);
    replay(source, shape);
    const auto run = [&] { return PMPI_Mprobe(source, tag, comm, message, status); };
    const int code = shape.wildcard ? observed(shape, SITE, run, status) : run();
    if (code == MPI_SUCCESS) match(*message, comm, shape.wildcard);
    return code;
}

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status) {
    if (!on(comm)) return PMPI_Iprobe(source, tag, comm, flag, status);
    MPI_Status own;
    if (status == MPI_STATUS_IGNORE) status = &own;
    const Shape shape = probed(IPROBE, source, tag, comm);
    const Asking asking(shape);
    const int code = PMPI_Iprobe(asking.source, asking.tag, comm, flag, status);
    if (code != MPI_SUCCESS) return code;
    if (asking.nothing()) *flag = 0;
    asking.over(*flag, status);
    return *flag && shape.wildcard ? observed(shape, SITE, [] { return MPI_SUCCESS; }, status) : code;
}

int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status) {
    if (!on(comm)) return PMPI_Improbe(source, tag, comm, flag, message, status);
    MPI_Status own;
    if (status == MPI_STATUS_IGNORE) status = &own;
    const Shape shape = probed(IMPROBE, source, tag, comm);
    const Asking asking(shape);
    const int code = asking.nothing() ? PMPI_Iprobe(source, tag, comm, flag, status)
                                      : PMPI_Improbe(asking.source, asking.tag, comm, flag, message, status);
    if (code != MPI_SUCCESS) return code;
    if (asking.nothing()) *flag = 0;
    asking.over(*flag, status);
    if (!*flag || !RECEIVES_FROM(source, comm)) return code;
    match(*message, comm, shape.wildcard);
    return shape.wildcard ? observed(shape, SITE, [] { return MPI_SUCCESS; }, status) : code;
}

// Requests.

int MPI_Start(MPI_Request *request) {
    if (on()) restart(1, [=](int) { return *request; });
    if (on()) give_back();
    return PMPI_Start(request);
}

int MPI_Startall(int count, MPI_Request requests[]) {
    if (on()) restart(count, [=](int i) { return requests[i]; });
    if (on()) give_back();
    return PMPI_Startall(count, requests);
}

int MPI_Cancel(MPI_Request *request) {
    if (on()) *request = current(*request);
    return PMPI_Cancel(request);
}

int MPI_Request_free(MPI_Request *request) {
    if (on()) drop(*request = current(*request));
    return PMPI_Request_free(request);
}

int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status) {
    if (on()) request = current(request, false);
    Completion completion(1, &request, status);
    if (const auto answer = completion.replayed(REQUEST_GET_STATUS)) return *flag = answer->found, answer->code;
    const int code = PMPI_Request_get_status(request, flag, status);
    *flag ? completion.seen() : completion.missed();
    if (*flag) add_now(request);
    return code;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status) {
    Completion completion(1, request, status);
    completion.hold();
    const int code = PMPI_Wait(request, completion.statuses());
    completion.over(code);
    return code;
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
    Completion completion(1, request, status);
    if (const auto answer = completion.replayed(TEST)) return *flag = answer->found, answer->code;
    *flag = 0;
    const int code = PMPI_Test(request, flag, completion.statuses());
    *flag || code != MPI_SUCCESS ? completion.over(code) : completion.missed();
    return code;
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
    Completion completion(count, requests, statuses, true);
    completion.hold();
    const int code = PMPI_Waitall(count, requests, completion.statuses());
    completion.over(code);
    return code;
}

int MPI_Testall(int count, MPI_Request requests[], int *flag, MPI_Status statuses[]) {
    Completion completion(count, requests, statuses, true);
    if (const auto answer = completion.replayed(TESTALL)) return *flag = answer->found, answer->code;
    *flag = 0;
    const int code = PMPI_Testall(count, requests, flag, completion.statuses());
    *flag || code != MPI_SUCCESS ? completion.over(code) : completion.missed();
    return code;
}

int MPI_Waitany(int count, MPI_Request requests[], int *index, MPI_Status *status) {
    Completion completion(count, requests, status);
    if (const auto answer = completion.replayed(WAITANY, true)) return *index = answer->first(), answer->code;
    *index = MPI_UNDEFINED;
    const int code = PMPI_Waitany(count, requests, index, completion.statuses());
    completion.over(one(*index), code);
    return code;
}

int MPI_Testany(int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status) {
    Completion completion(count, requests, status);
    if (const auto answer = completion.replayed(TESTANY)) return *flag = answer->found, *index = answer->first(), answer->code;
    *index = MPI_UNDEFINED;
    *flag = 0;
    const int code = PMPI_Testany(count, requests, index, flag, completion.statuses());
    *flag || code != MPI_SUCCESS ? completion.over(one(*index), code) : completion.missed();
    return code;
}

int MPI_Waitsome(int count, MPI_Request requests[], int *done, int indices[], MPI_Status statuses[]) {
    Completion completion(count, requests, statuses, true);
    if (const auto answer = completion.replayed(WAITSOME, true)) return *done = answer->done(indices), answer->code;
    *done = MPI_UNDEFINED;
    const int code = PMPI_Waitsome(count, requests, done, indices, completion.statuses());
    completion.over(some(*done, indices), code);
    return code;
}

int MPI_Testsome(int count, MPI_Request requests[], int *done, int indices[], MPI_Status statuses[]) {
    Completion completion(count, requests, statuses, true);
    if (const auto answer = completion.replayed(TESTSOME)) return *done = answer->done(indices), answer->code;
    *done = MPI_UNDEFINED;
    const int code = PMPI_Testsome(count, requests, done, indices, completion.statuses());
    *done ? completion.over(some(*done, indices), code) : completion.missed();
    return code;
}

// Files.

int MPI_File_open(MPI_Comm comm, const char *path, int mode, MPI_Info info, MPI_File *file) {
    return opening(comm, path ? path : "", mode, [=] { return PMPI_File_open(comm, path, mode, info, file); },
                   [=] { return *file; });
}

int MPI_File_close(MPI_File *file) {
    if (on()) closing(*file);
    return PMPI_File_close(file);
}

int MPI_File_set_view(MPI_File file, MPI_Offset begin, MPI_Datatype element, MPI_Datatype pattern, const char *representation,
                      MPI_Info info) {
    const int code = PMPI_File_set_view(file, begin, element, pattern, representation, info);
    if (code == MPI_SUCCESS && on()) viewing(file, element, pattern);
    return code;
}

#define ENDS(NAME, DATA)                                                                                             \
    int MPI_File_##NAME##_end(MPI_File file, DATA *data, MPI_Status *status) {                                       \
        MPI_Status own;                                                                                              \
        if (status == MPI_STATUS_IGNORE) status = &own;                                                              \
        const auto run = [&] { return PMPI_File_##NAME##_end(file, data, status); };                                 \
        return on() ? split_end(file, run, [&] { return status; }) : run();                                          \
    }
ENDS(write_all, const void)
ENDS(write_at_all, const void)
ENDS(write_ordered, const void)
ENDS(read_all, void)
ENDS(read_at_all, void)
ENDS(read_ordered, void)

// Windows.

int MPI_Fetch_and_op(const void *origin, void *result, MPI_Datatype type, int target, MPI_Aint place, MPI_Op op,
                     MPI_Win window) {
    const auto run = [&] { return PMPI_Fetch_and_op(origin, result, type, target, place, op, window); };
    if (!on() || window == MPI_WIN_NULL) return run();
    return Access(FETCH_AND_OP, window, target, place, 1, type, {{origin, 1, type}}, {{result, 1, type}}, op)
        .blocking(SITE, run);
}

int MPI_Compare_and_swap(const void *origin, const void *compared, void *result, MPI_Datatype type, int target,
                         MPI_Aint place, MPI_Win window) {
    const auto run = [&] { return PMPI_Compare_and_swap(origin, compared, result, type, target, place, window); };
    if (!on() || window == MPI_WIN_NULL) return run();
    return Access(COMPARE_AND_SWAP, window, target, place, 1, type, {{origin, 1, type}, {compared, 1, type}},
                  {{result, 1, type}})
        .blocking(SITE, run);
}

#define MAKES_WINDOW(NAME, PARAMETERS, ARGUMENTS)                                                                    \
    int MPI_##NAME PARAMETERS {                                                                                      \
        return making_window(comm, [&] { return PMPI_##NAME ARGUMENTS; }, [&] { return *window; });                  \
    }
MAKES_WINDOW(Win_create, (void *base, MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, MPI_Win *window),
             (base, size, unit, info, comm, window))
MAKES_WINDOW(Win_allocate, (MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *window),
             (size, unit, info, comm, base, window))
MAKES_WINDOW(Win_allocate_shared, (MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *window),
             (size, unit, info, comm, base, window))
MAKES_WINDOW(Win_create_dynamic, (MPI_Info info, MPI_Comm comm, MPI_Win *window), (info, comm, window))
#if MPI_VERSION >= 4
MAKES_WINDOW(Win_create_c, (void *base, MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, MPI_Win *window),
             (base, size, unit, info, comm, window))
MAKES_WINDOW(Win_allocate_c, (MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *window),
             (size, unit, info, comm, base, window))
MAKES_WINDOW(Win_allocate_shared_c,
             (MPI_Aint size, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *window),
             (size, unit, info, comm, base, window))
#endif

int MPI_Win_free(MPI_Win *window) {
    const MPI_Win before = *window;
    return freeing_window(before, [=] { return PMPI_Win_free(window); });
}

int MPI_Win_fence(int assertion, MPI_Win window) {
    const auto run = [=] { return PMPI_Win_fence(assertion, window); };
    return on() && window != MPI_WIN_NULL ? ending_exposure(WIN_FENCE, window, SITE, run) : run();
}

int MPI_Win_wait(MPI_Win window) {
    const auto run = [=] { return PMPI_Win_wait(window); };
    return on() && window != MPI_WIN_NULL ? ending_exposure(WIN_WAIT, window, SITE, run) : run();
}

int MPI_Win_test(MPI_Win window, int *flag) {
    const int code = PMPI_Win_test(window, flag);
    if (code != MPI_SUCCESS || !*flag || !on()) return code;
    return ending_exposure(WIN_TEST, window, SITE, [] { return MPI_SUCCESS; });
}

#define SYNCHRONISES(NAME, PARAMETERS, ARGUMENTS, TARGET)                                                            \
    int MPI_##NAME PARAMETERS { return synchronising(window, TARGET, [=] { return PMPI_##NAME ARGUMENTS; }); }
SYNCHRONISES(Win_complete, (MPI_Win window), (window), ALL_TARGETS)
SYNCHRONISES(Win_unlock, (int target, MPI_Win window), (target, window), target)
SYNCHRONISES(Win_unlock_all, (MPI_Win window), (window), ALL_TARGETS)
SYNCHRONISES(Win_flush, (int target, MPI_Win window), (target, window), target)
SYNCHRONISES(Win_flush_all, (MPI_Win window), (window), ALL_TARGETS)
SYNCHRONISES(Win_flush_local, (int target, MPI_Win window), (target, window), target)
SYNCHRONISES(Win_flush_local_all, (MPI_Win window), (window), ALL_TARGETS)

// Communicators: their names follow from the calls that made them.
#define MAKES(NAME, KIND, PARAMETERS, ARGUMENTS, PARENT)                                                                 int MPI_##NAME PARAMETERS {                                                                                              if (!on(PARENT)) return PMPI_##NAME ARGUMENTS;                                                                       const Inside from_here;                                                                                              Making making(PARENT, KIND);                                                                                         const int code = PMPI_##NAME ARGUMENTS;                                                                              making.is(code == MPI_SUCCESS ? *made : MPI_COMM_NULL);                                                              return code;                                                                                                     }
MAKES(Comm_dup, "dup", (MPI_Comm comm, MPI_Comm *made), (comm, made), comm)
MAKES(Comm_dup_with_info, "dup", (MPI_Comm comm, MPI_Info info, MPI_Comm *made), (comm, info, made), comm)
MAKES(Comm_create, "group", (MPI_Comm comm, MPI_Group group, MPI_Comm *made), (comm, group, made), comm)
MAKES(Comm_create_group, "group with tag " + std::to_string(tag) + ",",
      (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *made), (comm, group, tag, made), comm)
MAKES(Comm_split, "split", (MPI_Comm comm, int color, int key, MPI_Comm *made), (comm, color, key, made), comm)
MAKES(Comm_split_type, "split", (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made),
      (comm, type, key, info, made), comm)
MAKES(Cart_create, "cart", (MPI_Comm comm, int n, const int lengths[], const int periods[], int reorder, MPI_Comm *made),
      (comm, n, lengths, periods, reorder, made), comm)
MAKES(Cart_sub, "sub", (MPI_Comm comm, const int kept[], MPI_Comm *made), (comm, kept, made), comm)
MAKES(Graph_create, "graph", (MPI_Comm comm, int n, const int index[], const int edges[], int reorder, MPI_Comm *made),
      (comm, n, index, edges, reorder, made), comm)
MAKES(Dist_graph_create, "graph",
      (MPI_Comm comm, int n, const int from[], const int degrees[], const int to[], const int weights[], MPI_Info info,
       int reorder, MPI_Comm *made),
      (comm, n, from, degrees, to, weights, info, reorder, made), comm)
MAKES(Dist_graph_create_adjacent, "graph",
      (MPI_Comm comm, int in, const int from[], const int in_weights[], int out, const int to[], const int out_weights[],
       MPI_Info info, int reorder, MPI_Comm *made),
      (comm, in, from, in_weights, out, to, out_weights, info, reorder, made), comm)
MAKES(Intercomm_create, "inter", (MPI_Comm comm, int leader, MPI_Comm peer, int other, int tag, MPI_Comm *made),
      (comm, leader, peer, other, tag, made), comm)
MAKES(Intercomm_merge, "merged", (MPI_Comm comm, int high, MPI_Comm *made), (comm, high, made), comm)
MAKES(Comm_accept, "accepted", (const char *port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *made),
      (port, info, root, comm, made), comm)
MAKES(Comm_connect, "connected", (const char *port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *made),
      (port, info, root, comm, made), comm)
MAKES(Comm_spawn, "spawned",
      (const char *command, char *argv[], int n, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *made, int errors[]),
      (command, argv, n, info, root, comm, made, errors), comm)
MAKES(Comm_spawn_multiple, "spawned",
      (int count, char *commands[], char **argvs[], const int n[], const MPI_Info infos[], int root, MPI_Comm comm,
       MPI_Comm *made, int errors[]),
      (count, commands, argvs, n, infos, root, comm, made, errors), comm)

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *made, MPI_Request *request) {
    if (!on(comm)) return PMPI_Comm_idup(comm, made, request);
    const Inside from_here;
    Making making(comm, "dup");
    const int code = PMPI_Comm_idup(comm, made, request);
    if (code == MPI_SUCCESS) postings.post(*request);
    code == MPI_SUCCESS ? making.becomes(*made) : making.is(MPI_COMM_NULL);
    return code;
}

#if OF_MPI_4
int MPI_Comm_idup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *made, MPI_Request *request) {
    if (!on(comm)) return PMPI_Comm_idup_with_info(comm, info, made, request);
    const Inside from_here;
    Making making(comm, "dup");
    const int code = PMPI_Comm_idup_with_info(comm, info, made, request);
    if (code == MPI_SUCCESS) postings.post(*request);
    code == MPI_SUCCESS ? making.becomes(*made) : making.is(MPI_COMM_NULL);
    return code;
}
#endif

int MPI_Comm_free(MPI_Comm *comm) {
    if (on(*comm)) leave(*comm);
    return PMPI_Comm_free(comm);
}

int MPI_Comm_disconnect(MPI_Comm *comm) {
    if (on(*comm)) leave(*comm);
    return PMPI_Comm_disconnect(comm);
}

}  // extern "C"
