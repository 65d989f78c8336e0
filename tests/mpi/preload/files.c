/* Makes every call that writes or reads a file, and writes what a recorder must find into FOLDER/expected-RANK: a line for each
 * call, "NAME BASE OFFSET HEX", with the path's last part, the first byte in the file (-1: not known, "~" before it: the view
 * scatters the rest) and the bytes that the call moves. */
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *expected;
static int rank, ranks, calls;

static void tell(const char *name, const char *base, long offset, int scattered, const void *data, size_t bytes) {
    fprintf(expected, "MPI_File_%s %s %s%ld ", name, base, scattered ? "~" : "", offset);
    for (size_t i = 0; i < bytes; ++i) fprintf(expected, "%02x", ((const unsigned char *)data)[i]);
    fprintf(expected, "\n");
}

static void require(int right, const char *what) {
    if (right) return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 9);
}

/* New numbers for each call. */
static double *numbers(void) {
    static double own[8];
    ++calls;
    for (int i = 0; i < 8; ++i) own[i] = 1000.0 * rank + calls + i / 16.0;
    return own;
}

static MPI_File opened(MPI_Comm comm, const char *folder, const char *base, int mode) {
    char path[4096];
    MPI_File file;
    snprintf(path, sizeof path, "%s/%s", folder, base);
    require(MPI_File_open(comm, path, mode, MPI_INFO_NULL, &file) == MPI_SUCCESS, "cannot open");
    return file;
}

#define WAITED(CALL) do { MPI_Request request; CALL; MPI_Wait(&request, MPI_STATUS_IGNORE); } while (0)
#define N 4
#define BYTES (N * 8)

