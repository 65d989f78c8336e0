// The order in which calls find requests complete and nonblocking probes see messages: recorded, and replayed.
//
// The main thread of a rank has one sequence of such calls. A call that found something has a record for each request, or one
// for the message, with the number of calls before it that found nothing. In a replay that many calls find nothing again, and
// the next one waits for the recorded requests or message. If it is another call than the recorded one, the replay ends.
//
// A completion uses these fields of a record:
//
//   kind        the call; END at the end of the program
//   comm_size   the number of requests that the call found; 0 if none of its requests was active
//   peer, tag   the place of the request in the array of the call; of a message, its source and tag
//   count       the calls that found nothing since the last one that found something
//   bytes       the number of the request by its posting, 0 if unknown; of a message, how many of its source were seen by then
//   in          hash of these calls and this one; receives from any source posted before
//   out         requests posted before
#pragma once

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <mpi.h>

#include "receives.hpp"

namespace fpna {

// A completion of the recorded run, as miniapps/programs/sources.py writes it.
struct Found {
    std::int32_t kind, done, place, tag;
    std::int64_t failed, number, received, posted;
    std::uint64_t path;
};
inline std::vector<Found> found_before;  // in the recorded run
inline std::size_t next_found = 0;
inline bool following = false;  // whether a replay knows completions; `replaying` says whether it has not ended

// Reads the launcher's file: the rank, the number of ranks, the number of sources and of completions (-1 if these are not
// replayed), then both.
inline bool read_order(const char *path, int rank, int size) {
    std::FILE *file = std::fopen(path, "rb");
    std::int64_t head[4] = {};
    bool whole = file && std::fread(head, sizeof head, 1, file) == 1 && head[0] == rank && head[1] == size;
    if (whole) {
        sources.resize(std::size_t(head[2]));
        found_before.resize(std::size_t(head[3] > 0 ? head[3] : 0));
        whole = std::fread(sources.data(), sizeof(Source), sources.size(), file) == sources.size() &&
                std::fread(found_before.data(), sizeof(Found), found_before.size(), file) == found_before.size();
        following = head[3] >= 0;
    }
    if (file) std::fclose(file);
    return replaying = whole;
}

// What this rank has done since the last call that found something.
inline std::int64_t failed = 0;
inline std::uint64_t path = 0;
inline std::int64_t calls_that_found = 0;

inline void write_completion(Kind kind, int done, int place, int tag, std::int64_t number, int comm, std::uint16_t flags = 0) {
    const std::int64_t received = from_any, posted = postings.posted();
    const std::lock_guard<std::mutex> held(lock);
    Record record{};
    record.number = calls;
    record.kind = kind;
    record.flags = std::uint16_t(COMPLETION | flags);
    record.comm_size = done;
    record.comm = comm;
    record.peer = place;
    record.tag = tag;
    record.count = failed;
    record.bytes = number;
    std::memcpy(record.in, &path, 8);
    std::memcpy(record.in + 8, &received, 8);
    std::memcpy(record.out, &posted, 8);
    commit(record);
}

inline std::string after_failed(const std::string &call, std::int64_t number) {
    return call + " after " + std::to_string(number) + (number == 1 ? " call" : " calls") + " without success";
}

// The next call of the recorded run, and what it found.
inline std::string recorded_call() {
    const Found &next = found_before[next_found];
    const Kind kind = Kind(next.kind);
    std::string text = after_failed(name_of(kind), next.failed);
    if (kind == IPROBE || kind == IMPROBE)
        text += ", which saw message " + std::to_string(next.number) + " of rank " + std::to_string(next.place) + " with tag " +
                std::to_string(next.tag);
    else if (kind == TESTALL)
        text += ", which found all its requests";
    else if (kind != END && next.done)
        text += ", which found " + (kind == TEST || kind == REQUEST_GET_STATUS ? "its request" : "request " + std::to_string(next.place)) +
                (next.number ? " (posted as " + std::to_string(next.number) + ")" : "");
    return text;
}

// Ends the replay at the current call.
inline void leave_completions(const std::string &why) {
    leave_record("its call " + std::to_string(calls_that_found + 1) + " that finds a request or a message", why);
    give_back();
}

// A call that may find requests or a message.
class Turn {
  public:
    // `what`: a hash of the arguments that are the same in each run.
    Turn(Kind kind, std::uint64_t what, bool waits, bool on) : kind_(kind), on_(on) {
        if (on_ && threads && !main_thread) {
            on_ = false;
            tell_of_threads();
        }
        if (!on_) return;
        path = mixed(path, std::uint64_t(kind) << 48 ^ what);
        if (replaying && following) ask(waits);
    }

