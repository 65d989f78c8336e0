/* Sums whose bits do not depend on the order of the additions, for C, C++ and Fortran, with and without MPI.
 *
 *     double total;
 *     fpna_sum_d(FPNA_EXACT, MPI_COMM_WORLD, n, 1, x, 1, 0, &total, NULL);
 *
 * | guarantee     | the same bits                              | arithmetic                                          |
 * |---------------|--------------------------------------------|-----------------------------------------------------|
 * | `FPNA_RUN`    | in every run on the same ranks             | blocks of 4096 elements in 64 lanes, then a balanced |
 * |               |                                            | tree over blocks, then over ranks                   |
 * | `FPNA_LAYOUT` | also on any number of ranks and threads,   | each element rounded to a unit that the largest     |
 * |               | whichever rank has an element              | fixes (the error is below n 2^-80 of the largest)   |
 * | `FPNA_EXACT`  | the same                                   | without error, rounded once                         |
 *
 * They are the bits of `kernels.sums` in Python: of "block-tree", "binned" and "exact".
 *
 * Calls are collective over `comm`, and all ranks pass the same type, `guarantee` and `fields`; all get the same total. Every
 * call returns 0, or a code below; then `fpna_error()` is a sentence on every rank. They round to nearest, keep
 * subnormals and trap nothing, whatever the thread has set, and leave its floating-point flags as they were.
 *
 * In the first 100 blocking calls on a communicator all ranks compare what they pass, in one more message: if they differ, or
 * if one makes another call of this library, all refuse. With FPNA_CHECK=1 in the environment of all ranks every blocking
 * call compares. Otherwise later calls refuse where the messages of the ranks have one length; else ranks may wait for each
 * other, or MPI ends the program.
 *
 * A NaN, or infinities of both signs, give a NaN, infinities of one sign that infinity, zeros of any signs +0.0.
 *
 * Compiled with FPNA_SERIAL there is no MPI: a communicator is then any number.
 */
#ifndef FPNA_H
#define FPNA_H

#include <stddef.h>
#include <stdint.h>

#ifdef FPNA_SERIAL
typedef int fpna_comm;
#define FPNA_COMM_SELF 0
#else
#include <mpi.h>
typedef MPI_Comm fpna_comm;
#define FPNA_COMM_SELF MPI_COMM_SELF
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define FPNA_API __attribute__((visibility("default")))

enum fpna_guarantee { FPNA_RUN = 1, FPNA_LAYOUT = 2, FPNA_EXACT = 3 };

enum fpna_code {
    FPNA_OK = 0,
    FPNA_ARGUMENT = 1, /* an argument of this rank or of another */
    FPNA_MEMORY = 2,
    FPNA_MPI = 3 /* a call of the MPI library failed */
};

/* What a sum met, filled on demand; the same on all ranks. */
typedef struct fpna_report {
    int field;              /* the first with a NaN or an infinity, from 0; -1 without any */
    int rank;               /* that has the first such element of this field; -1 without any */
    int64_t number;         /* of this element: its global number, or without `numbers` its place on the rank, from 0 */
    double value;           /* of this element: a NaN or an infinity */
    double lost;            /* the largest difference from the sum without error, in units in the last place of that */
    double seconds;         /* of the whole call on the slowest rank */
    double seconds_waiting; /* of these, in calls of the MPI library */
} fpna_report;

/* What is not usual; all may be 0. */
typedef struct fpna_options {
    const void *weights;        /* n factors of the elements, of their real type */
    const unsigned char *mask;  /* n bytes: elements with 0 are left out */
    const int64_t *numbers;     /* n global numbers of the elements, for the report */
    int threads;                /* of OpenMP; 0: as many as OpenMP would take. No effect on bits */
    int check;                  /* 1, on all ranks: compare what they pass, also after the first 100 calls */
    fpna_report *report;        /* to be filled: on all ranks or on none */
} fpna_options;

/* total[f] = the sum over all ranks and i < n of x[i * stride + f * field_stride], for f < fields. Strides count
 * elements. `total` may overlap x. Letters as in BLAS: s float, d double, c and z their complex numbers, as pairs of real
 * and imaginary part, which are added apart. With weights: of weights[i] * x[...]. */
FPNA_API int fpna_sum_s(int guarantee, fpna_comm comm, size_t n, size_t fields, const float *x, ptrdiff_t stride,
                        ptrdiff_t field_stride, float *total, const fpna_options *options);
