/* Sums in floating-point environments that are drawn for each rank: environments SEED CASES [LIBRARY]

   Each sum is made in the default environment, and then in the one drawn; rank 0 says how many differ in bits, leave the
   environment otherwise or raise flags. With LIBRARY the sums are the MPI library's, and are only counted.
   Compiled with FPNA_CALLS, the calls are those of the library of sums (kernels/library). */
#define _GNU_SOURCE
#include <fenv.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xmmintrin.h>

#ifdef FPNA_CALLS
#include <fpna.h>
enum { MOST = 40000, WAYS = 11 };
#else
enum { MOST = 4000, WAYS = 4 };
#endif
static unsigned long long common, own; /* states of two sequences: the same on all ranks, and this rank's */
static int rank, size;

static unsigned draw(unsigned long long *state, unsigned n) {
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(*state >> 33) % n;
}

static double uniform(void) { return draw(&own, 1 << 30) / (double)(1 << 30) * 2 - 1; }

static double number(int kind, int single) {
    switch (kind) {
        case 0: return (draw(&own, 19) - 9.0) * (single ? 0x1p-149 : 0x1p-1074);
        case 1: return ldexp(uniform(), (int)draw(&own, single ? 250 : 2000) - (single ? 140 : 1050));
        case 2: return draw(&own, 2) ? (rank % 2 ? 1 : -1) : ldexp(1, single ? -60 : -1060);
        case 3: return (draw(&own, 2) ? 1 : -1) * (single ? 3e38 : 1e308);
        case 4: return draw(&own, 4) ? uniform() : draw(&own, 2) ? INFINITY : NAN;
        default: return uniform();
    }
}

#ifdef FPNA_CALLS
static int reduce(int way, const void *x, void *total, int n, MPI_Datatype type) {
    static int64_t cell[MOST], numbers[MOST];
    static unsigned char mask[MOST];
    const MPI_Comm comm = MPI_COMM_WORLD;
    const int single = type == MPI_FLOAT, of = (n + size - 1) / size, pair = of % 2 ? FPNA_EXACT : FPNA_RUN;
    const int guarantee = FPNA_RUN + of % 3;
    const float *s = x;
    const double *d = x;
    int64_t *found = (int64_t *)total + 1;
    fpna_report report;
    fpna_options options = {.threads = 1 + of % 4, .mask = mask, .report = of % 2 ? &report : NULL};
    fpna_request request;
    fpna_acc sum = {{0}};
    if (!numbers[1])
        for (int i = 0; i < MOST; ++i) cell[i] = i % 7, numbers[i] = i + (int64_t)MOST * rank, mask[i] = i % 5 != 0;
    switch (way) {
        case 0: return fpna_allreduce(pair, x, total, n, type, comm);
        case 1: return fpna_reduce(pair, x, total, n, type, 0, comm);
        case 2: return fpna_reduce_scatter_block(pair, x, total, n / size, type, comm);
        case 3: return fpna_iallreduce(pair, x, total, n, type, comm, &request) || fpna_wait(&request);
        case 4:
            return single ? fpna_sum_s(guarantee, comm, n, 1, s, 1, 0, total, &options)
                          : fpna_sum_d(guarantee, comm, n, 1, d, 1, 0, total, &options);
        case 5:
            return single ? fpna_dot_s(guarantee, comm, n, 1, s, 1, 0, s, 1, 0, total, NULL)
                          : fpna_dot_d(guarantee, comm, n, 1, d, 1, 0, d, 1, 0, total, NULL);
        case 6:
            return single ? fpna_norm2_s(guarantee, comm, n, 1, s, 1, 0, total, &options)
                          : fpna_norm2_d(guarantee, comm, n, 1, d, 1, 0, total, &options);
        case 7:
            return single ? fpna_scatter_add_s(comm, n, cell, s, 7, total, options.threads)
                          : fpna_scatter_add_d(comm, n, cell, d, 7, total, options.threads);
        case 8:
            return single ? fpna_minloc_s(comm, n, s, 1, numbers, total, found)
                          : fpna_maxloc_d(comm, n, d, 1, numbers, total, found);
        case 9:
            return single ? fpna_sum_c(guarantee, comm, n / 2, 1, s, 1, 0, total, &options)
                          : fpna_dot_z(guarantee, comm, n / 2, 1, d, 1, 0, d, 1, 0, total, &options);
        default:
            if (single) {
                fpna_acc_add_s(&sum, n, s, 1);
                fpna_acc_dot_s(&sum, n, s, 1, s, 1);
                *(float *)total = fpna_acc_value_s(&sum);
            } else {
                fpna_acc_add_d(&sum, n, d, 1);
                fpna_acc_dot_d(&sum, n, d, 1, d, 1);
                *(double *)total = fpna_acc_value_d(&sum);
            }
            return fpna_acc_allreduce(&sum, 1, comm);
    }
}
#else
static int reduce(int way, const void *x, void *total, int n, MPI_Datatype type) {
    switch (way) {
        case 0: return MPI_Allreduce(x, total, n, type, MPI_SUM, MPI_COMM_WORLD);
        case 1: return MPI_Reduce(x, total, n, type, MPI_SUM, 0, MPI_COMM_WORLD);
        case 2: return MPI_Reduce_scatter_block(x, total, n / size, type, MPI_SUM, MPI_COMM_WORLD);
        default: return MPI_Scan(x, total, n, type, MPI_SUM, MPI_COMM_WORLD);
    }
}
#endif