    // In a replay: this call must find nothing.
    bool nothing() const { return nothing_; }

    // In a replay: what this call finds, a row for each request; empty if the call runs free.
    const std::vector<Found> &finds() const { return finds_; }

    // It found nothing.
    void missed() const { failed += on_; }

    // It found a message.
    void saw(const MPI_Status &status, MPI_Comm comm) const {
        if (!on_) return;
        static std::map<std::pair<int, int>, std::int64_t> seen;
        const int number = known(comm).number;
        write_completion(kind_, 1, status.MPI_SOURCE, status.MPI_TAG, ++seen[{number, status.MPI_SOURCE}], number);
        next();
    }

    // It found these requests; none if no request was active. `number(i)`: by posting.
    template <typename Number>
    void completed(const std::vector<int> &which, Number number) const {
        if (!on_) return;
        const int rows = kind_ == TESTALL && !which.empty() ? 1 : int(which.size());  // all of them, or one by one
        for (int k = 0; k < rows; ++k) write_completion(kind_, rows, which[std::size_t(k)], 0, number(which[std::size_t(k)]), 0);
        if (which.empty()) write_completion(kind_, 0, 0, 0, 0, 0);
        next();
    }

    // The recorded requests or the message did not come in time.
    void late(const std::string &what) {
        leave_completions(name_of(kind_) + " waited for " + what + ": " + too_late());
        finds_.clear();
    }

    // The requests that the call got are not the recorded ones.
    void other(const std::string &what) {
        leave_completions(name_of(kind_) + ": " + what);
        finds_.clear();
    }

  private:
    void ask(bool waits) {
        if (next_found == found_before.size()) return leave_completions("the record of the run ends here: it was killed");
        const Found &next = found_before[next_found];
        if (failed < next.failed && !waits) {
            nothing_ = true;
            return;
        }
        const auto came = [&](const std::string &what) {
            return leave_completions("here " + after_failed(name_of(kind_), failed) + ", in the recorded run " + recorded_call() +
                                     what + "; the program took another path, as when a clock decides");
        };
        if (next.kind != kind_ || next.failed != failed) return came("");
        if (next.received != from_any)
            return came("; receives from any source posted before: " + std::to_string(from_any) + " here, " +
                        std::to_string(next.received) + " there");
        if (next.posted != postings.posted())
            return came("; requests posted before: " + std::to_string(postings.posted()) + " here, " + std::to_string(next.posted) +
                        " there");
        if (next.path != path) return came("; these calls differ in their kind, their number of requests, their source or their tag");
        const std::size_t rows = std::size_t(next.done > 1 ? next.done : 1);
        for (std::size_t i = 0; i < rows && next_found < found_before.size(); ++i) finds_.push_back(found_before[next_found++]);
    }

    static void next() {
        failed = 0;
        path = 0;
        ++calls_that_found;
    }

    // Calls of several threads have no order that could be recorded.
    static void tell_of_threads() {
        static std::atomic<bool> told{false};
        if (told.exchange(true)) return;
        write_completion(END, 0, 0, 0, 0, 0, OTHER_THREAD);
        if (replaying && following)
            leave_record("a call of another thread", "it may find a request or a message, and calls of several threads have no order");
    }

    Kind kind_;
    bool on_, nothing_ = false;
    std::vector<Found> finds_;
};

// The end of the program: how many calls found nothing since the last that did.
inline void end_completions(int rank) {
    if (replaying && following && next_found < found_before.size() && found_before[next_found].kind != END)
        std::fprintf(stderr, "fpna run: rank %d: the program ended before the recorded run did: next there is %s\n", rank,
                     recorded_call().c_str());
    write_completion(END, 0, 0, 0, 0, 0);
}

// The places of the requests that a call found, from what it returned. `from`: the number of the first request of an array.
inline std::vector<int> one(int index, int from = 0) {
    return index == MPI_UNDEFINED ? std::vector<int>{} : std::vector<int>{index - from};
}
inline std::vector<int> some(int done, const int indices[], int from = 0) {
    std::vector<int> which;
    for (int k = 0; done != MPI_UNDEFINED && k < done; ++k) which.push_back(indices[k] - from);
    return which;
}

// A wait or a test of requests: keeps them, since completed ones become MPI_REQUEST_NULL.
class Ending {
  public:
    virtual ~Ending() = default;

