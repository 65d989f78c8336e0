// Finds the MPI library's functions that this library replaces, by name. Without mpi.h, which counted.cpp cannot include.
#pragma once

#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>

namespace fpna {

template <typename Function>
Function next(const char *name) {
    void *place = dlsym(RTLD_NEXT, name);
    if (!place) {
        std::fprintf(stderr, "fpna run: the MPI library has no %s; link the program with MPI as a shared library\n", name);
        std::abort();
    }
    return reinterpret_cast<Function>(place);
}

}  // namespace fpna
