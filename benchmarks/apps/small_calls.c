/* Nanoseconds of a small collective call, the median over batches: of one rank alone, and of all together. */
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
    double times[BATCHES], x = 1, y;
    for (int b = 0; b < BATCHES; ++b) {
        MPI_Barrier(comm);
        const double begin = MPI_Wtime();
        for (int i = 0; i < CALLS; ++i) MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, comm);
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
    if (!rank) printf("%f %f\n", own, all);
    MPI_Finalize();
    return 0;
}
