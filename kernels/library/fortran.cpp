// What the module of Fortran (fpna.f90) calls: communicators are integers there, masks are logicals, places count from 1.
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "call.hpp"
#include "errors.hpp"

namespace fpna {
namespace {

#ifdef FPNA_SERIAL
fpna_comm comm_of(int handle) { return handle; }
#else
#ifdef MPI_ABI
MPI_Comm of_fortran(int handle) { return MPI_Comm_fromint(handle); }
#else
MPI_Comm of_fortran(int handle) { return MPI_Comm_f2c(MPI_Fint(handle)); }
#endif

fpna_comm comm_of(int handle) {
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    return initialized && !finalized ? of_fortran(handle) : MPI_COMM_NULL;
}
#endif

// A call of fpna.f90. `letter`: s, d, c or z. `mask`: n logicals of 4 bytes, 0 for .false. `refused`: empty, or what is wrong
// on this rank.
struct Call {
    const char *who;
    int of;
    char letter;
    int guarantee, comm;
    std::int64_t n, fields, stride, field_stride;
    const void *x, *y;
    void *total;
    const void *weights;
    const std::int32_t *mask;
    int threads;
    fpna_report *report;
    const char *refused;
};

template <typename Real>
int carried_out(const Call &call, const fpna_options &options) {
    const bool complex = call.letter == 'c' || call.letter == 'z';
    const auto *y = static_cast<const Real *>(call.y);
    return carry_out<Real>({call.who, Of(call.of), call.guarantee, complex ? 2 : 1, comm_of(call.comm), size_t(call.n),
                            size_t(call.fields), static_cast<const Real *>(call.x), call.stride, call.field_stride, y,
                            call.stride, call.field_stride, static_cast<Real *>(call.total), options,
                            *call.refused ? call.refused : nullptr});
}

}  // namespace
}  // namespace fpna

extern "C" {

FPNA_API int fpna_fortran_call(const fpna::Call *call) {
    std::vector<unsigned char> mask;
    fpna_options options = {};
    const char *refused = call->refused;
    fpna::Call own = *call;
    try {
        if (call->mask && !*refused) {
            mask.resize(size_t(call->n) + 1);
            std::transform(call->mask, call->mask + call->n, mask.begin(), [](std::int32_t yes) { return yes != 0; });
            options.mask = mask.data();
        }
    } catch (const std::bad_alloc &) {
        own.refused = "there is not enough memory for the mask";
    }
    options.weights = call->weights;
    options.threads = call->threads;
    options.report = call->report;
    const bool single = call->letter == 's' || call->letter == 'c';
    const int code = single ? fpna::carried_out<float>(own, options) : fpna::carried_out<double>(own, options);
    if (code == FPNA_OK && call->report) {
        ++call->report->field;
        call->report->number += call->report->field > 0;
    }
    return code;
}

FPNA_API int fpna_fortran_allreduce(fpna_acc *sums, std::int64_t count, int comm) {
    return fpna_acc_allreduce(sums, size_t(count), fpna::comm_of(comm));
}

#define FPNA_FORTRAN(LETTER, REAL)                                                                                        \
    FPNA_API int fpna_fortran_scatter_##LETTER(int comm, std::int64_t n, const std::int64_t *cell, const REAL *x,         \
                                               std::int64_t cells, REAL *total, int threads, const char *refused) {      \
        return fpna::scatter_add("fpna_scatter_add", fpna::comm_of(comm), size_t(n), cell, 1, x, size_t(cells), total,    \
                                 threads, refused);                                                                      \
    }                                                                                                                    \
    FPNA_API int fpna_fortran_locate_##LETTER(int largest, int comm, std::int64_t n, const REAL *x,                       \
                                              const std::int64_t *numbers, REAL *value, std::int64_t *number,            \
                                              const char *refused) {                                                     \
        return fpna::locate(largest ? "fpna_maxloc" : "fpna_minloc", largest, fpna::comm_of(comm), size_t(n), x, 1,       \
                            numbers, value, number, refused);                                                           \
    }

FPNA_FORTRAN(s, float)
FPNA_FORTRAN(d, double)

// `x` becomes its sum over the ranks. `single`: numbers of 4 bytes. Without MPI there is one rank.
FPNA_API int fpna_fortran_reduce(int guarantee, int comm, std::int64_t n, void *x, int single) {
#ifdef FPNA_SERIAL
    (void)guarantee, (void)comm, (void)n, (void)x, (void)single;
    return FPNA_OK;
#else
    if (n > std::numeric_limits<int>::max())
        return fpna::failed(FPNA_ARGUMENT, "fpna_allreduce", "more than 2**31 - 1 numbers: add them in parts");
    return fpna_allreduce(guarantee, MPI_IN_PLACE, x, int(n), single ? MPI_FLOAT : MPI_DOUBLE, fpna::comm_of(comm));
#endif
}

// Copies the sentence into `text`, if there is any, and returns its length.
FPNA_API std::int64_t fpna_fortran_error(char *text) {
    const std::string &sentence = fpna::sentence();
    if (text) std::memcpy(text, sentence.data(), sentence.size());
    return std::int64_t(sentence.size());
}
}
