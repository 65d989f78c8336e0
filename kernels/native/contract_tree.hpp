// The order of additions of a product over blocks: chains of a block from the left, blocks by a tree (see
// contract.hpp).
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace contract {

using i64 = std::int64_t;

enum class Store {
    set,    // c = the chain
    piece,  // c = c + the chain, of one block
    block,  // c = c + the chain, of two blocks or of sums of blocks
};

// A chain of `depth` terms from `first`, or `chains` that are added in slots of their own, stored in slot `slot`, where
// 0 is the result. Then the slot is added to slot - 1, that to slot - 2, and so on, `joins` times.
struct Step {
    i64 first, depth, slot;
    Store how;
    i64 joins;
    std::vector<Step> chains;
};

// The order in which blocks with these ends are added, with as few slots as levels of the tree in use.
//
// The tree is that of all-reduces by `block-tree`: the left child has the largest power of two of blocks that leaves
// one.
class Order {
public:
    Order(std::vector<i64> ends, i64 piece) : ends_(std::move(ends)), piece_(piece) {
        steps_ = of(0, i64(ends_.size()), true);
        for (const Step &s : steps_) {
            slots = std::max(slots, s.slot + 1);
            for (const Step &c : s.chains) inner_slots = std::max(inner_slots, c.slot + 1);
        }
    }
    const std::vector<i64> &ends() const { return ends_; }
    const std::vector<Step> &steps() const { return steps_; }
    i64 slots = 1, inner_slots = 1;  // of the steps, of their chains

private:
    std::vector<i64> ends_;
    i64 piece_;
    std::vector<Step> steps_;

    i64 start(i64 block) const { return block ? ends_[block - 1] : 0; }

    // The steps for blocks [begin, end). `together`: blocks with a piece or less in all are chains of one step.
    std::vector<Step> of(i64 begin, i64 end, bool together) const {
        std::vector<Step> steps;
        visit(begin, end, 0, together, steps);
        return steps;
    }

    bool is_step(i64 begin, i64 end, bool together) const {
        return (together || end - begin == 1) && ends_[end - 1] - start(begin) <= piece_;
    }

    void visit(i64 begin, i64 end, i64 slot, bool together, std::vector<Step> &steps) const {
        const i64 first = start(begin), depth = ends_[end - 1] - first;
        if (is_step(begin, end, together)) {
            steps.push_back({first, depth, slot, Store::set, 0, {}});
            if (end - begin > 1) {
                steps.back().chains = of(begin, end, false);
                for (Step &chain : steps.back().chains) chain.first -= first;
            }
        } else if (end - begin == 1) {
            for (i64 k = 0; k < depth; k += piece_)
                steps.push_back({first + k, std::min(piece_, depth - k), slot, k ? Store::piece : Store::set, 0, {}});
        } else {
            i64 half = 1;
            while (2 * half < end - begin) half *= 2;
            visit(begin, begin + half, slot, together, steps);
            if (is_step(begin + half, end, together)) {
                visit(begin + half, end, slot, together, steps);
                steps.back().how = Store::block;
            } else {
                visit(begin + half, end, slot + 1, together, steps);
                ++steps.back().joins;
            }
        }
    }
};

}  // namespace contract