FPNA_API int fpna_sum_d(int guarantee, fpna_comm comm, size_t n, size_t fields, const double *x, ptrdiff_t stride,
                        ptrdiff_t field_stride, double *total, const fpna_options *options);
FPNA_API int fpna_sum_c(int guarantee, fpna_comm comm, size_t n, size_t fields, const void *x, ptrdiff_t stride,
                        ptrdiff_t field_stride, void *total, const fpna_options *options);
FPNA_API int fpna_sum_z(int guarantee, fpna_comm comm, size_t n, size_t fields, const void *x, ptrdiff_t stride,
                        ptrdiff_t field_stride, void *total, const fpna_options *options);

/* total[f] = the sum of x[...] * y[...], of complex numbers of conj(x[...]) * y[...]. Under `layout` and `exact`
 * products are not rounded: see kernels.exact.add_products for the limits. With weights: of (weights[i] * x[...])
 * * y[...], of which the first product is rounded. */
FPNA_API int fpna_dot_s(int guarantee, fpna_comm comm, size_t n, size_t fields, const float *x, ptrdiff_t stride,
                        ptrdiff_t field_stride, const float *y, ptrdiff_t stride_y, ptrdiff_t field_stride_y, float *total,
                        const fpna_options *options);
FPNA_API int fpna_dot_d(int guarantee, fpna_comm comm, size_t n, size_t fields, const double *x, ptrdiff_t stride,
                        ptrdiff_t field_stride, const double *y, ptrdiff_t stride_y, ptrdiff_t field_stride_y,
                        double *total, const fpna_options *options);
FPNA_API int fpna_dot_c(int guarantee, fpna_comm comm, size_t n, size_t fields, const void *x, ptrdiff_t stride,
                        ptrdiff_t field_stride, const void *y, ptrdiff_t stride_y, ptrdiff_t field_stride_y, void *total,
                        const fpna_options *options);
FPNA_API int fpna_dot_z(int guarantee, fpna_comm comm, size_t n, size_t fields, const void *x, ptrdiff_t stride,
                        ptrdiff_t field_stride, const void *y, ptrdiff_t stride_y, ptrdiff_t field_stride_y, void *total,
                        const fpna_options *options);

/* total[f] = the square root of the sum of |x[...]|^2, also where squares leave the range of the type. */
FPNA_API int fpna_norm2_s(int guarantee, fpna_comm comm, size_t n, size_t fields, const float *x, ptrdiff_t stride,
                          ptrdiff_t field_stride, float *total, const fpna_options *options);
FPNA_API int fpna_norm2_d(int guarantee, fpna_comm comm, size_t n, size_t fields, const double *x, ptrdiff_t stride,
                          ptrdiff_t field_stride, double *total, const fpna_options *options);
FPNA_API int fpna_norm2_c(int guarantee, fpna_comm comm, size_t n, size_t fields, const void *x, ptrdiff_t stride,
                          ptrdiff_t field_stride, float *total, const fpna_options *options);
FPNA_API int fpna_norm2_z(int guarantee, fpna_comm comm, size_t n, size_t fields, const void *x, ptrdiff_t stride,
                          ptrdiff_t field_stride, double *total, const fpna_options *options);

/* An exact sum that is filled piece by piece. Zero bytes are the empty sum. After every call equal sums have equal
 * words, so accumulators can be compared by their bytes, written to a file of this byte order and read by
 * kernels.exact in Python. Words of up to 2^20 accumulators may be added as integers, by MPI_SUM of
 * FPNA_WORDS numbers MPI_INT64_T, and fpna_acc_normalise then gives them that form again. */
#define FPNA_WORDS 70
typedef struct fpna_acc {
    int64_t words[FPNA_WORDS];
} fpna_acc;

FPNA_API void fpna_acc_add_s(fpna_acc *sum, size_t n, const float *x, ptrdiff_t stride);
FPNA_API void fpna_acc_add_d(fpna_acc *sum, size_t n, const double *x, ptrdiff_t stride);
FPNA_API void fpna_acc_dot_s(fpna_acc *sum, size_t n, const float *x, ptrdiff_t stride, const float *y, ptrdiff_t stride_y);
FPNA_API void fpna_acc_dot_d(fpna_acc *sum, size_t n, const double *x, ptrdiff_t stride, const double *y, ptrdiff_t stride_y);
FPNA_API void fpna_acc_merge(fpna_acc *sum, const fpna_acc *other);
FPNA_API void fpna_acc_normalise(fpna_acc *sum);
FPNA_API float fpna_acc_value_s(const fpna_acc *sum); /* rounded once */
FPNA_API double fpna_acc_value_d(const fpna_acc *sum);
FPNA_API int fpna_acc_allreduce(fpna_acc *sums, size_t count, fpna_comm comm); /* each the sum of that of all ranks */

