// The outcome of a call of the library: a code, and a sentence for the thread.
#pragma once
#include <new>
#include <string>

#include "../include/environment.hpp"
#include "messages.hpp"

namespace fpna {

inline std::string &sentence() {
    static thread_local std::string text;
    return text;
}

inline int failed(int code, const char *who, const char *why) {
    sentence() = std::string(who) + ": " + why;
    return code;
}

// The code of call(), which throws if it fails.
template <typename Call>
int outcome(const char *who, Call &&call) {
    try {
        const DefaultEnvironment environment;
        call();
        return FPNA_OK;
    } catch (const Refused &error) {
        return failed(FPNA_ARGUMENT, who, error.what());
    } catch (const MpiError &error) {
        return failed(FPNA_MPI, who, error.what());
    } catch (const std::bad_alloc &) {
        return failed(FPNA_MEMORY, who, "there is not enough memory on this rank");
    }
}

}  // namespace fpna
