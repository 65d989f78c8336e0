/* Sums in floating-point environments that are drawn for each rank: environments SEED CASES [LIBRARY]

   Each sum is made in the default environment, and then in the one drawn; rank 0 says how many differ in bits, leave the
   environment otherwise or raise flags. With LIBRARY the sums are the MPI library's, and are only counted. */
#define _GNU_SOURCE
#include <fenv.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xmmintrin.h>

enum { MOST = 4000 };
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

static int reduce(int way, const void *x, void *total, int n, MPI_Datatype type) {
    switch (way) {
        case 0: return MPI_Allreduce(x, total, n, type, MPI_SUM, MPI_COMM_WORLD);
        case 1: return MPI_Reduce(x, total, n, type, MPI_SUM, 0, MPI_COMM_WORLD);
        case 2: return MPI_Reduce_scatter_block(x, total, n / size, type, MPI_SUM, MPI_COMM_WORLD);
        default: return MPI_Scan(x, total, n, type, MPI_SUM, MPI_COMM_WORLD);
    }
}

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
        const int single = draw(&common, 2), way = draw(&common, 4), kind = draw(&common, 6);
        const int n = size * (1 + (draw(&common, 8) ? draw(&common, 4) : draw(&common, MOST / size - 1)));
        const MPI_Datatype type = single ? MPI_FLOAT : MPI_DOUBLE;
        own = common + 1000003ULL * (rank + 1);
        const void *given = single ? (void *)xf : (void *)x;
        for (int k = 0; k < n; ++k) x[k] = number(kind, single), xf[k] = (float)x[k];
        memset(y, 0, sizeof y);
        memset(z, 0, sizeof z);
        reduce(way, given, y, n, type);
        const int quiet = draw(&common, 3) == 0 && rank != (int)draw(&common, size); /* on one rank, on all */
        const int mode = quiet ? FE_TONEAREST : modes[draw(&own, 4)];
        const int traps = quiet || library ? 0 : trapped[draw(&own, 5)], flags = draw(&own, 2) ? FE_INEXACT : 0;
        const unsigned flush = quiet ? 0 : (draw(&own, 2) ? 0x8000 : 0) | (draw(&own, 2) ? 0x40 : 0);
        feclearexcept(FE_ALL_EXCEPT);
        if (flags) feraiseexcept(flags);
        _mm_setcsr(_mm_getcsr() | flush);
        fesetround(mode);
        feenableexcept(traps);
        reduce(way, given, z, n, type);
        const int left = fetestexcept(FE_ALL_EXCEPT), found = fegetround(), trap = fegetexcept();
        const unsigned control = _mm_getcsr() & 0x8040;
        fesetenv(FE_DFL_ENV);
        differ += memcmp(y, z, sizeof y) != 0;
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
        MPI_Allreduce(&known[i][rank % 3], &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        const int left = fetestexcept(FE_ALL_EXCEPT);
        fesetenv(FE_DFL_ENV);
        if (rank == 0) printf("%a flags %d\n", total, left);
    }
    MPI_Finalize();
    return 0;
}