    // In a replay: whether this call was answered from the record, and its answer. It has completed `which`, with `code`, and
    // written their statuses.
    struct Answer {
        int code = MPI_SUCCESS;
        bool found = false;
        std::vector<int> which = {};
        // `from`: the number of the first request of an array.
        int first(int from = 0) const { return which.empty() ? MPI_UNDEFINED : which[0] + from; }
        int done(int indices[], int from = 0) const {
            for (std::size_t k = 0; k < which.size(); ++k) indices[k] = which[k] + from;
            return which.empty() && found ? MPI_UNDEFINED : int(which.size());
        }
    };
    std::optional<Answer> replayed(Kind kind, bool waits = false) {
        turn_.emplace(kind, requests_.size(), waits, on_);
        if (turn_->nothing()) {
            int there = 0;
            PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, own_comm, &there, MPI_STATUS_IGNORE);  // lets messages move
            turn_->missed();
            return Answer{};
        }
        if (turn_->finds().empty()) {
            refresh();
            return {};
        }
        std::vector<int> which;
        for (const Found &each : turn_->finds()) {
            if (!each.done) break;
            const bool there = each.place >= 0 && std::size_t(each.place) < requests_.size();
            const std::int64_t own = there ? postings.number(handle(each.place)) : 0;
            if (!there || (own && each.number && own != each.number)) {
                turn_->other("request " + std::to_string(each.place) + " of its array was posted as " + std::to_string(each.number) +
                             " in the recorded run" + (there ? ", as " + std::to_string(own) + " here" : "; the array is shorter here"));
                refresh();
                return {};
            }
            which.push_back(each.place);
        }
        if (kind == TESTALL) which = all();
        if (!come(which)) {
            turn_->late(words(which));
            refresh();
            return {};
        }
        return kind == REQUEST_GET_STATUS ? stays() : finished(kind, which);
    }

    // MPI_Request_get_status has seen that its request has ended, and leaves it as it is.
    void seen() {
        turn_->completed({0}, [this](int i) { return i < int(requests_.size()) ? postings.number(handle(i)) : 0; });
    }

    // Before a call that waits for all its requests: waits for those with a recorded source, but not for ever.
    void hold() {
        if (!replaying) return;
        std::vector<int> chosen;
        for (int i = 0; i < int(requests_.size()); ++i)
            if (is_chosen(number_of(requests_[std::size_t(i)]))) chosen.push_back(i);
        if (come(chosen)) return;
        leave_record("a wait for " + words(chosen), too_late());
        give_back();
        refresh();
    }

    bool watches() const { return watches_; }

    void missed() { turn_->missed(); }

    // The call found these requests: `which` are their places, with statuses in the same order. `code`: returned by the call.
    template <typename Status, typename Gone>
    void over(const std::vector<int> &which, int code, Status status, Gone gone) {
        if (turn_)
            turn_->completed(which, [this](int i) { return i < int(requests_.size()) ? postings.number(handle(i)) : 0; });
        for (std::size_t i = 0; i < which.size(); ++i) {
            const int index = which[i];
            if (index < 0 || std::size_t(index) >= requests_.size()) continue;
            bool failed = code != MPI_SUCCESS;
            if (!watches_) {
                if (!failed) postings.end(handle(index));
                continue;
            }
            const MPI_Status got = status(int(i));
            if (code == MPI_ERR_IN_STATUS) {
                if (got.MPI_ERROR == MPI_ERR_PENDING) continue;
                failed = got.MPI_ERROR != MPI_SUCCESS;
            } else if (failed && !gone(index)) {
                continue;
            }
            postings.end(handle(index));
            const std::lock_guard<std::mutex> held(lock);
            complete(handle(index), got, failed);
        }
    }

    std::vector<int> all() const {
        std::vector<int> every(requests_.size());
        for (std::size_t i = 0; i < every.size(); ++i) every[i] = int(i);
        return every;
    }

  protected:
    // `request(i)`: the i-th request as a C handle; `put(i, request)` replaces it.
    template <typename Request>
    void begin(int count, Request request) {
        if (!on()) return;
        on_ = true;
        inside_.emplace();
        give_back();
        watches_ = under_way != 0;
        requests_.reserve(count > 0 ? std::size_t(count) : 0);
        for (int i = 0; i < count; ++i) requests_.push_back(request(i));
        refresh();
    }

    virtual void put(int i, MPI_Request request) = 0;
    virtual void put_status(int place, const MPI_Status &status) = 0;

    std::vector<MPI_Request> requests_;

  private:
    std::uint64_t handle(int i) const { return number_of(requests_[std::size_t(i)]); }

    // Waits for these requests; false if one does not end in time.
    bool come(const std::vector<int> &which) {
        for (const int i : which) {
            int ended = 0;
            const MPI_Request request = requests_[std::size_t(i)];
            const auto there = [&] { return PMPI_Request_get_status(request, &ended, MPI_STATUS_IGNORE) != MPI_SUCCESS || ended; };
            if (request != MPI_REQUEST_NULL && !comes(there)) return false;
        }
        return true;
    }