/* All forms in the default view, each rank in its own part of 1 MiB; NAME(...) is a form of the functions. */
#define FORMS(SUFFIX, COUNT)                                                                                              \
    static void write_all_forms##SUFFIX(MPI_File file, const char *base) {                                                \
        long at = (long)rank << 20;                                                                                       \
        double *x;                                                                                                        \
        MPI_File_seek(file, at, MPI_SEEK_SET);                                                                            \
        x = numbers(); MPI_File_write##SUFFIX(file, x, (COUNT)N, MPI_DOUBLE, MPI_STATUS_IGNORE);                          \
        tell("write", base, at, 0, x, BYTES); at += BYTES;                                                                \
        x = numbers(); MPI_File_write_at##SUFFIX(file, at + 512, x, (COUNT)N, MPI_DOUBLE, MPI_STATUS_IGNORE);             \
        tell("write_at", base, at + 512, 0, x, BYTES);                                                                    \
        x = numbers(); MPI_File_write_all##SUFFIX(file, x, (COUNT)N, MPI_DOUBLE, MPI_STATUS_IGNORE);                      \
        tell("write_all", base, at, 0, x, BYTES); at += BYTES;                                                            \
        x = numbers(); MPI_File_write_at_all##SUFFIX(file, at + 512, x, (COUNT)N, MPI_DOUBLE, MPI_STATUS_IGNORE);         \
        tell("write_at_all", base, at + 512, 0, x, BYTES);                                                                \
        x = numbers(); WAITED(MPI_File_iwrite##SUFFIX(file, x, (COUNT)N, MPI_DOUBLE, &request));                          \
        tell("iwrite", base, at, 0, x, BYTES); at += BYTES;                                                               \
        x = numbers(); WAITED(MPI_File_iwrite_at##SUFFIX(file, at + 512, x, (COUNT)N, MPI_DOUBLE, &request));             \
        tell("iwrite_at", base, at + 512, 0, x, BYTES);                                                                   \
        x = numbers(); WAITED(MPI_File_iwrite_all##SUFFIX(file, x, (COUNT)N, MPI_DOUBLE, &request));                      \
        tell("iwrite_all", base, at, 0, x, BYTES); at += BYTES;                                                           \
        x = numbers(); WAITED(MPI_File_iwrite_at_all##SUFFIX(file, at + 512, x, (COUNT)N, MPI_DOUBLE, &request));         \
        tell("iwrite_at_all", base, at + 512, 0, x, BYTES);                                                               \
        x = numbers(); MPI_File_write_all_begin##SUFFIX(file, x, (COUNT)N, MPI_DOUBLE);                                   \
        MPI_File_write_all_end(file, x, MPI_STATUS_IGNORE);                                                               \
        tell("write_all_begin", base, at, 0, x, BYTES); at += BYTES;                                                      \
        x = numbers(); MPI_File_write_at_all_begin##SUFFIX(file, at + 512, x, (COUNT)N, MPI_DOUBLE);                      \
        MPI_File_write_at_all_end(file, x, MPI_STATUS_IGNORE);                                                            \
        tell("write_at_all_begin", base, at + 512, 0, x, BYTES);                                                          \
    }                                                                                                                     \
    static void shared_forms##SUFFIX(MPI_File file, const char *base) {                                                   \
        double *x;                                                                                                        \
        x = numbers(); MPI_File_write_shared##SUFFIX(file, x, (COUNT)N, MPI_DOUBLE, MPI_STATUS_IGNORE);                   \
        tell("write_shared", base, -1, 0, x, BYTES);                                                                      \
        x = numbers(); MPI_File_write_ordered##SUFFIX(file, x, (COUNT)N, MPI_DOUBLE, MPI_STATUS_IGNORE);                  \
        tell("write_ordered", base, -1, 0, x, BYTES);                                                                     \
        x = numbers(); WAITED(MPI_File_iwrite_shared##SUFFIX(file, x, (COUNT)N, MPI_DOUBLE, &request));                   \
        tell("iwrite_shared", base, -1, 0, x, BYTES);                                                                     \
        x = numbers(); MPI_File_write_ordered_begin##SUFFIX(file, x, (COUNT)N, MPI_DOUBLE);                               \
        MPI_File_write_ordered_end(file, x, MPI_STATUS_IGNORE);                                                           \
        tell("write_ordered_begin", base, -1, 0, x, BYTES);                                                               \
    }                                                                                                                     \
    /* `whole`: the contents of the file. */                                                                              \
    static void read_all_forms##SUFFIX(MPI_File file, const char *base, const char *whole) {                              \
        long at = 16 + 8 * rank;                                                                                          \
        double x[N];                                                                                                      \
        MPI_File_seek(file, at, MPI_SEEK_SET);                                                                            \
        MPI_File_read##SUFFIX(file, x, (COUNT)N, MPI_DOUBLE, MPI_STATUS_IGNORE);                                          \
        tell("read", base, at, 0, whole + at, BYTES); at += BYTES;                                                        \
        MPI_File_read_at##SUFFIX(file, at + 8, x, (COUNT)N, MPI_DOUBLE, MPI_STATUS_IGNORE);                               \
        tell("read_at", base, at + 8, 0, whole + at + 8, BYTES);                                                          \
        MPI_File_read_all##SUFFIX(file, x, (COUNT)N, MPI_DOUBLE, MPI_STATUS_IGNORE);                                      \
        tell("read_all", base, at, 0, whole + at, BYTES); at += BYTES;                                                    \
        MPI_File_read_at_all##SUFFIX(file, at + 8, x, (COUNT)N, MPI_DOUBLE, MPI_STATUS_IGNORE);                           \
        tell("read_at_all", base, at + 8, 0, whole + at + 8, BYTES);                                                      \
        WAITED(MPI_File_iread##SUFFIX(file, x, (COUNT)N, MPI_DOUBLE, &request));                                          \
        tell("iread", base, at, 0, whole + at, BYTES); at += BYTES;                                                       \
        WAITED(MPI_File_iread_at##SUFFIX(file, at + 8, x, (COUNT)N, MPI_DOUBLE, &request));                               \
        tell("iread_at", base, at + 8, 0, whole + at + 8, BYTES);                                                         \
        WAITED(MPI_File_iread_all##SUFFIX(file, x, (COUNT)N, MPI_DOUBLE, &request));                                      \
        tell("iread_all", base, at, 0, whole + at, BYTES); at += BYTES;                                                   \
        WAITED(MPI_File_iread_at_all##SUFFIX(file, at + 8, x, (COUNT)N, MPI_DOUBLE, &request));                           \
        tell("iread_at_all", base, at + 8, 0, whole + at + 8, BYTES);                                                     \
        MPI_File_read_all_begin##SUFFIX(file, x, (COUNT)N, MPI_DOUBLE);                                                   \
        MPI_File_read_all_end(file, x, MPI_STATUS_IGNORE);                                                                \
        tell("read_all_begin", base, at, 0, whole + at, BYTES); at += BYTES;                                              \
        MPI_File_read_at_all_begin##SUFFIX(file, at + 8, x, (COUNT)N, MPI_DOUBLE);                                        \
        MPI_File_read_at_all_end(file, x, MPI_STATUS_IGNORE);                                                             \
        tell("read_at_all_begin", base, at + 8, 0, whole + at + 8, BYTES);                                                \
        MPI_File_seek_shared(file, 0, MPI_SEEK_SET);                                                                      \
        MPI_File_read_ordered##SUFFIX(file, x, (COUNT)N, MPI_DOUBLE, MPI_STATUS_IGNORE);                                  \
        tell("read_ordered", base, -1, 0, x, BYTES);                                                                      \
        require(!memcmp(x, whole + rank * BYTES, BYTES), "read_ordered");                                                 \
        MPI_File_read_ordered_begin##SUFFIX(file, x, (COUNT)N, MPI_DOUBLE);                                               \
        MPI_File_read_ordered_end(file, x, MPI_STATUS_IGNORE);                                                            \
        tell("read_ordered_begin", base, -1, 0, x, BYTES);                                                                \
        MPI_File_read_shared##SUFFIX(file, x, (COUNT)N, MPI_DOUBLE, MPI_STATUS_IGNORE);                                   \
        tell("read_shared", base, -1, 0, x, BYTES);                                                                       \
        WAITED(MPI_File_iread_shared##SUFFIX(file, x, (COUNT)N, MPI_DOUBLE, &request));                                   \
        tell("iread_shared", base, -1, 0, x, BYTES);                                                                      \
    }
FORMS(, int)
#if MPI_VERSION >= 4
FORMS(_c, MPI_Count)
#endif

int main(int argc, char **argv) {
    const int create = MPI_MODE_CREATE | MPI_MODE_RDWR;
    char path[4096], whole[1024];
    double *x, y[8];
    MPI_File file, other;
    MPI_Datatype some, pattern;
    MPI_Status status;
    (void)argc;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    snprintf(path, sizeof path, "%s/expected-%d", argv[1], rank);
    expected = fopen(path, "w");

    file = opened(MPI_COMM_WORLD, argv[1], "forms", create);
    write_all_forms(file, "forms");
#if MPI_VERSION >= 4
    write_all_forms_c(file, "forms");
#endif
    MPI_File_close(&file);
    file = opened(MPI_COMM_WORLD, argv[1], "shared", create);
    shared_forms(file, "shared");
#if MPI_VERSION >= 4
    shared_forms_c(file, "shared");
#endif
    MPI_File_close(&file);

    for (int i = 0; i < (int)sizeof whole; ++i) whole[i] = (char)(7 * i + i / 256);
    snprintf(path, sizeof path, "%s/given", argv[1]);
    if (rank == 0) {
        FILE *given = fopen(path, "w");
        require(fwrite(whole, 1, sizeof whole, given) == sizeof whole, "cannot write");
        fclose(given);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    file = opened(MPI_COMM_WORLD, argv[1], "given", MPI_MODE_RDONLY);
    read_all_forms(file, "given", whole);
#if MPI_VERSION >= 4
    read_all_forms_c(file, "given", whole);
#endif
    /* Less than the call asks for, at the end of the file, and nothing behind it. */
    MPI_File_read_at(file, (long)sizeof whole - 20, y, 8, MPI_DOUBLE, &status);
    tell("read_at", "given", (long)sizeof whole - 20, 0, whole + sizeof whole - 20, 20);
    MPI_File_read_at(file, (long)sizeof whole, y, 8, MPI_DOUBLE, MPI_STATUS_IGNORE);
    tell("read_at", "given", (long)sizeof whole, 0, whole, 0);
    /* Errors stay those of MPI: a file that is only read, a negative offset, no file. */
    require(MPI_File_write_at(file, 0, y, 1, MPI_DOUBLE, MPI_STATUS_IGNORE) != MPI_SUCCESS, "wrote a file to be read");
    require(MPI_File_read_at(file, -8, y, 1, MPI_DOUBLE, MPI_STATUS_IGNORE) != MPI_SUCCESS, "read at a negative offset");
    require(MPI_File_read_at(MPI_FILE_NULL, 0, y, 1, MPI_DOUBLE, MPI_STATUS_IGNORE) != MPI_SUCCESS, "read no file");
    fprintf(expected, "MPI_File_write_at failed\nMPI_File_read_at failed\n");
    MPI_File_close(&file);

    /* A view: blocks of 2 doubles of each rank in turn, from byte 16 on; memory takes every second double. */
    file = opened(MPI_COMM_WORLD, argv[1], "view", create);
    other = opened(MPI_COMM_WORLD, argv[1], "view", MPI_MODE_RDWR);
    MPI_Type_vector(1, 2, 2, MPI_DOUBLE, &some);
    MPI_Type_create_resized(some, 0, 16 * ranks, &pattern);
    MPI_Type_commit(&pattern);
    MPI_Type_free(&some);
    MPI_Type_vector(4, 1, 2, MPI_DOUBLE, &some);
    MPI_Type_commit(&some);
    MPI_File_set_view(file, 16 + 16 * rank, MPI_DOUBLE, pattern, "native", MPI_INFO_NULL);
    x = numbers();
    double taken[4] = {x[0], x[2], x[4], x[6]};
    MPI_File_write_all(file, x, 1, some, MPI_STATUS_IGNORE);
    tell("write_all", "view", 16 + 16 * rank, 1, taken, sizeof taken);
    MPI_File_write_at(file, 5, x, 1, some, MPI_STATUS_IGNORE); /* the sixth double of this rank: the second of a block */
    tell("write_at", "view", 16 + 16 * rank + 2 * 16 * ranks + 8, 1, taken, sizeof taken);
    MPI_File_write_at(file, 2, x, 2, MPI_DOUBLE, MPI_STATUS_IGNORE); /* a whole block: the view puts nothing apart */
    tell("write_at", "view", 16 + 16 * rank + 16 * ranks, 0, x, 16);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    /* The same file by another handle, in another view without gaps, and in no elements. */
    MPI_File_set_view(other, 16, MPI_DOUBLE, MPI_DOUBLE, "native", MPI_INFO_NULL);
    MPI_File_read_at(other, 2 * rank, y, 2, MPI_DOUBLE, MPI_STATUS_IGNORE);
    require(!memcmp(y, taken, 16), "the view has other numbers");
    tell("read_at", "view", 16 + 16 * rank, 0, taken, 16);
    MPI_File_write_at(other, 3, y, 0, MPI_DOUBLE, MPI_STATUS_IGNORE);
    tell("write_at", "view", 16 + 24, 0, y, 0);
    MPI_File_close(&file);
    MPI_File_close(&other);
    MPI_Type_free(&some);
    MPI_Type_free(&pattern);

    /* A file of each rank, to be extended: its pointer begins at its end. */
    char base[32];
    snprintf(base, sizeof base, "own-%d", rank);
    for (int i = 0; i < 2; ++i) {
        file = opened(MPI_COMM_SELF, argv[1], base, MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_APPEND);
        x = numbers();
        MPI_File_write(file, x, 3, MPI_DOUBLE, MPI_STATUS_IGNORE);
        tell("write", base, 24 * i, 0, x, 24);
        MPI_File_close(&file);
    }
    fclose(expected);
    MPI_Finalize();
    return 0;
}
