/* Sums whose right value is known, in hostile surroundings: library_vectors FILE SURROUNDINGS

   A line of the file is a sum: NAME LETTER GUARANTEE FIELDS N, then the bits of N elements of FIELDS numbers, as
   hexadecimal integers. Rank r adds the elements r, r + ranks, ... SURROUNDINGS: "plain", "traps" (invalid, overflow,
   division by zero), or a rounding mode from 0 to 3; 4 is another mode on every rank. Rank 0 prints NAME and the bits of
   the totals; every rank says what a call has changed. */
#define _GNU_SOURCE
#include <fenv.h>
#include <fpna.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xmmintrin.h>

enum { MOST = 4096 };

static int sum(char letter, int guarantee, size_t n, size_t fields, const void *x, void *total) {
    const MPI_Comm comm = MPI_COMM_WORLD;
    const ptrdiff_t stride = (ptrdiff_t)fields;
    switch (letter) {
        case 's': return fpna_sum_s(guarantee, comm, n, fields, x, stride, 1, total, NULL);
        case 'd': return fpna_sum_d(guarantee, comm, n, fields, x, stride, 1, total, NULL);
        case 'c': return fpna_sum_c(guarantee, comm, n, fields, x, stride, 1, total, NULL);
        default: return fpna_sum_z(guarantee, comm, n, fields, x, stride, 1, total, NULL);
    }
}

int main(int argc, char **argv) {
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    static uint64_t x[MOST], total[MOST];
    char name[64], letter;
    int rank, ranks, guarantee, provided;
    size_t fields, n;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    FILE *file = argc == 3 ? fopen(argv[1], "r") : NULL;
    if (!file) MPI_Abort(MPI_COMM_WORLD, 2);
    const int traps = strcmp(argv[2], "traps") ? 0 : FE_INVALID | FE_OVERFLOW | FE_DIVBYZERO;
    const int asked = strcmp(argv[2], "plain") && !traps ? atoi(argv[2]) : 0, mode = modes[asked == 4 ? rank % 4 : asked];
    while (fscanf(file, "%63s %c %d %zu %zu", name, &letter, &guarantee, &fields, &n) == 5) {
        const int single = letter == 's' || letter == 'c', width = letter == 's' || letter == 'd' ? 1 : 2;
        size_t own = 0, numbers = fields * (size_t)width;
        for (size_t i = 0; i < n; ++i) {
            const int mine = (int)(i % (size_t)ranks) == rank;
            for (size_t k = 0; k < numbers; ++k) {
                uint64_t bits;
                if (fscanf(file, "%" SCNx64, &bits) != 1) MPI_Abort(MPI_COMM_WORLD, 3);
                if (!mine) continue;
                if (single)
                    ((uint32_t *)x)[own * numbers + k] = (uint32_t)bits;
                else
                    x[own * numbers + k] = bits;
            }
            own += (size_t)mine;
        }
        feclearexcept(FE_ALL_EXCEPT);
        fesetround(mode);
        feenableexcept(traps);
        const unsigned before = _mm_getcsr();
        const int code = sum(letter, guarantee, own, fields, x, total);
        const unsigned after = _mm_getcsr();
        const int flags = fetestexcept(FE_ALL_EXCEPT), found = fegetround(), trapped = fegetexcept();
        fedisableexcept(FE_ALL_EXCEPT);
        fesetround(FE_TONEAREST);
        if (code) printf("%s: %s\n", name, fpna_error());
        if (before != after || flags || found != mode || trapped != traps)
            printf("%s: MXCSR %x and %x, flags %x, mode %x, traps %x\n", name, before, after, flags, found, trapped);
        if (rank) continue;
        printf("%s", name);
        for (size_t k = 0; k < numbers; ++k) printf(" %" PRIx64, single ? ((uint32_t *)total)[k] : total[k]);
        printf("\n");
    }
    fclose(file);
    return MPI_Finalize();
}
