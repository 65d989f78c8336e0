// Numbers the requests of a rank in the order in which they were posted: nonblocking calls, and each start of a persistent one.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include <mpi.h>

#include "recorder.hpp"

namespace fpna {

class Postings {
  public:
    // A request was posted. MPI libraries give all calls that end at once the same request: such a request has no number.
    void post(MPI_Request request) {
        if (request == MPI_REQUEST_NULL) return;
        const std::lock_guard<std::mutex> held(own_);
        const auto [place, fresh] = numbers_.try_emplace(number_of(request), ++posted_);
        if (!fresh) place->second = 0;
    }

    // A request has ended.
    void end(std::uint64_t handle) {
        const std::lock_guard<std::mutex> held(own_);
        numbers_.erase(handle);
    }

    // A request took the place of another.
    void move(std::uint64_t from, std::uint64_t to) {
        const std::lock_guard<std::mutex> held(own_);
        if (const auto place = numbers_.find(from); place != numbers_.end()) {
            numbers_[to] = place->second;
            numbers_.erase(from);
        }
    }

    // The number of a request, from 1; 0 if it has none.
    std::int64_t number(std::uint64_t handle) {
        const std::lock_guard<std::mutex> held(own_);
        const auto place = numbers_.find(handle);
        return place == numbers_.end() ? 0 : place->second;
    }

    // The number of requests posted so far.
    std::int64_t posted() {
        const std::lock_guard<std::mutex> held(own_);
        return posted_;
    }

  private:
    std::mutex own_;
    std::unordered_map<std::uint64_t, std::int64_t> numbers_;
    std::int64_t posted_ = 0;
};
inline Postings postings;

// The code of a call that is not recorded and posted a request.
inline int posted(int code, const MPI_Request *request) {
    if (code == MPI_SUCCESS && on()) postings.post(*request);
    return code;
}

}  // namespace fpna