    std::string words(const std::vector<int> &which) const {
        std::string text = which.size() == 1 ? "request" : "requests";
        for (std::size_t k = 0; k < which.size() && k < 8; ++k) {
            const std::int64_t number = postings.number(handle(which[k]));
            text += " " + std::to_string(which[k]) + (number ? " (posted as " + std::to_string(number) + ")" : "");
        }
        return text + (which.size() > 8 ? " ..." : "");
    }

    // Takes requests that were given back to any source.
    void refresh() {
        if (!some_moved) return;
        for (std::size_t i = 0; i < requests_.size(); ++i)
            if (const MPI_Request fresh = current(requests_[i]); fresh != requests_[i]) put(int(i), requests_[i] = fresh);
    }

    // Completes requests that have ended.
    Answer finished(Kind kind, const std::vector<int> &which) {
        const bool alone = kind == TEST || kind == TESTANY || kind == WAITANY;
        std::vector<MPI_Request> some;
        std::vector<MPI_Status> statuses(which.size() + 1);
        for (const int i : which) some.push_back(requests_[std::size_t(i)]);
        int code = MPI_SUCCESS, ended = 0, index = 0;
        if (which.empty())
            code = PMPI_Testany(0, nullptr, &index, &ended, statuses.data());  // the empty status
        else
            code = alone ? PMPI_Wait(some.data(), statuses.data()) : PMPI_Waitall(int(some.size()), some.data(), statuses.data());
        over(which, code, [&](int i) { return statuses[std::size_t(i)]; },
             [&](int i) { return some[std::size_t(std::find(which.begin(), which.end(), i) - which.begin())] == MPI_REQUEST_NULL; });
        for (std::size_t k = 0; k < which.size(); ++k) {
            put(which[k], some[k]);
            put_status(int(k), statuses[k]);
        }
        if (which.empty() && alone) put_status(0, statuses[0]);
        return {code, true, which};
    }

    // MPI_Request_get_status sees that its request has ended.
    Answer stays() {
        int ended = 0;
        MPI_Status status;
        const int code = PMPI_Request_get_status(requests_[0], &ended, &status);
        put_status(0, status);
        seen();
        return {code, true, {0}};
    }

    std::optional<Inside> inside_;
    std::optional<Turn> turn_;
    bool on_ = false, watches_ = false;
};

// A wait or a test with C handles.
class Completion : public Ending {
  public:
    Completion(int count, MPI_Request *requests, MPI_Status *statuses, bool many = false) : given_(requests), statuses_(statuses) {
        ignored_ = statuses == (many ? MPI_STATUSES_IGNORE : MPI_STATUS_IGNORE);
        begin(count, [=](int i) { return requests[i]; });
        if (watches() && ignored_) own_.resize(std::size_t(count) + 1);
    }

    // The place for the library's statuses: the program's, or one here.
    MPI_Status *statuses() { return own_.empty() ? statuses_ : own_.data(); }

    void over(const std::vector<int> &which, int code) {
        const MPI_Status *from = statuses();
        Ending::over(which, code, [=](int i) { return from[i]; }, [this](int i) { return given_[i] == MPI_REQUEST_NULL; });
    }
    void over(int code) { over(all(), code); }

  private:
    void put(int i, MPI_Request request) override { given_[i] = request; }
    void put_status(int place, const MPI_Status &status) override { if (!ignored_) statuses_[place] = status; }

    MPI_Request *given_;
    MPI_Status *statuses_;
    bool ignored_ = false;
    std::vector<MPI_Status> own_;
};

// A nonblocking probe. In a replay it looks for the recorded message.
class Asking {
  public:
    Asking(const Shape &shape)
        : source(shape.peer), tag(shape.tag), comm_(shape.comm),
          turn_(shape.kind, mixed(std::uint64_t(std::uint32_t(source)), std::uint64_t(std::uint32_t(tag))), false, on()) {
        if (turn_.finds().empty()) return;
        const Found next = turn_.finds()[0];
        int there = 0;
        const Inside from_here;
        if (comes([&] { return PMPI_Iprobe(next.place, next.tag, comm_, &there, MPI_STATUS_IGNORE) || there; })) {
            source = next.place;
            tag = next.tag;
        } else {
            turn_.late("the message of rank " + std::to_string(next.place) + " with tag " + std::to_string(next.tag));
        }
    }

    // Whether the probe must find nothing.
    bool nothing() const { return turn_.nothing(); }

    void over(bool found, const MPI_Status *status) const {
        if (found)
            turn_.saw(*status, comm_);
        else
            turn_.missed();
    }

    int source, tag;

  private:
    MPI_Comm comm_;
    Turn turn_;
};

}  // namespace fpna
