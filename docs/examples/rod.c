/* Heat in a rod with a thermostat: the mean temperature enters every point of the next step.
 *
 *     mpicc -g -O2 rod.c -o rod
 *     mpirun -n 4 ./rod             each rank adds its points, MPI_Allreduce adds the ranks
 *     mpirun -n 4 ./rod blocks      each block of 256 points is added by itself, on any number of ranks
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { POINTS = 4096, BLOCK = 256, BLOCKS = POINTS / BLOCK, STEPS = 50 };

static double sum_of_ranks(const double *u, int n) {
    double mine = 0, total;
    for (int i = 0; i < n; i++) mine += u[i];
    MPI_Allreduce(&mine, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return total;
}

static double sum_of_blocks(const double *u, int n, int first) {
    double mine[BLOCKS] = {0}, all[BLOCKS], total = 0;
    for (int i = 0; i < n; i++) mine[(first + i) / BLOCK] += u[i];
    MPI_Allreduce(mine, all, BLOCKS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int b = 0; b < BLOCKS; b++) total += all[b];
    return total;
}

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (BLOCKS % size) {
        if (rank == 0) fprintf(stderr, "rod: %d ranks do not divide %d blocks\n", size, BLOCKS);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int n = POINTS / size, first = rank * n;
    int left = rank ? rank - 1 : MPI_PROC_NULL, right = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    double *u = malloc((n + 2) * sizeof *u), *next = malloc((n + 2) * sizeof *next), mean = 0;
    for (int i = 1; i <= n; i++) u[i] = 1 + sin(0.01 * (first + i));
    for (int step = 0; step < STEPS; step++) {
        u[0] = u[1], u[n + 1] = u[n];
        MPI_Sendrecv(&u[1], 1, MPI_DOUBLE, left, 0, &u[n + 1], 1, MPI_DOUBLE, right, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(&u[n], 1, MPI_DOUBLE, right, 1, &u[0], 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        mean = (argc > 1 ? sum_of_blocks(u + 1, n, first) : sum_of_ranks(u + 1, n)) / POINTS;
        for (int i = 1; i <= n; i++) next[i] = u[i] + 0.2 * (u[i - 1] - 2 * u[i] + u[i + 1]) + 0.1 * (1 - mean);
        double *old = u;
        u = next, next = old;
    }
    if (rank == 0) printf("mean %.17g\n", mean);
    free(u), free(next);
    return MPI_Finalize();
}
