// Names of communicators that are the same in every run of the program, for any timing of threads.
//
// The name of a communicator consists of the name of its parent, the kind of call that made it, and its number among the
// communicators that were made in this way and still exist: `dup 2`, `split 1/dup 1`. MPI requires one order of such calls on
// each parent, so the order of threads does not matter.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <mpi.h>

#include "data.hpp"
#include "places.hpp"

namespace fpna {

inline int keyval = MPI_KEYVAL_INVALID;
inline std::uint64_t calls = 0;  // recorded so far; `lock` guards it

// A handle as a number; MPI libraries use integers or pointers.
template <typename Handle>
std::uint64_t number_of(Handle handle) {
    std::uint64_t number = 0;
    std::memcpy(&number, &handle, sizeof handle);
    return number;
}

// The children of a communicator, by kind of call: which numbers are in use.
using Offspring = std::map<std::string, std::vector<bool>>;

struct Communicator {
    int number, size, rank;
    bool inter;
    std::string name;
    std::shared_ptr<Offspring> made = std::make_shared<Offspring>();
    // Its place among the children of its parent.
    std::shared_ptr<Offspring> parent = nullptr;
    std::string kind = "";
    std::size_t place = 0;
};

inline int forget(MPI_Comm, int, void *value, void *) {
    delete static_cast<Communicator *>(value);
    return MPI_SUCCESS;
}

inline std::mutex communicators;  // guards names and places
inline std::unordered_map<std::uint64_t, Communicator> unborn;  // made by calls that end later, by handle

// The number of a name; writes a new one into the texts, with the number of calls before it.
inline int number_of_name(const std::string &name) {
    static std::unordered_map<std::string, int> numbers;
    const std::lock_guard<std::mutex> held(lock);
    const auto [place, fresh] = numbers.try_emplace(name, int(numbers.size()));
    if (fresh)
        texts.line("{\"comm\": " + std::to_string(place->second) + ", \"name\": " + quoted(name.c_str()) +
                   ", \"born\": " + std::to_string(calls) + "}");
    return place->second;
}

inline Communicator *find(MPI_Comm comm) {
    void *value = nullptr;
    int there = 0;
    PMPI_Comm_get_attr(comm, keyval, &value, &there);
    return there ? static_cast<Communicator *>(value) : nullptr;
}

// Attaches its properties to a new communicator.
inline Communicator *introduce(MPI_Comm comm, Communicator fresh) {
    int inter = 0;
    PMPI_Comm_size(comm, &fresh.size);
    PMPI_Comm_rank(comm, &fresh.rank);
    PMPI_Comm_test_inter(comm, &inter);
    fresh.inter = inter != 0;
    fresh.number = number_of_name(fresh.name);
    auto *kept = new Communicator(std::move(fresh));
    PMPI_Comm_set_attr(comm, keyval, kept);
    return kept;
}

inline Communicator &known(MPI_Comm comm) {
    if (Communicator *kept = find(comm)) return *kept;
    const std::lock_guard<std::mutex> alone(communicators);
    if (Communicator *kept = find(comm)) return *kept;
    static int others = 0;
    const auto begun = unborn.find(number_of(comm));
    Communicator fresh{};
    if (begun != unborn.end()) {
        fresh = std::move(begun->second);
        unborn.erase(begun);
    } else {
        fresh.name = comm == MPI_COMM_WORLD ? "" : comm == MPI_COMM_SELF ? "self" : "other " + std::to_string(++others);
    }
    return *introduce(comm, std::move(fresh));
}

// Shortens a long name, with a hash at its end: names grow if a program makes each communicator from the last one.
inline std::string shortened(const std::string &name) {
    constexpr std::size_t LONGEST = 100, KEPT = 60;
    if (name.size() <= LONGEST) return name;
    char hash[20];
    std::snprintf(hash, sizeof hash, "%016llx", (unsigned long long)XXH3_64bits(name.data(), name.size()));
    return name.substr(0, KEPT) + "..." + hash;
}

// A communicator in the making from `parent`, by a call of this kind. Its name is decided before the call, which may wait.
class Making {
  public:
    Making(MPI_Comm parent, std::string kind) {
        Communicator &from = known(parent);
        const std::lock_guard<std::mutex> alone(communicators);
        std::vector<bool> &places = (*from.made)[kind];
        std::size_t place = 0;
        while (place < places.size() && places[place]) ++place;
        if (place == places.size()) places.push_back(false);
        places[place] = true;
        fresh_.name = shortened((from.name.empty() ? "" : from.name + "/") + kind + " " + std::to_string(place + 1));
        fresh_.parent = from.made;
        fresh_.kind = std::move(kind);
        fresh_.place = place;
    }

    // The call has ended and returned `comm` on this rank; it may be MPI_COMM_NULL.
    void is(MPI_Comm comm) {
        const std::lock_guard<std::mutex> alone(communicators);
        if (comm == MPI_COMM_NULL)
            (*fresh_.parent)[fresh_.kind][fresh_.place] = false;
        else if (!find(comm))
            introduce(comm, std::move(fresh_));
    }

    // The call has made an object over the ranks of `parent` that is no communicator, such as a file.
    Communicator object(MPI_Comm parent) {
        const std::lock_guard<std::mutex> alone(communicators);
        const Communicator *from = find(parent);
        std::tie(fresh_.size, fresh_.rank, fresh_.inter) = std::tie(from->size, from->rank, from->inter);
        fresh_.number = number_of_name(fresh_.name);
        return std::move(fresh_);
    }

    // The call is pending: `comm` may not be used yet.
    void becomes(MPI_Comm comm) {
        const std::lock_guard<std::mutex> alone(communicators);
        unborn[number_of(comm)] = std::move(fresh_);
    }

  private:
    Communicator fresh_{};
};

// The program frees an object of this name: the next one may get its number. The caller holds the lock.
inline void free_place(const Communicator &gone) {
    if (gone.parent) (*gone.parent)[gone.kind][gone.place] = false;
}

// The program frees a communicator.
inline void leave(MPI_Comm comm) {
    if (comm == MPI_COMM_NULL || comm == MPI_COMM_WORLD || comm == MPI_COMM_SELF) return;
    const std::lock_guard<std::mutex> alone(communicators);
    if (const Communicator *kept = find(comm)) free_place(*kept);
}

}  // namespace fpna
