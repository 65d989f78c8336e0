// The neighbours of a rank on a communicator with a topology, and the shapes of neighbourhood collectives.
//
// A rank sends to the neighbours `to` and receives from the neighbours `from`, one part for each, in the order of MPI: in a
// Cartesian grid the ranks before and after this one in each dimension; in a graph its neighbours; in a distributed graph its
// destinations and sources. A neighbour may appear several times. MPI_PROC_NULL moves no data: its part of a buffer is not read.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <mpi.h>

#include "shapes.hpp"

namespace fpna {

inline Neighbours neighbours_of(MPI_Comm comm) {
    Neighbours found;
    int kind = MPI_UNDEFINED, n = 0, out = 0, weighted = 0;
    PMPI_Topo_test(comm, &kind);
    if (kind == MPI_CART) {
        PMPI_Cartdim_get(comm, &n);
        for (int dimension = 0; dimension < n; ++dimension) {
            int before = MPI_PROC_NULL, after = MPI_PROC_NULL;
            PMPI_Cart_shift(comm, dimension, 1, &before, &after);
            found.from.insert(found.from.end(), {before, after});
        }
        found.to = found.from;
    } else if (kind == MPI_GRAPH) {
        PMPI_Graph_neighbors_count(comm, rank_in(comm), &n);
        found.from.resize(std::size_t(n));
        PMPI_Graph_neighbors(comm, rank_in(comm), n, found.from.data());
        found.to = found.from;
    } else if (kind == MPI_DIST_GRAPH) {
        PMPI_Dist_graph_neighbors_count(comm, &n, &out, &weighted);
        found.from.resize(std::size_t(n));
        found.to.resize(std::size_t(out));
        std::vector<int> in_weights(std::size_t(n) + 1), out_weights(std::size_t(out) + 1);
        PMPI_Dist_graph_neighbors(comm, n, found.from.data(), weighted ? in_weights.data() : MPI_UNWEIGHTED, out,
                                  found.to.data(), weighted ? out_weights.data() : MPI_UNWEIGHTED);
    }
    return found;
}

// The neighbours as ranks of MPI_COMM_WORLD; MPI_PROC_NULL is -1, a rank of no such number -2.
inline std::vector<int> in_the_world(const std::vector<int> &ranks, MPI_Comm comm) {
    MPI_Group own, world;
    std::vector<int> found(ranks.size() + 1);
    PMPI_Comm_group(comm, &own);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Group_translate_ranks(own, int(ranks.size()), ranks.data(), world, found.data());
    PMPI_Group_free(&own);
    PMPI_Group_free(&world);
    found.pop_back();
    for (int &rank : found) rank = rank == MPI_PROC_NULL ? -1 : rank == MPI_UNDEFINED ? -2 : rank;
    return found;
}

// The parts of a buffer for each neighbour: `span(i)` is that of the i-th.
template <typename Part>
Spans parts_of(const std::vector<int> &neighbours, Part span) {
    Spans spans;
    for (std::size_t i = 0; i < neighbours.size(); ++i)
        if (neighbours[i] != MPI_PROC_NULL) spans.push_back(span(i));
    return spans;
}

inline Shape among_neighbours(Kind kind, MPI_Comm comm, MPI_Aint count, MPI_Datatype type) {
    Shape shape{kind, comm, count, type, {}, {}};
    shape.neighbours = neighbours_of(comm);
    return shape;
}

// Equal parts.
inline Spans equal_parts(const std::vector<int> &neighbours, const void *data, MPI_Aint each, MPI_Datatype type) {
    return parts_of(neighbours, [&](std::size_t i) { return Span{part(data, each * MPI_Aint(i), type), each, type}; });
}

// Parts by counts and displacements.
template <typename Count, typename Place>
Spans unequal_parts(const std::vector<int> &neighbours, const void *data, const Count counts[], const Place places[],
                    MPI_Datatype type) {
    if (!counts || !places) return {};  // the MPI library reports the error
    return parts_of(neighbours, [&](std::size_t i) {
        return Span{part(data, MPI_Aint(places[i]), type), MPI_Aint(counts[i]), type};
    });
}

// One part that goes to every neighbour; none if there is none.
inline Spans to_all(const Neighbours &neighbours, const Span &span) {
    for (int to : neighbours.to)
        if (to != MPI_PROC_NULL) return {span};
    return {};
}

inline MPI_Aint all_of(const Spans &spans) {
    MPI_Aint count = 0;
    for (const Span &span : spans) count += span.count;
    return count;
}

inline Shape neighbor_allgather(const void *send, MPI_Aint count, MPI_Datatype type, const void *recv, MPI_Aint each,
                                MPI_Datatype to, MPI_Comm comm) {
    Shape shape = among_neighbours(NEIGHBOR_ALLGATHER, comm, each, to);
    shape.in = to_all(shape.neighbours, {send, count, type});
    shape.out = equal_parts(shape.neighbours.from, recv, each, to);
    return shape;
}

template <typename Count, typename Place>
Shape neighbor_allgatherv(const void *send, MPI_Aint count, MPI_Datatype type, const void *recv, const Count counts[],
                          const Place places[], MPI_Datatype to, MPI_Comm comm) {
    Shape shape = among_neighbours(NEIGHBOR_ALLGATHERV, comm, count, to);
    shape.in = to_all(shape.neighbours, {send, count, type});
    shape.out = unequal_parts(shape.neighbours.from, recv, counts, places, to);
    return shape;
}

inline Shape neighbor_alltoall(const void *send, MPI_Aint count, MPI_Datatype type, const void *recv, MPI_Aint each,
                               MPI_Datatype to, MPI_Comm comm) {
    Shape shape = among_neighbours(NEIGHBOR_ALLTOALL, comm, each, to);
    shape.in = equal_parts(shape.neighbours.to, send, count, type);
    shape.out = equal_parts(shape.neighbours.from, recv, each, to);
    return shape;
}

template <typename Count, typename Place>
Shape neighbor_alltoallv(const void *send, const Count counts[], const Place places[], MPI_Datatype type, const void *recv,
                         const Count recv_counts[], const Place recv_places[], MPI_Datatype to, MPI_Comm comm) {
    Shape shape = among_neighbours(NEIGHBOR_ALLTOALLV, comm, 0, to);
    shape.in = unequal_parts(shape.neighbours.to, send, counts, places, type);
    shape.out = unequal_parts(shape.neighbours.from, recv, recv_counts, recv_places, to);
    shape.count = all_of(shape.out);
    return shape;
}

// Displacements are in bytes, and each part has its own type: `type_of(types, i)`.
template <typename Count, typename Types, typename Type>
Shape neighbor_alltoallw(const void *send, const Count counts[], const MPI_Aint places[], Types types, const void *recv,
                         const Count recv_counts[], const MPI_Aint recv_places[], Types recv_types, MPI_Comm comm, Type type_at) {
    Shape shape = among_neighbours(NEIGHBOR_ALLTOALLW, comm, 0, MPI_DATATYPE_NULL);
    const auto parts = [&](const std::vector<int> &ranks, const void *data, const Count *own, const MPI_Aint *at, Types of) {
        if (!own || !at || !of) return Spans{};
        return parts_of(ranks, [&](std::size_t i) {
            return Span{static_cast<const char *>(data) + at[i], MPI_Aint(own[i]), type_at(of, i)};
        });
    };
    shape.in = parts(shape.neighbours.to, send, counts, places, types);
    shape.out = parts(shape.neighbours.from, recv, recv_counts, recv_places, recv_types);
    shape.count = all_of(shape.out);
    bool one = !shape.out.empty();
    for (const Span &span : shape.out) one = one && span.type == shape.out[0].type;
    if (one) shape.type = shape.out[0].type;
    return shape;
}

template <typename Count>
Shape neighbor_alltoallw(const void *send, const Count counts[], const MPI_Aint places[], const MPI_Datatype types[],
                         const void *recv, const Count recv_counts[], const MPI_Aint recv_places[],
                         const MPI_Datatype recv_types[], MPI_Comm comm) {
    return neighbor_alltoallw(send, counts, places, types, recv, recv_counts, recv_places, recv_types, comm,
                              [](const MPI_Datatype *of, std::size_t i) { return of[i]; });
}

}  // namespace fpna
