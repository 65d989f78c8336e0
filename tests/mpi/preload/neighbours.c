/* Neighbourhood collectives in every form, on grids and graphs with repeated, missing and absent neighbours. Rank r writes a line
   for each call into PARTS/parts-r: form, number of the call, bytes sent and received in hexadecimal, neighbours of both kinds.
   ODD: a rank that sends other numbers at its first call of MPI_Neighbor_alltoallv. TURNED: the ring runs the other way. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16, ROOM = 64 };
static int rank, size, calls;
static FILE *parts;

static void write_bytes(const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) fprintf(parts, "%02x", ((const unsigned char *)data)[i]);
}

/* The ranks from which this one receives, and to which it sends, on `comm`. */
static void neighbours(MPI_Comm comm, int *in, int from[], int *out, int to[]) {
    int kind, n, weighted, dimensions;
    MPI_Topo_test(comm, &kind);
    if (kind == MPI_CART) {
        MPI_Cartdim_get(comm, &dimensions);
        for (int d = 0; d < dimensions; ++d) MPI_Cart_shift(comm, d, 1, &from[2 * d], &from[2 * d + 1]);
        *in = *out = 2 * dimensions;
        memcpy(to, from, sizeof(int) * (size_t)*in);
    } else if (kind == MPI_GRAPH) {
        int me;
        MPI_Comm_rank(comm, &me);
        MPI_Graph_neighbors_count(comm, me, &n);
        MPI_Graph_neighbors(comm, me, n, from);
        *in = *out = n;
        memcpy(to, from, sizeof(int) * (size_t)n);
    } else {
        int weights[MOST];
        MPI_Dist_graph_neighbors_count(comm, in, out, &weighted);
        MPI_Dist_graph_neighbors(comm, *in, from, weighted ? weights : MPI_UNWEIGHTED, *out, to,
                                 weighted ? weights : MPI_UNWEIGHTED);
    }
}

static void finish(MPI_Request request, int persistent) {
    if (persistent) MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (persistent) MPI_Request_free(&request);
}

#if MPI_VERSION >= 4
#define PERSISTENT(NAME, ...) case 2: MPI_##NAME##_init(__VA_ARGS__, MPI_INFO_NULL, &request); finish(request, 1); break;
#define LARGE(NAME, ...) case 3: MPI_##NAME##_c(__VA_ARGS__); break;
#else
#define PERSISTENT(NAME, ...)
#define LARGE(NAME, ...)
#endif

/* One call after another, each with parts that differ in length where MPI allows it; `form`: 0 blocking, 1 nonblocking, 2
   persistent, 3 with large counts. */
