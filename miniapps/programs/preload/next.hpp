// The library's own functions, by name, behind those that are defined here. Without mpi.h, which counted.cpp cannot include.
#pragma once

#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>

namespace fpna {

template <typename Function>
Function next(const char *name) {
    void *place = dlsym(RTLD_NEXT, name);
    if (!place) {
        std::fprintf(stderr, "fpna run: no %s behind the one that observes: the program is linked in a way that is not "
                     "supported\n", name);
        std::abort();
    }
    return reinterpret_cast<Function>(place);
}

}  // namespace fpna
