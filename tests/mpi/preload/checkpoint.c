/* Reads its first numbers from the file IN and writes the numbers of all ranks to the file OUT in each of STEPS steps:
 *
 *   checkpoint IN OUT STEPS
 *
 * Rank 0 adds the parts of the others in the order of their arrival. ORDER=21 lets rank 2 send before rank 1; NUDGE=R,S moves
 * the first number of rank R in step S by a unit in its last place; MOVE=R,S writes it 8 bytes later; the last step is written
 * to OUT.2 with ELSEWHERE=1. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N 4
static int rank, ranks;

static int asked(const char *name, int step) {
    const char *text = getenv(name);
    int of = -1, at = -1;
    return text && sscanf(text, "%d,%d", &of, &at) == 2 && of == rank && at == step;
}

static double total(double own) {
    const char *order = getenv("ORDER"), *place = order ? strchr(order, '0' + rank) : NULL;
    double sum = own, part;
    if (rank) {
        usleep(place ? 60000 * (unsigned)(place - order) : 0);
        MPI_Send(&own, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD);
    }
    for (int i = 1; !rank && i < ranks; ++i) {
        MPI_Recv(&part, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sum += part;
    }
    MPI_Bcast(&sum, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return sum;
}

static void dump(MPI_File file, int step, const double *x) {
    MPI_Offset at = (MPI_Offset)sizeof(double) * N * (step * ranks + rank) + (asked("MOVE", step) ? 8 : 0);
    MPI_File_write_at_all(file, at, x, N, MPI_DOUBLE, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    double x[N];
    char second[4096];
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    MPI_File_read_at_all(file, (MPI_Offset)sizeof x * rank, x, N, MPI_DOUBLE, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    MPI_File_open(MPI_COMM_WORLD, argv[2], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
    for (int step = 0; step < atoi(argv[3]); ++step) {
        const double sum = total(x[0] + x[1]);
        for (int i = 0; i < N; ++i) x[i] = 0.5 * x[i] + sum / (i + 3);
        if (asked("NUDGE", step)) x[0] = nextafter(x[0], 1e9);
        if (getenv("ELSEWHERE") && step == atoi(argv[3]) - 1) {
            MPI_File_close(&file);
            snprintf(second, sizeof second, "%s.2", argv[2]);
            MPI_File_open(MPI_COMM_WORLD, second, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
        }
        dump(file, step, x);
    }
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
