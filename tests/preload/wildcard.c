/* Rank 0 adds what the others send, in the order in which it comes: a race on purpose. argv[1]: rounds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static double collect(int size) {
    double total = 0;
    for (int i = 1; i < size; ++i) {
        double part;
        MPI_Recv(&part, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        total += part;
    }
    return total;
}

int main(int argc, char **argv) {
    int rank, size, rounds = argc > 1 ? atoi(argv[1]) : 10;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    srand48(getpid() + (argc > 2 ? atoi(argv[2]) : 0));
    double state = 1;
    for (int k = 0; k < rounds; ++k) {
        if (rank) {
            double part = state * (rank == 1 ? 1e16 : rank == 2 ? -1e16 : 1.0 / rank);
            usleep((unsigned)(drand48() * 2000));
            MPI_Send(&part, 1, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD);
        } else {
            state = 1 + collect(size) / 1024;
        }
        MPI_Bcast(&state, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    }
    if (!rank) printf("state %.17g\n", state);
    MPI_Finalize();
    return 0;
}
