/* Threads that call the library of sums at the same time, each on a communicator of its own: library_threads ROUNDS

   Every thread has another rounding mode and traps. Rank 0 prints how many totals differ from those of one thread alone. */
#define _GNU_SOURCE
#include <fenv.h>
#include <fpna.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, CALLS = 7, N = 30000, CELLS = 5 };
static double x[N];
static int64_t cell[N], numbers[N];
static atomic_int wrong;
static int rounds;

struct Totals {
    double of[CALLS][CELLS];
};

struct Work {
    MPI_Comm comm;
    int thread;
    struct Totals alone;
};

static void called(int code) {
    if (code) fprintf(stderr, "%s\n", fpna_error()), MPI_Abort(MPI_COMM_WORLD, 3);
}

static struct Totals totals_of(MPI_Comm comm, int threads) {
    struct Totals t;
    fpna_options options = {.threads = threads};
    fpna_request request;
    int64_t place;
    memset(&t, 0, sizeof t);
    for (int g = FPNA_RUN; g <= FPNA_EXACT; ++g) called(fpna_sum_d(g, comm, N, 1, x, 1, 0, t.of[g - FPNA_RUN], &options));
    called(fpna_dot_d(FPNA_LAYOUT, comm, N / 2, 2, x, 2, 1, x, 1, N / 2, t.of[3], &options));
    called(fpna_scatter_add_d(comm, N, cell, x, CELLS, t.of[4], threads));
    called(fpna_minloc_d(comm, N, x, 1, numbers, &t.of[5][0], &place));
    t.of[5][1] = (double)place;
    called(fpna_iallreduce(FPNA_EXACT, x, t.of[6], CELLS, MPI_DOUBLE, comm, &request));
    called(fpna_wait(&request));
    return t;
}

static void *work(void *given) {
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    const struct Work *own = given;
    for (int k = 0; k < rounds; ++k) {
        fesetround(modes[(own->thread + k) % 4]);
        feenableexcept(own->thread % 2 ? FE_INVALID | FE_OVERFLOW : 0);
        const struct Totals t = totals_of(own->comm, 1 + k % 3);
        wrong += memcmp(&t, &own->alone, sizeof t) != 0 || fegetround() != modes[(own->thread + k) % 4];
    }
    fesetenv(FE_DFL_ENV);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread[THREADS];
    struct Work own[THREADS];
    int rank, provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    rounds = argc > 1 ? atoi(argv[1]) : 1;
    if (provided != MPI_THREAD_MULTIPLE) {
        if (rank == 0) printf("no threads\n");
        return MPI_Finalize();
    }
    srand((unsigned)rank + 1);
    for (int i = 0; i < N; ++i) {
        x[i] = (rand() / 1e9 - 1) * (i % 3 ? 1e-9 : 1e9);
        cell[i] = rand() % CELLS;
        numbers[i] = i + (int64_t)N * rank;
    }
    const struct Totals alone = totals_of(MPI_COMM_WORLD, 1);
    for (int t = 0; t < THREADS; ++t) {
        own[t].thread = t;
        own[t].alone = alone;
        MPI_Comm_dup(MPI_COMM_WORLD, &own[t].comm);
    }
    for (int t = 0; t < THREADS; ++t) pthread_create(&thread[t], NULL, work, &own[t]);
    for (int t = 0; t < THREADS; ++t) pthread_join(thread[t], NULL);
    int mine = wrong, all;
    MPI_Reduce(&mine, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%d wrong\n", all);
    return MPI_Finalize();
}
