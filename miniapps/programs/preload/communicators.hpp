// Which communicator a call is on: a name that is the same in every run of the program, whatever threads do meanwhile.
//
// A communicator is named after the one it was made of, the kind of call that made it, and its place among those that were
// made so and are still there: `dup 2`, `split 1/dup 1`. Calls that make communicators come in one order on each parent, as
// MPI demands, so that the order of threads plays no part.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <mpi.h>

#include "data.hpp"
#include "places.hpp"

namespace fpna {

inline int keyval = MPI_KEYVAL_INVALID;
inline std::uint64_t calls = 0;  // that were recorded; `lock` guards it

// A handle as a number, whatever it is in this library.
template <typename Handle>
std::uint64_t number_of(Handle handle) {
    std::uint64_t number = 0;
    std::memcpy(&number, &handle, sizeof handle);
    return number;
}

// What was made of a communicator, by kind of call: which places are taken.
using Offspring = std::map<std::string, std::vector<bool>>;

struct Communicator {
    int number, size, rank;
    bool inter;
    std::string name;
    std::shared_ptr<Offspring> made = std::make_shared<Offspring>();
    // Where it stands among those of its parent.
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

// Writes once that communicators with this number have this name, and how many calls there were before the first.
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

// Begins to keep what is known of a communicator.
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

// A name that would grow with every communicator that is made of the last one ends in its hash.
inline std::string shortened(const std::string &name) {
    constexpr std::size_t LONGEST = 100, KEPT = 60;
    if (name.size() <= LONGEST) return name;
    char hash[20];
    std::snprintf(hash, sizeof hash, "%016llx", (unsigned long long)XXH3_64bits(name.data(), name.size()));
    return name.substr(0, KEPT) + "..." + hash;
}

// A communicator that is being made of `parent` by a call of this kind. The name is settled before the call, which may last.
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

    // The call has ended, and gave this rank `comm`, or none.
    void is(MPI_Comm comm) {
        const std::lock_guard<std::mutex> alone(communicators);
        if (comm == MPI_COMM_NULL)
            (*fresh_.parent)[fresh_.kind][fresh_.place] = false;
        else if (!find(comm))
            introduce(comm, std::move(fresh_));
    }

    // The call goes on: `comm` may not be used yet.
    void becomes(MPI_Comm comm) {
        const std::lock_guard<std::mutex> alone(communicators);
        unborn[number_of(comm)] = std::move(fresh_);
    }

  private:
    Communicator fresh_{};
};

// The program frees a communicator: its place is free for the next.
inline void leave(MPI_Comm comm) {
    if (comm == MPI_COMM_NULL || comm == MPI_COMM_WORLD || comm == MPI_COMM_SELF) return;
    const std::lock_guard<std::mutex> alone(communicators);
    const Communicator *kept = find(comm);
    if (kept && kept->parent) (*kept->parent)[kept->kind][kept->place] = false;
}

}  // namespace fpna
