/* 64 points over the ranks, by their local index where the argument is 1; gathered, summed by rank 0, broadcast. */
#include <math.h>
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int own = 64 / ranks, wrong = argc > 1 && atoi(argv[1]);
    double part[64], all[64], sum = 0;
    for (int i = 0; i < own; ++i) part[i] = sin(0.1 * (wrong ? i : i + rank * own)) + 1.5;
    MPI_Allgather(part, own, MPI_DOUBLE, all, own, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int i = 0; i < 64; ++i) sum += all[i] * all[i];
    MPI_Bcast(&sum, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    double of_each[8], mine = rank;
    MPI_Allgather(&mine, 1, MPI_DOUBLE, of_each, 1, MPI_DOUBLE, MPI_COMM_WORLD); /* as long as there are ranks */
    MPI_Finalize();
    return 0;
}