static void every(MPI_Comm comm, int form) {
    int in, out, from[MOST], to[MOST];
    double send[MOST * ROOM], recv[MOST * ROOM];
    int counts[MOST], places[MOST], recv_counts[MOST], recv_places[MOST];
    MPI_Aint bytes[MOST], recv_bytes[MOST];
    MPI_Datatype types[MOST], recv_types[MOST], stride;
    MPI_Request request;
    neighbours(comm, &in, from, &out, to);
    MPI_Type_vector(2, 1, 3, MPI_DOUBLE, &stride);
    MPI_Type_commit(&stride);
    const char *odd = getenv("ODD");
#if MPI_VERSION >= 4
    MPI_Count large[MOST], recv_large[MOST];
    MPI_Aint large_places[MOST], recv_large_places[MOST];
#endif
    for (int call = 0; call < 5; ++call) {
        for (int i = 0; i < MOST * ROOM; ++i) send[i] = rank * 1000.0 + calls * 7 + i, recv[i] = -1;
        ++calls;
        if (odd && atoi(odd) == rank && call == 3) send[0] += 0.5;
        for (int i = 0; i < in; ++i) recv_counts[i] = from[i] < 0 ? 3 : from[i] % 3, recv_places[i] = i * ROOM / 2;
        for (int i = 0; i < out; ++i) counts[i] = rank % 3, places[i] = i * ROOM / 2;
        for (int i = 0; i < in; ++i) recv_bytes[i] = recv_places[i] * 8, recv_types[i] = i % 2 ? MPI_DOUBLE : stride;
        for (int i = 0; i < out; ++i) bytes[i] = places[i] * 8, types[i] = MPI_DOUBLE;
        if (call == 4) /* two numbers of the neighbour, either apart or side by side */
            for (int i = 0; i < in; ++i) recv_counts[i] = i % 2 ? 2 : 1;
        if (call == 4)
            for (int i = 0; i < out; ++i) counts[i] = 2;
#if MPI_VERSION >= 4
        for (int i = 0; i < MOST; ++i) {
            large[i] = i < out ? counts[i] : 0, recv_large[i] = i < in ? recv_counts[i] : 0;
            large_places[i] = i < out ? places[i] : 0, recv_large_places[i] = i < in ? recv_places[i] : 0;
        }
#endif
#define CALL(NAME, INAME, SEND, RECV, LARGE_SEND, LARGE_RECV)                                                     \
    switch (form) {                                                                                              \
    case 0: MPI_##NAME(SEND, RECV, comm); break;                                                                 \
    case 1: MPI_##INAME(SEND, RECV, comm, &request); finish(request, 0); break;                                  \
    PERSISTENT(NAME, SEND, RECV, comm)                                                                           \
    LARGE(NAME, LARGE_SEND, LARGE_RECV, comm)                                                                    \
    }
#define AND ,
        switch (call) {
        case 0: CALL(Neighbor_allgather, Ineighbor_allgather, send AND 2 AND MPI_DOUBLE, recv AND 2 AND MPI_DOUBLE,
                     send AND 2 AND MPI_DOUBLE, recv AND 2 AND MPI_DOUBLE) break;
        case 1: CALL(Neighbor_allgatherv, Ineighbor_allgatherv, send AND rank % 3 AND MPI_DOUBLE,
                     recv AND recv_counts AND recv_places AND MPI_DOUBLE, send AND rank % 3 AND MPI_DOUBLE,
                     recv AND recv_large AND recv_large_places AND MPI_DOUBLE) break;
        case 2: CALL(Neighbor_alltoall, Ineighbor_alltoall, send AND 3 AND MPI_DOUBLE, recv AND 3 AND MPI_DOUBLE,
                     send AND 3 AND MPI_DOUBLE, recv AND 3 AND MPI_DOUBLE) break;
        case 3: CALL(Neighbor_alltoallv, Ineighbor_alltoallv, send AND counts AND places AND MPI_DOUBLE,
                     recv AND recv_counts AND recv_places AND MPI_DOUBLE, send AND large AND large_places AND MPI_DOUBLE,
                     recv AND recv_large AND recv_large_places AND MPI_DOUBLE) break;
        case 4: CALL(Neighbor_alltoallw, Ineighbor_alltoallw, send AND counts AND bytes AND types,
                     recv AND recv_counts AND recv_bytes AND recv_types, send AND large AND bytes AND types,
                     recv AND recv_large AND recv_bytes AND recv_types) break;
        }
        fprintf(parts, "%d %d ", form, call);
        int sends = 0;
        for (int i = 0; i < out; ++i) {
            if (to[i] < 0) continue;
            if (call == 0 && !sends++) write_bytes(send, 16);
            if (call == 1 && !sends++) write_bytes(send, 8 * (size_t)(rank % 3));
            if (call == 2) write_bytes(send + 3 * i, 24);
            if (call == 3) write_bytes(send + places[i], 8 * (size_t)counts[i]);
            if (call == 4) write_bytes(send + places[i], 16);
        }
        fprintf(parts, " | ");
        for (int i = 0; i < in; ++i) {
            if (from[i] < 0) continue;
            if (call == 0) write_bytes(recv + 2 * i, 16);
            if (call == 1 || call == 3) write_bytes(recv + recv_places[i], 8 * (size_t)recv_counts[i]);
            if (call == 2) write_bytes(recv + 3 * i, 24);
            if (call == 4) write_bytes(recv + recv_places[i], 8), write_bytes(recv + recv_places[i] + (i % 2 ? 1 : 3), 8);
        }
        fprintf(parts, " |");
        for (int i = 0; i < in; ++i) fprintf(parts, " %d", from[i] < 0 ? -1 : from[i]);
        fprintf(parts, " |");
        for (int i = 0; i < out; ++i) fprintf(parts, " %d", to[i] < 0 ? -1 : to[i]);
        fprintf(parts, "\n");
    }
    MPI_Type_free(&stride);
}

int main(int argc, char **argv) {
    char path[4096];
    MPI_Comm comms[6];
    int made = 0, lengths[1], periods[1] = {1}, open[1] = {0}, index[MOST], edges[4 * MOST], n = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    snprintf(path, sizeof path, "%s/parts-%d", getenv("PARTS") ? getenv("PARTS") : ".", rank);
    parts = fopen(path, "w");
    lengths[0] = size;
    MPI_Cart_create(MPI_COMM_WORLD, 1, lengths, periods, 0, &comms[made++]); /* of two ranks, one neighbour twice */
    MPI_Cart_create(MPI_COMM_WORLD, 1, lengths, open, 0, &comms[made++]);    /* with MPI_PROC_NULL at both ends */
    for (int r = 0; r < size; ++r) { /* rank 0 has all others as neighbours, and each other one rank 0 alone */
        for (int other = 0; other < size; ++other)
            if (other != r && (r == 0 || other == 0)) edges[n++] = other;
        index[r] = n;
    }
    MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 0, &comms[made++]);
    int turn = getenv("TURNED") ? size - 1 : 1;
    int from[] = {(rank + size - turn) % size, (rank + size - turn) % size}, to[] = {(rank + turn) % size, (rank + turn) % size};
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, from, MPI_UNWEIGHTED, 2, to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                   &comms[made++]); /* each neighbour twice */
    int one = rank == 0, root[1] = {0}, leaf[1] = {size - 1};
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, rank == size - 1, root, MPI_UNWEIGHTED, one, leaf, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &comms[made++]); /* rank 0 sends to the last one; others have no neighbour */
    for (int i = 0; i < made; ++i)
        for (int form = 0; form < (MPI_VERSION >= 4 ? 4 : 2); ++form) every(comms[i], form);
    for (int i = 0; i < made; ++i) MPI_Comm_free(&comms[i]);
    fclose(parts);
    MPI_Finalize();
    return 0;
}
