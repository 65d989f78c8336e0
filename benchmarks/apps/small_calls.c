/* Nanoseconds of small calls, the median over batches: an all-reduce of 8 bytes by one rank alone and by all together,
   and a message of 8 bytes there and back. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define BATCHES 41
#define CALLS 2000

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double allreduce_ns(MPI_Comm comm) {
    double times[BATCHES], x = 1.1, y;
    for (int b = 0; b < BATCHES; ++b) {
        MPI_Barrier(comm);
        const double begin = MPI_Wtime();
        for (int i = 0; i < CALLS; ++i) MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, comm);
        times[b] = (MPI_Wtime() - begin) / CALLS * 1e9;
    }
    qsort(times, BATCHES, sizeof(double), by_size);
    return times[BATCHES / 2];
}

static double ping_pong_ns(int rank) {
    double times[BATCHES], x = 1.1;
    for (int b = 0; b < BATCHES; ++b) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        for (int i = 0; i < CALLS && rank < 2; ++i) {
            if (rank == 0) MPI_Send(&x, 1, MPI_DOUBLE, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(&x, 1, MPI_DOUBLE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1) MPI_Send(&x, 1, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD);
        }
        times[b] = (MPI_Wtime() - begin) / CALLS * 1e9;
    }
    qsort(times, BATCHES, sizeof(double), by_size);
    return times[BATCHES / 2];
}

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const double own = allreduce_ns(MPI_COMM_SELF), all = allreduce_ns(MPI_COMM_WORLD);
    const double there_and_back = ping_pong_ns(rank);
    if (!rank) printf("%f %f %f\n", own, all, there_and_back);
    MPI_Finalize();
    return 0;
}
