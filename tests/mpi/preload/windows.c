/* Makes every one-sided call, and writes what a recorder must find into FOLDER/expected-RANK: a line for each call,
 * "NAME TARGET PLACE GIVEN GOT", with the data in hexadecimal digits, "-" for none. No two accesses are of one place. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *expected;
static int rank, ranks, right, left;

static void print(const void *data, size_t bytes) {
    fprintf(expected, " %s", data ? "" : "-");
    for (size_t i = 0; data && i < bytes; ++i) fprintf(expected, "%02x", ((const unsigned char *)data)[i]);
}

static void tell(const char *name, int target, long place, const void *given, size_t in, const void *got, size_t out) {
    fprintf(expected, "MPI_%s %d %ld", name, target, place);
    print(given, in);
    print(got, out);
    fprintf(expected, "\n");
}

static void require(int right_one, const char *what) {
    if (right_one) return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 9);
}

#define N 12
#define D MPI_DOUBLE

/* The accesses of one epoch from `rank` to its right neighbour, whose window has 100 (its rank) + I in place I. */
#define ACCESSES(SUFFIX)                                                                                                  \
    static void accesses##SUFFIX(MPI_Win window, double *got, const double *x) {                                          \
        MPI_Put##SUFFIX(x, 2, D, right, 0, 2, D, window);                                                                 \
        MPI_Get##SUFFIX(got, 2, D, right, 2, 2, D, window);                                                               \
        MPI_Accumulate##SUFFIX(x, 1, D, right, 4, 1, D, MPI_SUM, window);                                                 \
        MPI_Get_accumulate##SUFFIX(x + 1, 1, D, got + 2, 1, D, right, 5, 1, D, MPI_SUM, window);                          \
        MPI_Get_accumulate##SUFFIX(NULL, 0, D, got + 3, 1, D, right, 6, 1, D, MPI_NO_OP, window);                         \
    }                                                                                                                     \
    static void requests##SUFFIX(MPI_Win window, double *got, const double *x) {                                          \
        MPI_Request all[4];                                                                                               \
        MPI_Rput##SUFFIX(x, 2, D, right, 0, 2, D, window, all);                                                           \
        MPI_Rget##SUFFIX(got, 2, D, right, 2, 2, D, window, all + 1);                                                     \
        MPI_Raccumulate##SUFFIX(x, 1, D, right, 4, 1, D, MPI_SUM, window, all + 2);                                       \
        MPI_Rget_accumulate##SUFFIX(x + 1, 1, D, got + 2, 1, D, right, 5, 1, D, MPI_SUM, window, all + 3);                \
        MPI_Waitall(4, all, MPI_STATUSES_IGNORE);                                                                         \
    }
ACCESSES()
#if MPI_VERSION >= 4
ACCESSES(_c)
#endif

static void tell_accesses(const double *x) {
    const double there[2] = {100.0 * right + 2, 100.0 * right + 3}, one = 100.0 * right + 5, other = 100.0 * right + 6;
    tell("Put", right, 0, x, 16, NULL, 0);
    tell("Get", right, 2, NULL, 0, there, 16);
    tell("Accumulate", right, 4, x, 8, NULL, 0);
    tell("Get_accumulate", right, 5, x + 1, 8, &one, 8);
    tell("Get_accumulate", right, 6, NULL, 0, &other, 8);
}

static void fill(double *memory) {
    for (int i = 0; i < N; ++i) memory[i] = 100.0 * rank + i;
}

/* The window of this rank after the accesses of its left neighbour with numbers x of it. */
static void after(double *memory, const double *x) {
    fill(memory);
    memory[0] = x[0], memory[1] = x[1], memory[4] += x[0], memory[5] += x[1];
}

