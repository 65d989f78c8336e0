/* Rank 0 adds what the others send, in the order in which it comes: a race on purpose. argv[1]: rounds. Ranks send one
   after the other, in the order that the variable ORDER has, such as 312. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double collect(int size) {
    double total = 0, part;
    MPI_Request request;
    for (int i = 1; i < size; ++i) {
        if (i % 2) {
            MPI_Recv(&part, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Irecv(&part, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        total += part;
    }
    return total;
}

int main(int argc, char **argv) {
    int rank, size, rounds = argc > 1 ? atoi(argv[1]) : 10;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *order = getenv("ORDER") ? getenv("ORDER") : "123456789";
    const char *own = strchr(order, '0' + rank);
    double state = 1;
    for (int k = 0; k < rounds; ++k) {
        if (rank) {
            double part = state * (rank == 1 ? 1e16 : rank == 2 ? -1e16 : 1.0 / rank);
            usleep(own ? (unsigned)(own - order) * 20000 : 0);
            if (!getenv("SILENT") || atoi(getenv("SILENT")) != rank) MPI_Send(&part, 1, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD);
        } else {
            state = 1 + collect(size) / 1024;
        }
        MPI_Bcast(&state, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    }
    if (!rank) printf("state %.17g\n", state);
    MPI_Finalize();
    return 0;
}
