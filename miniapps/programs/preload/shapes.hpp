// The inputs and outputs of each call on this rank: elements of buffers.
#pragma once

#include <string>
#include <vector>

#include <mpi.h>

#include "data.hpp"

// Open MPI 5 states MPI 3.1, but has the functions of MPI 4, except for large counts.
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define OF_MPI_4 1
#endif

namespace fpna {

// Numbered as in rawlog.KINDS.
enum Kind : std::uint16_t {
    ALLREDUCE, REDUCE, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, ALLGATHER, ALLGATHERV, BCAST, ALLTOALL, ALLTOALLV, SCAN, EXSCAN,
    GATHER, GATHERV, SCATTER, SCATTERV, BARRIER, NEIGHBOR_ALLGATHER, NEIGHBOR_ALLGATHERV, NEIGHBOR_ALLTOALL,
    NEIGHBOR_ALLTOALLV, NEIGHBOR_ALLTOALLW, SEND, SSEND, BSEND, RSEND, RECV, PROBE, IPROBE, MPROBE, IMPROBE, MRECV,
    SENDRECV, SENDRECV_REPLACE,
    // Calls that find requests complete (completions.hpp); they carry no data.
    TEST, TESTALL, TESTANY, TESTSOME, WAITANY, WAITSOME, REQUEST_GET_STATUS, END,
    // Calls that write and read files (files.hpp).
    FILE_WRITE, FILE_WRITE_AT, FILE_WRITE_SHARED, FILE_WRITE_ALL, FILE_WRITE_AT_ALL, FILE_WRITE_ORDERED,
    FILE_READ, FILE_READ_AT, FILE_READ_SHARED, FILE_READ_ALL, FILE_READ_AT_ALL, FILE_READ_ORDERED,
    // One-sided calls, and ends of exposures (windows.hpp).
    PUT, GET, ACCUMULATE, GET_ACCUMULATE, FETCH_AND_OP, COMPARE_AND_SWAP, WIN_FENCE, WIN_WAIT, WIN_TEST,
};

// Whether all ranks make a call of this kind together.
inline bool is_collective(Kind kind) {
    return kind < SEND || (kind >= FILE_WRITE_ALL && kind <= FILE_WRITE_ORDERED) ||
           (kind >= FILE_READ_ALL && kind <= FILE_READ_ORDERED) || kind == WIN_FENCE;
}

// The name of a call that receives messages or finds requests complete, in a form of NONBLOCKING.
inline std::string name_of(Kind kind, int form = 0) {
    static const char *const names[] = {
        "MPI_Recv", "MPI_Probe", "MPI_Iprobe", "MPI_Mprobe", "MPI_Improbe", "MPI_Mrecv", "MPI_Sendrecv",
        "MPI_Sendrecv_replace", "MPI_Test", "MPI_Testall", "MPI_Testany", "MPI_Testsome", "MPI_Waitany", "MPI_Waitsome",
        "MPI_Request_get_status", "MPI_Finalize"};
    if (kind < RECV || kind > END) return "another call";
    const std::string name = names[kind - RECV];
    return form ? "MPI_I" + std::string(1, char(name[4] + 'a' - 'A')) + name.substr(5) : name;
}

// The ranks of a communicator to which a rank sends in a neighbourhood collective, and from which it receives.
struct Neighbours {
    std::vector<int> from, to;
};

struct Shape {
    Kind kind;
    MPI_Comm comm;
    MPI_Aint count;
    MPI_Datatype type;
    Spans in, out;
    MPI_Op op = MPI_OP_NULL;
    int peer = -1, tag = -1;  // of a message; the root of a collective; the number of a file; a target
    bool in_place = false, wildcard = false, replaced = false;
    // For a reduction that this library carries out: its buffers, and the number of elements for each rank.
    const void *send = nullptr;
    void *recv = nullptr;
    std::vector<MPI_Aint> shares = {};
    std::int64_t at = -1;  // the first byte in a file; the place in a window
    bool scattered = false;
    Neighbours neighbours = {};  // of a neighbourhood collective
};

inline int rank_in(MPI_Comm comm) {
    int rank = 0;
    PMPI_Comm_rank(comm, &rank);
    return rank;
}

// The number of ranks with which a rank exchanges data: of the other group for an intercommunicator.
inline int size_of(MPI_Comm comm) {
    int size = 0, inter = 0;
    PMPI_Comm_test_inter(comm, &inter);
    if (inter)
        PMPI_Comm_remote_size(comm, &size);
    else
        PMPI_Comm_size(comm, &size);
    return size;
}

inline bool is_inter(MPI_Comm comm) {
    int inter = 0;
    PMPI_Comm_test_inter(comm, &inter);
    return inter != 0;
}

// Over an intercommunicator the root passes MPI_ROOT, its group MPI_PROC_NULL, and the other group its rank.
inline bool is_root(int root, MPI_Comm comm) {
    return root == MPI_ROOT || (root >= 0 && rank_in(comm) == root && !is_inter(comm));
}

// The parts of a buffer for ranks 0, 1, ..., by counts and displacements.
template <typename Count, typename Place>
Spans parts(const void *buffer, const Count counts[], const Place places[], MPI_Datatype type, int size) {
    Spans spans;
    if (!counts || !places) return spans;  // the MPI library reports the error
    for (int r = 0; r < size; ++r) spans.push_back({part(buffer, MPI_Aint(places[r]), type), MPI_Aint(counts[r]), type});
    return spans;
}

// One of the parts; an empty span if there are none, for instance if MPI_IN_PLACE is wrong on this rank.
inline Span nth(const Spans &spans, int index) {
    return std::size_t(index) < spans.size() ? spans[std::size_t(index)] : Span{nullptr, 0, MPI_DATATYPE_NULL};
}

// A reduction of `count` elements; this rank gets `kept` of them.
inline Shape reduction(Kind kind, const void *send, void *recv, MPI_Aint count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                       MPI_Aint kept) {
    const bool in_place = send == MPI_IN_PLACE;
    const void *given = in_place ? recv : send;
    Shape shape{kind, comm, count, type, {{given, count, type}}, {}};
    if (kept) shape.out = {{recv, kept, type}};
    shape.op = op;
    shape.in_place = in_place;
    shape.send = given;
    shape.recv = recv;
    return shape;
}

inline Shape allreduce(const void *send, void *recv, MPI_Aint count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    return reduction(ALLREDUCE, send, recv, count, type, op, comm, count);
}

inline Shape reduce(const void *send, void *recv, MPI_Aint count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
    Shape shape = reduction(REDUCE, send, recv, count, type, op, comm, is_root(root, comm) ? count : 0);
    shape.peer = root;
    if (root == MPI_ROOT || root == MPI_PROC_NULL) shape.in.clear();
    return shape;
}

template <typename Count>
Shape reduce_scatter(const void *send, void *recv, const Count counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    int size = 0;
    PMPI_Comm_size(comm, &size);  // for an intercommunicator, too, the size of the own group
    MPI_Aint all = 0;
    for (int r = 0; counts && r < size; ++r) all += MPI_Aint(counts[r]);
    Shape shape = reduction(REDUCE_SCATTER, send, recv, all, type, op, comm, counts ? MPI_Aint(counts[rank_in(comm)]) : 0);
    if (counts) shape.shares.assign(counts, counts + size);
    return shape;
}

inline Shape reduce_scatter_block(const void *send, void *recv, MPI_Aint count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    int size = 0;
    PMPI_Comm_size(comm, &size);
    Shape shape = reduction(REDUCE_SCATTER_BLOCK, send, recv, count * size, type, op, comm, count);
    shape.shares.assign(std::size_t(size), count);
    return shape;
}

inline Shape scan(const void *send, void *recv, MPI_Aint count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    return reduction(SCAN, send, recv, count, type, op, comm, count);
}

inline Shape exscan(const void *send, void *recv, MPI_Aint count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    return reduction(EXSCAN, send, recv, count, type, op, comm, rank_in(comm) ? count : 0);  // undefined on rank 0
}

inline Shape bcast(void *data, MPI_Aint count, MPI_Datatype type, int root, MPI_Comm comm) {
    Shape shape{BCAST, comm, count, type, {}, {{data, count, type}}};
    if (is_root(root, comm)) shape.in = shape.out;
    if (root == MPI_PROC_NULL) shape.out.clear();
    shape.peer = root;
    return shape;
}

inline Shape barrier(MPI_Comm comm) { return {BARRIER, comm, 0, MPI_DATATYPE_NULL, {}, {}}; }

inline Shape allgather(const void *send, MPI_Aint count, MPI_Datatype type, const void *recv, MPI_Aint each, MPI_Datatype to,
                       MPI_Comm comm) {
    Shape shape{ALLGATHER, comm, each, to, {}, {{recv, each * size_of(comm), to}}};
    shape.in_place = send == MPI_IN_PLACE;
    shape.in = {shape.in_place ? Span{part(recv, each * rank_in(comm), to), each, to} : Span{send, count, type}};
    return shape;
}

template <typename Count, typename Place>
Shape allgatherv(const void *send, MPI_Aint count, MPI_Datatype type, const void *recv, const Count counts[],
                 const Place places[], MPI_Datatype to, MPI_Comm comm) {
    Shape shape{ALLGATHERV, comm, count, to, {}, parts(recv, counts, places, to, size_of(comm))};
    shape.in_place = send == MPI_IN_PLACE;
    shape.in = {shape.in_place ? nth(shape.out, rank_in(comm)) : Span{send, count, type}};
    return shape;
}

inline Shape alltoall(const void *send, MPI_Aint count, MPI_Datatype type, const void *recv, MPI_Aint each, MPI_Datatype to,
                      MPI_Comm comm) {
    const int size = size_of(comm);
    Shape shape{ALLTOALL, comm, each, to, {}, {{recv, each * size, to}}};
    shape.in_place = send == MPI_IN_PLACE;
    shape.in = shape.in_place ? shape.out : Spans{{send, count * size, type}};
    return shape;
}

template <typename Count, typename Place>
Shape alltoallv(const void *send, const Count counts[], const Place places[], MPI_Datatype type, const void *recv,
                const Count recv_counts[], const Place recv_places[], MPI_Datatype to, MPI_Comm comm) {
    const int size = size_of(comm);
    Shape shape{ALLTOALLV, comm, 0, to, {}, parts(recv, recv_counts, recv_places, to, size)};
    shape.in_place = send == MPI_IN_PLACE;
    shape.in = shape.in_place ? shape.out : parts(send, counts, places, type, size);
    for (const Span &span : shape.out) shape.count += span.count;
    return shape;
}

// Gathers and scatters: the root's part may be in place; on other ranks the arguments for the root have no meaning.
inline Shape gather(const void *send, MPI_Aint count, MPI_Datatype type, const void *recv, MPI_Aint each, MPI_Datatype to,
                    int root, MPI_Comm comm) {
    const bool own = is_root(root, comm);
    Shape shape{GATHER, comm, own ? each : count, own ? to : type, {}, {}};
    shape.peer = root;
    shape.in_place = send == MPI_IN_PLACE;
    if (own) shape.out = {{recv, each * size_of(comm), to}};
    if (root >= 0) shape.in = {shape.in_place ? Span{part(recv, each * root, to), each, to} : Span{send, count, type}};
    return shape;
}

template <typename Count, typename Place>
Shape gatherv(const void *send, MPI_Aint count, MPI_Datatype type, const void *recv, const Count counts[],
              const Place places[], MPI_Datatype to, int root, MPI_Comm comm) {
    const bool own = is_root(root, comm);
    Shape shape{GATHERV, comm, count, own ? to : type, {}, {}};
    shape.peer = root;
    shape.in_place = send == MPI_IN_PLACE;
    if (own) shape.out = parts(recv, counts, places, to, size_of(comm));
    if (root >= 0) shape.in = {shape.in_place ? nth(shape.out, root) : Span{send, count, type}};
    return shape;
}

inline Shape scatter(const void *send, MPI_Aint count, MPI_Datatype type, const void *recv, MPI_Aint each, MPI_Datatype to,
                     int root, MPI_Comm comm) {
    const bool own = is_root(root, comm);
    Shape shape{SCATTER, comm, own ? count : each, own ? type : to, {}, {}};
    shape.peer = root;
    shape.in_place = recv == MPI_IN_PLACE;
    if (own) shape.in = {{send, count * size_of(comm), type}};
    if (root >= 0) shape.out = {shape.in_place ? Span{part(send, count * root, type), count, type} : Span{recv, each, to}};
    return shape;
}

template <typename Count, typename Place>
Shape scatterv(const void *send, const Count counts[], const Place places[], MPI_Datatype type, const void *recv,
               MPI_Aint each, MPI_Datatype to, int root, MPI_Comm comm) {
    const bool own = is_root(root, comm);
    Shape shape{SCATTERV, comm, each, own ? type : to, {}, {}};
    shape.peer = root;
    shape.in_place = recv == MPI_IN_PLACE;
    if (own) shape.in = parts(send, counts, places, type, size_of(comm));
    if (root >= 0) shape.out = {shape.in_place ? nth(shape.in, root) : Span{recv, each, to}};
    return shape;
}

inline Shape sent(Kind kind, const void *data, MPI_Aint count, MPI_Datatype type, int target, int tag, MPI_Comm comm) {
    Shape shape{kind, comm, count, type, {{data, count, type}}, {}};
    shape.peer = target;
    shape.tag = tag;
    return shape;
}

inline Shape received(const void *data, MPI_Aint count, MPI_Datatype type, int source, int tag, MPI_Comm comm) {
    Shape shape{RECV, comm, count, type, {}, {{data, count, type}}};
    shape.wildcard = source == MPI_ANY_SOURCE;
    shape.peer = source;
    shape.tag = tag;
    return shape;
}

// A receive with a send in the same call; `sends`: the send is recorded, too.
inline Shape exchanged(Kind kind, const Span &send, const Span &recv, int source, int tag, MPI_Comm comm, bool sends) {
    Shape shape = received(recv.start, recv.count, recv.type, source, tag, comm);
    shape.kind = kind;
    if (sends) shape.in = {send};
    return shape;
}

inline Shape probed(Kind kind, int source, int tag, MPI_Comm comm) {
    Shape shape{kind, comm, 0, MPI_DATATYPE_NULL, {}, {}};
    shape.wildcard = source == MPI_ANY_SOURCE;
    shape.peer = source;
    shape.tag = tag;
    return shape;
}

// The receive of a message that a probe has matched.
inline Shape matched(const void *data, MPI_Aint count, MPI_Datatype type) {
    return {MRECV, MPI_COMM_NULL, count, type, {}, {{data, count, type}}};
}

// Whether a call of this kind has a status that describes its message.
inline bool receives(Kind kind) { return kind >= RECV && kind < TEST; }

// Whether a call of this kind reads a file; its status tells how much.
inline bool reads(Kind kind) { return kind >= FILE_READ && kind <= FILE_READ_ORDERED; }

}  // namespace fpna