int main(int argc, char **argv) {
    static double x[MOST], y[MOST], z[MOST];
    static float xf[MOST];
    const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    const int trapped[] = {0, FE_INVALID, FE_OVERFLOW, FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW,
                           FE_INVALID | FE_OVERFLOW | FE_UNDERFLOW};
    int differ = 0, changed = 0, flagged = 0, all[3], cases = atoi(argv[2]);
    const int library = argc > 3;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    common = strtoull(argv[1], NULL, 10) * 77 + 1;
    for (int i = 0; i < cases; ++i) {
        const int single = draw(&common, 2), way = draw(&common, WAYS), kind = draw(&common, 6);
        const int n = size * (1 + (draw(&common, 8) ? draw(&common, 4) : draw(&common, MOST / size - 1)));
        const MPI_Datatype type = single ? MPI_FLOAT : MPI_DOUBLE;
        own = common + 1000003ULL * (rank + 1);
        const void *given = single ? (void *)xf : (void *)x;
        for (int k = 0; k < n; ++k) x[k] = number(kind, single), xf[k] = (float)x[k];
        memset(y, 0, sizeof y);
        memset(z, 0, sizeof z);
        if (reduce(way, given, y, n, type)) MPI_Abort(MPI_COMM_WORLD, 3);
        const int quiet = draw(&common, 3) == 0 && rank != (int)draw(&common, size); /* on one rank, on all */
        const int mode = quiet ? FE_TONEAREST : modes[draw(&own, 4)];
        const int traps = quiet || library ? 0 : trapped[draw(&own, 5)], flags = draw(&own, 2) ? FE_INEXACT : 0;
        const unsigned flush = quiet ? 0 : (draw(&own, 2) ? 0x8000 : 0) | (draw(&own, 2) ? 0x40 : 0);
#ifdef FPNA_CALLS
#pragma omp parallel num_threads(4) /* the threads of OpenMP are those of the library */
#endif
        {
            feclearexcept(FE_ALL_EXCEPT);
            if (flags) feraiseexcept(flags);
            _mm_setcsr((_mm_getcsr() & ~0x8040u) | flush);
            fesetround(mode);
            feenableexcept(traps);
        }
        const int code = reduce(way, given, z, n, type);
        const int left = fetestexcept(FE_ALL_EXCEPT), found = fegetround(), trap = fegetexcept();
        const unsigned control = _mm_getcsr() & 0x8040;
        fesetenv(FE_DFL_ENV);
        differ += code != 0 || memcmp(y, z, sizeof y) != 0;
        changed += found != mode || trap != traps || control != flush;
        flagged += (left & ~flags) != 0;
    }
    const int mine[] = {differ, changed, flagged};
    MPI_Reduce(mine, all, 3, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%d cases, %d differ, %d changed, %d flagged\n", cases, all[0], all[1], all[2]);

    /* Known answers, with traps. */
    const double known[][3] = {{INFINITY, 1, 1}, {1e308, 1e308, -1e308}, {1, 0x1p-1060, -1}, {5e-324, 5e-324, 5e-324}};
    for (int i = 0; i < 4; ++i) {
        double total = 0;
        feclearexcept(FE_ALL_EXCEPT);
        if (!library) feenableexcept(FE_INVALID | FE_OVERFLOW | FE_DIVBYZERO);
        reduce(0, &known[i][rank % 3], &total, 1, MPI_DOUBLE);
        const int left = fetestexcept(FE_ALL_EXCEPT);
        fesetenv(FE_DFL_ENV);
        if (rank == 0) printf("%a flags %d\n", total, left);
    }
    MPI_Finalize();
    return 0;
}