/* The smallest and the largest x[i * stride], i < n, of all ranks. `number`: of the numbers (n global numbers, no two
 * alike) with this value the smallest; -1 if no rank has an element. Zeros of both signs are one value; if any is a NaN,
 * the value is a NaN, and the number that of the first. */
FPNA_API int fpna_minloc_s(fpna_comm comm, size_t n, const float *x, ptrdiff_t stride, const int64_t *numbers, float *value,
                           int64_t *number);
FPNA_API int fpna_minloc_d(fpna_comm comm, size_t n, const double *x, ptrdiff_t stride, const int64_t *numbers,
                           double *value, int64_t *number);
FPNA_API int fpna_maxloc_s(fpna_comm comm, size_t n, const float *x, ptrdiff_t stride, const int64_t *numbers, float *value,
                           int64_t *number);
FPNA_API int fpna_maxloc_d(fpna_comm comm, size_t n, const double *x, ptrdiff_t stride, const int64_t *numbers,
                           double *value, int64_t *number);

/* total[c] = the sum of x[i] over all ranks and i < n with cell[i] == c, for c < cells, without error and rounded once: as
 * particles that give their charge to cells. All ranks pass the same `cells`, and get all totals. Memory: 8 bytes for a
 * cell and every 50 bits between the largest and the smallest number, and on each thread once more. `threads` as in
 * fpna_options. */
FPNA_API int fpna_scatter_add_s(fpna_comm comm, size_t n, const int64_t *cell, const float *x, size_t cells, float *total,
                                int threads);
FPNA_API int fpna_scatter_add_d(fpna_comm comm, size_t n, const int64_t *cell, const double *x, size_t cells, double *total,
                                int threads);

#ifndef FPNA_SERIAL
/* MPI_SUM of one vector of each rank, as the calls of MPI of these names, for the types MPI_FLOAT, MPI_DOUBLE, MPI_C_FLOAT_COMPLEX
 * and MPI_C_DOUBLE_COMPLEX. FPNA_RUN adds in a balanced tree over the ranks, FPNA_EXACT without error. FPNA_LAYOUT is
 * refused: what a rank contributes depends on the number of ranks, if it has been added up there. Pass the rows
 * themselves to fpna_sum_d, with `fields` for the length of a row. `send` may be MPI_IN_PLACE. */
FPNA_API int fpna_allreduce(int guarantee, const void *send, void *recv, int count, MPI_Datatype type, MPI_Comm comm);
FPNA_API int fpna_reduce(int guarantee, const void *send, void *recv, int count, MPI_Datatype type, int root,
                         MPI_Comm comm);
FPNA_API int fpna_reduce_scatter(int guarantee, const void *send, void *recv, const int counts[], MPI_Datatype type,
                                 MPI_Comm comm);
FPNA_API int fpna_reduce_scatter_block(int guarantee, const void *send, void *recv, int count, MPI_Datatype type,
                                       MPI_Comm comm);

/* The same, begun and waited for. A request needs memory for the contributions of all ranks. As with MPI, all ranks begin
 * their reductions of a communicator in the same order, and leave the buffers alone meanwhile. A persistent request is
 * made once, started and waited for any number of times, and freed. */
typedef struct fpna_request_s *fpna_request;
FPNA_API int fpna_iallreduce(int guarantee, const void *send, void *recv, int count, MPI_Datatype type, MPI_Comm comm,
                             fpna_request *request);
FPNA_API int fpna_allreduce_init(int guarantee, const void *send, void *recv, int count, MPI_Datatype type, MPI_Comm comm,
                                 fpna_request *request);
FPNA_API int fpna_start(fpna_request request);
FPNA_API int fpna_test(fpna_request *request, int *done); /* of fpna_iallreduce: frees it when it is done */
FPNA_API int fpna_wait(fpna_request *request);            /* the same */
FPNA_API int fpna_request_free(fpna_request *request);
#endif

FPNA_API const char *fpna_error(void);   /* what the last call that failed on this thread says; never NULL */
FPNA_API const char *fpna_version(void); /* of this library */

#ifdef __cplusplus
}
#endif
#endif
