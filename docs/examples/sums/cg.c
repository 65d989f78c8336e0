/* Conjugate gradients for the Poisson equation on a square of 64 x 64 points. Each rank has a block of rows.
 *
 *     mpicc -O2 -ffp-contract=off cg.c -o cg $(fpna config --cflags --libs)
 *     mpirun -n 4 ./cg plain     each rank adds its products, MPI_Allreduce adds the ranks
 *     mpirun -n 4 ./cg fpna      fpna_dot_d adds the products of all ranks without error
 *
 * Everything but the dot products is computed point by point, in one order on any number of ranks. */
#include <fpna.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 64, MOST = 400 };

static int plain, rank, size;

static double dot(const double *x, const double *y, int n) {
    double own = 0, total;
    if (!plain) {
        if (fpna_dot_d(FPNA_EXACT, MPI_COMM_WORLD, n, 1, x, 1, 0, y, 1, 0, &total, NULL)) {
            fprintf(stderr, "%s\n", fpna_error());
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        return total;
    }
    for (int i = 0; i < n; i++) own += x[i] * y[i];
    MPI_Allreduce(&own, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return total;
}

/* q = A p for the rows of this rank. `p` has a row of a neighbour, or of zeros, before and after them. */
static void multiply(double *p, double *q, int rows) {
    int above = rank ? rank - 1 : MPI_PROC_NULL, below = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    double *first = p + N, *last = p + rows * N;
    MPI_Sendrecv(first, N, MPI_DOUBLE, above, 0, last + N, N, MPI_DOUBLE, below, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(last, N, MPI_DOUBLE, below, 1, p, N, MPI_DOUBLE, above, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < N; j++) {
            const double *at = first + i * N + j;
            double west = j ? at[-1] : 0, east = j < N - 1 ? at[1] : 0;
            q[i * N + j] = 4 * at[0] - west - east - at[-N] - at[N];
        }
}

/* FNV-1a over the bits of a number. */
static uint64_t hashed(uint64_t hash, double value) {
    unsigned char bytes[sizeof value];
    memcpy(bytes, &value, sizeof value);
    for (size_t k = 0; k < sizeof value; k++) hash = (hash ^ bytes[k]) * 1099511628211u;
    return hash;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 2 || (strcmp(argv[1], "plain") && strcmp(argv[1], "fpna")) || size > N) {
        if (rank == 0) fprintf(stderr, "usage: cg plain|fpna, on at most %d ranks\n", N);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    plain = !strcmp(argv[1], "plain");

    int begin = rank * N / size, rows = (rank + 1) * N / size - begin, n = rows * N, steps = 0;
    double *u = calloc(n, sizeof *u), *r = malloc(n * sizeof *r), *q = malloc(n * sizeof *q);
    double *p = calloc(n + 2 * N, sizeof *p), *own_p = p + N;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < N; j++) r[i * N + j] = own_p[i * N + j] = 1.0 / (1 + (begin + i) * 7 % 11 + j * 5 % 13);

    double rr = dot(r, r, n), wanted = 1e-12 * rr;
    uint64_t hash = 14695981039346656037u;
    while (rr > wanted && steps++ < MOST) {
        multiply(p, q, rows);
        double alpha = rr / dot(own_p, q, n), before = rr;
        for (int i = 0; i < n; i++) u[i] += alpha * own_p[i], r[i] -= alpha * q[i];
        rr = dot(r, r, n);
        for (int i = 0; i < n; i++) own_p[i] = r[i] + rr / before * own_p[i];
        hash = hashed(hashed(hash, alpha), rr);
    }
    hash = hashed(hash, dot(u, u, n));
    if (rank == 0) printf("%d steps, residual %.17g, hash %016llx\n", steps, rr, (unsigned long long)hash);
    free(u), free(r), free(q), free(p);
    return MPI_Finalize();
}