int main(int argc, char **argv) {
    char path[4096];
    double memory[N], wanted[N], got[4], x[2], theirs[2], *own;
    MPI_Win window;
    MPI_Group world, neighbour;
    (void)argc;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    x[0] = rank + 0.5, x[1] = rank + 0.25, theirs[0] = left + 0.5, theirs[1] = left + 0.25;
    snprintf(path, sizeof path, "%s/expected-%d", argv[1], rank);
    expected = fopen(path, "w");

    /* Fences. */
    fill(memory);
    MPI_Win_create(memory, sizeof memory, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(MPI_MODE_NOPRECEDE, window);
    tell("Win_fence", 0, 0, NULL, 0, memory, sizeof memory);
    for (int form = 0; form < 2; ++form) {
        fill(memory);
        MPI_Win_fence(0, window);
        fill(wanted);
        tell("Win_fence", 0, 0, NULL, 0, wanted, sizeof wanted);
#if MPI_VERSION >= 4
        form ? accesses_c(window, got, x) : accesses(window, got, x);
#else
        accesses(window, got, x);
#endif
        MPI_Win_fence(0, window);
        after(wanted, theirs);
        require(!memcmp(memory, wanted, sizeof wanted) && got[0] == 100.0 * right + 2, "a fence");
        tell_accesses(x);
        tell("Win_fence", 0, 0, NULL, 0, wanted, sizeof wanted);
    }
    /* No target, and none that exists: the error stays the program's. */
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    MPI_Put(x, 1, D, MPI_PROC_NULL, 0, 1, D, window);
    tell("Put", MPI_PROC_NULL, 0, x, 8, NULL, 0);
    require(MPI_Put(x, 1, D, ranks + 3, 0, 1, D, window) != MPI_SUCCESS, "a put to no rank");
    fprintf(expected, "MPI_Put failed\n");
    MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
    tell("Win_fence", 0, 0, NULL, 0, wanted, sizeof wanted);
    MPI_Win_free(&window);

    /* Locks: a call has its data when the program has synchronised. */
    MPI_Win_allocate(sizeof memory, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window);
    for (int form = 0; form < 3; ++form) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
        fill(own);
        MPI_Win_unlock(rank, window);
        MPI_Barrier(MPI_COMM_WORLD);
        if (form == 0) {
            double one = -1, another = 3, compared = 100.0 * right + 9, counted = -1;
            MPI_Win_lock(MPI_LOCK_SHARED, right, 0, window);
            MPI_Fetch_and_op(x, &one, D, right, 7, MPI_SUM, window);
            MPI_Win_flush(right, window);
            require(one == 100.0 * right + 7, "a fetch");
            tell("Fetch_and_op", right, 7, x, 8, &one, 8);
            long long swapped = 5, zero = 0, before = -1;
            memcpy(&zero, &compared, 8);
            MPI_Compare_and_swap(&swapped, &zero, &before, MPI_LONG_LONG, right, 9, window);
            MPI_Win_unlock(right, window);
            require(before == zero, "a swap");
            char both[16];
            memcpy(both, &swapped, 8), memcpy(both + 8, &zero, 8);
            tell("Compare_and_swap", right, 9, both, 16, &before, 8);
            (void)another, (void)counted;
        } else {
            MPI_Win_lock_all(0, window);
#if MPI_VERSION >= 4
            form == 1 ? requests(window, got, x) : requests_c(window, got, x);
#else
            requests(window, got, x);
#endif
            MPI_Win_unlock_all(window);
            const double there[2] = {100.0 * right + 2, 100.0 * right + 3}, before = 100.0 * right + 5;
            require(got[1] == there[1] && got[2] == before, "requests");
            tell("Rput", right, 0, x, 16, NULL, 0);
            tell("Rget", right, 2, NULL, 0, there, 16);
            tell("Raccumulate", right, 4, x, 8, NULL, 0);
            tell("Rget_accumulate", right, 5, x + 1, 8, &before, 8);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_free(&window);

    /* Post, start, complete, wait; elements of a vector. */
    MPI_Datatype some;
    double y[4] = {rank + 1, rank + 2, rank + 3, rank + 4}, taken[2] = {y[0], y[2]};
    MPI_Type_vector(2, 1, 2, D, &some);
    MPI_Type_commit(&some);
    fill(memory);
    MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &left, &neighbour);
    MPI_Win_post(neighbour, 0, window);
    MPI_Group_free(&neighbour);
    MPI_Group_incl(world, 1, &right, &neighbour);
    MPI_Win_start(neighbour, 0, window);
    MPI_Put(y, 1, some, right, 8, 2, D, window);
    tell("Put", right, 8, taken, 16, NULL, 0);
    MPI_Win_complete(window);
    MPI_Win_wait(window);
    fill(wanted);
    wanted[1] = left + 1, wanted[2] = left + 3;
    tell("Win_wait", 0, 0, NULL, 0, wanted, sizeof wanted);
    MPI_Win_free(&window);
    MPI_Group_free(&neighbour);
    MPI_Group_free(&world);
    MPI_Type_free(&some);

    /* Windows without bytes, of pieces, and of memory that ranks share. */
    MPI_Win_create(NULL, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    tell("Win_fence", 0, 0, NULL, 0, NULL, 0);
    MPI_Win_free(&window);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Aint at;
    MPI_Win_attach(window, memory, sizeof memory);
    MPI_Get_address(memory, &at);
    MPI_Aint *places = malloc(sizeof(MPI_Aint) * (size_t)ranks);
    MPI_Allgather(&at, 1, MPI_AINT, places, 1, MPI_AINT, MPI_COMM_WORLD);
    MPI_Win_fence(0, window);
    tell("Win_fence", 0, 0, NULL, 0, NULL, 0);
    MPI_Put(x, 1, D, right, places[right], 1, D, window);
    tell("Put", right, (long)places[right], x, 8, NULL, 0);
    MPI_Win_fence(0, window);
    require(memory[0] == theirs[0], "a window of pieces");
    tell("Win_fence", 0, 0, NULL, 0, NULL, 0);
    MPI_Win_detach(window, memory);
    MPI_Win_free(&window);
    free(places);
    MPI_Win_allocate_shared(2 * sizeof(double), 8, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window);
    own[0] = own[1] = 7;
    MPI_Win_fence(0, window);
    double seven[2] = {7, 7};
    tell("Win_fence", 0, 0, NULL, 0, seven, 16);
    MPI_Put(x, 1, D, right, 1, 1, D, window);
    tell("Put", right, 1, x, 8, NULL, 0);
    MPI_Win_fence(0, window);
    seven[1] = theirs[0];
    tell("Win_fence", 0, 0, NULL, 0, seven, 16);
    MPI_Win_free(&window);
    fclose(expected);
    MPI_Finalize();
    return 0;
}
