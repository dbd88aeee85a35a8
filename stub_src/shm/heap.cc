#include "shm/heap.h"

#include <algorithm>
#include <boost/intrusive/rbtree_algorithms.hpp>
#include <vector>

#include "shm/ledger.h"

namespace envpack::shm {

namespace tree {

struct Node;

// A pointer as its distance from itself. The one to the parent also contains the node's color.
class Link {
 public:
  Node* Get() const {
    const std::int64_t distance = word_ & ~kBlack;
    // Unsigned, since the word may be anything.
    const auto to = reinterpret_cast<std::uintptr_t>(this) + static_cast<std::uintptr_t>(distance);
    return distance == kNull ? nullptr : reinterpret_cast<Node*>(to);
  }
  void Set(const Node* to) { Overwrite(word_, Encode(to)); }
  void SetKeepingColor(const Node* to) { Overwrite(word_, Encode(to) | (word_ & kBlack)); }
  bool IsBlack() const { return (word_ & kBlack) != 0; }
  void SetColor(bool is_black) { Overwrite(word_, (word_ & ~kBlack) | (is_black ? kBlack : 0)); }

 private:
  static constexpr std::int64_t kNull = 1, kBlack = 2;

  std::int64_t Encode(const Node* to) const {
    return to == nullptr ? kNull
                         : reinterpret_cast<std::intptr_t>(to) - reinterpret_cast<std::intptr_t>(this);
  }

  std::int64_t word_;
};

// Of the tree of free chunks.
struct Node {
  Link parent, left, right;
};

// What Boost's algorithms need to know of a node.
struct NodeTraits {
  using node = Node;
  using node_ptr = Node*;
  using const_node_ptr = const Node*;
  using color = bool;
  static Node* get_parent(const Node* node) { return node->parent.Get(); }
  static void set_parent(Node* node, Node* parent) { node->parent.SetKeepingColor(parent); }
  static Node* get_left(const Node* node) { return node->left.Get(); }
  static void set_left(Node* node, Node* left) { node->left.Set(left); }
  static Node* get_right(const Node* node) { return node->right.Get(); }
  static void set_right(Node* node, Node* right) { node->right.Set(right); }
  static color get_color(const Node* node) { return node->parent.IsBlack(); }
  static void set_color(Node* node, color value) { node->parent.SetColor(value); }
  static color black() { return true; }
  static color red() { return false; }
};

using Algorithms = boost::intrusive::rbtree_algorithms<NodeTraits>;

}  // namespace tree

namespace {

using Tree = tree::Algorithms;

constexpr std::uint64_t kUnit = Heap::kAlignment;

constexpr std::uint64_t UnitsOf(std::uint64_t bytes) { return (bytes + kUnit - 1) / kUnit; }

}  // namespace

// The start of the region.
struct Heap::Header {
  std::uint64_t free_chunks;
  tree::Node root;
  std::uint64_t further_bytes;  // of the server's bookkeeping, behind this
  std::uint64_t allocated;      // bytes
  std::uint64_t size;           // bytes of the region
};

// The rest of the region is divided into chunks. The last one, of one unit, ends them.
struct Heap::Chunk {
  static constexpr std::uint64_t kPreviousInUse = std::uint64_t{1} << 62, kInUse = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kSizeMask = kPreviousInUse - 1;
  static constexpr std::uint64_t kControlUnits = 1;   // in front of the user's bytes
  static constexpr std::uint64_t kSmallestUnits = 3;  // have room for the node

  std::uint64_t previous_units;  // of the chunk before this one while that is free; otherwise its last bytes
  std::uint64_t units_and_bits;
  tree::Node node;  // while it is free; otherwise the user's bytes begin here

  static Chunk* Of(void* user) {
    return reinterpret_cast<Chunk*>(static_cast<char*>(user) - kControlUnits * kUnit);
  }
  static std::uint64_t UnitsOfNode(const tree::Node* node) {
    return Of(const_cast<tree::Node*>(node))->units();
  }
  // Units for so many of the user's bytes, which may reach into the chunk behind.
  static std::uint64_t UnitsFor(std::uint64_t bytes) {
    const std::uint64_t units = kControlUnits + UnitsOf(bytes - std::min(bytes, sizeof(previous_units)));
    return std::max(units, kSmallestUnits);
  }

  std::uint64_t units() const { return units_and_bits & kSizeMask; }
  bool is_in_use() const { return (units_and_bits & kInUse) != 0; }
  bool is_previous_in_use() const { return (units_and_bits & kPreviousInUse) != 0; }
  char* start() { return reinterpret_cast<char*>(this); }
  const char* start() const { return reinterpret_cast<const char*>(this); }
  char* user() { return start() + kControlUnits * kUnit; }
  Chunk* At(std::uint64_t units) { return reinterpret_cast<Chunk*>(start() + units * kUnit); }
  const Chunk* At(std::uint64_t units) const {
    return reinterpret_cast<const Chunk*>(start() + units * kUnit);
  }
  Chunk* Next() { return At(units()); }
  Chunk* Previous() { return reinterpret_cast<Chunk*>(start() - previous_units * kUnit); }

  void SetUnits(std::uint64_t units) { Overwrite(units_and_bits, (units_and_bits & ~kSizeMask) | units); }
  void SetInUse() {
    Overwrite(units_and_bits, units_and_bits | kInUse);
    Overwrite(Next()->units_and_bits, Next()->units_and_bits | kPreviousInUse);
  }
  void SetFree() {
    Overwrite(units_and_bits, units_and_bits & ~kInUse);
    Overwrite(Next()->units_and_bits, Next()->units_and_bits & ~kPreviousInUse);
    Overwrite(Next()->previous_units, units());
  }
};

Heap::Header& Heap::header() const {
  static_assert(sizeof(Header) == 56 && sizeof(Chunk) == 40 && offsetof(Chunk, node) == kUnit);
  static_assert(Chunk::kSmallestUnits == UnitsOf(sizeof(Chunk)));
  return *reinterpret_cast<Header*>(base_);
}

void* Heap::Allocate(std::size_t size, std::size_t alignment) {
  const std::uint64_t units = Chunk::UnitsFor(size);
  const std::uint64_t slack = alignment == kAlignment ? 0 : Chunk::kSmallestUnits + alignment / kUnit - 1;
  Chunk* chunk = Take(units + slack);
  if (chunk == nullptr) return nullptr;
  const std::uintptr_t misplaced = reinterpret_cast<std::uintptr_t>(chunk->user()) % alignment;
  if (misplaced != 0) {
    // What stays in front must be a chunk of its own.
    std::uint64_t ahead = (alignment - misplaced) / kUnit;
    while (ahead < Chunk::kSmallestUnits) ahead += alignment / kUnit;
    Chunk* front = chunk;
    chunk = Split(front, ahead);
    Free(front->user());
  }
  if (chunk->units() >= units + Chunk::kSmallestUnits) Free(Split(chunk, units)->user());
  return chunk->user();
}

// The smallest free chunk with so many units, or null. It is in use then, as a whole.
Heap::Chunk* Heap::Take(std::uint64_t units) {
  const auto is_smaller = [](const tree::Node* node, std::uint64_t than) {
    return Chunk::UnitsOfNode(node) < than;
  };
  tree::Node* found = Tree::lower_bound(&header().root, units, is_smaller);
  if (found == &header().root) return nullptr;
  Chunk* chunk = Chunk::Of(found);
  Remove(chunk);
  chunk->SetInUse();
  Overwrite(header().allocated, header().allocated + chunk->units() * kUnit);
  return chunk;
}

// Divides a chunk that is in use. Returns the part behind `units`.
Heap::Chunk* Heap::Split(Chunk* chunk, std::uint64_t units) {
  Chunk* rest = chunk->At(units);
  Overwrite(rest->units_and_bits, (chunk->units() - units) | Chunk::kInUse | Chunk::kPreviousInUse);
  chunk->SetUnits(units);
  return rest;
}

void Heap::Free(void* user) {
  Chunk* chunk = Chunk::Of(user);
  std::uint64_t units = chunk->units();
  Overwrite(header().allocated, header().allocated - units * kUnit);
  if (Chunk* next = chunk->Next(); !next->is_in_use()) {
    units += next->units();
    Remove(next);
  }
  if (!chunk->is_previous_in_use()) {
    chunk = chunk->Previous();
    units += chunk->units();
    Remove(chunk);
  }
  chunk->SetUnits(units);
  chunk->SetFree();
  Insert(chunk);
}

void Heap::Insert(Chunk* chunk) {
  const auto is_smaller = [](const tree::Node* one, const tree::Node* other) {
    return Chunk::UnitsOfNode(one) < Chunk::UnitsOfNode(other);
  };
  Tree::insert_equal_upper_bound(&header().root, &chunk->node, is_smaller);
  Overwrite(header().free_chunks, header().free_chunks + 1);
}

void Heap::Remove(Chunk* chunk) {
  Tree::erase(&header().root, &chunk->node);
  Overwrite(header().free_chunks, header().free_chunks - 1);
}

void Heap::Grow(std::size_t extra) {
  const std::uint64_t begin = UnitsOf(sizeof(Header) + header().further_bytes) * kUnit;
  const auto end_of = [&](std::uint64_t size) { return (size - begin) / kUnit - Chunk::kControlUnits; };
  Chunk* first = reinterpret_cast<Chunk*>(base_ + begin);
  Chunk* added = first->At(end_of(header().size));  // where the chunks have ended
  Overwrite(header().size, header().size + extra);
  const std::uint64_t units = end_of(header().size);
  Chunk* end = first->At(units);
  // The first one and the end know how far they are from each other.
  Overwrite(end->units_and_bits, units | Chunk::kInUse);
  Overwrite(first->previous_units, units);
  added->SetUnits(static_cast<std::uint64_t>(end->start() - added->start()) / kUnit);
  added->SetInUse();
  Overwrite(header().allocated, header().allocated + added->units() * kUnit);
  Free(added->user());
}

// Visits every chunk, then every node of the tree, without following anything that is not one.
class Heap::Inspection {
 public:
  Inspection(const Header& header, const char* base, std::size_t size)
      : header_(header), base_(base), size_(size) {}

  bool Passes() {
    const tree::Node* root = &header_.root;
    if (!ListFree() || header_.free_chunks != free_.size() || root->parent.IsBlack()) return false;
    if (HeightOf(root->parent.Get(), root, kDeepest) < 0 || visited_.size() != free_.size()) return false;
    const bool is_empty = visited_.empty();
    return root->left.Get() == (is_empty ? root : visited_.front()) &&
           root->right.Get() == (is_empty ? root : visited_.back());
  }

 private:
  static constexpr int kDeepest = 128;  // more than a balanced tree of any region has

  // The chunks divide the region, and each knows whether the one before it is free, and then its size.
  bool ListFree() {
    if (header_.size > size_ || header_.further_bytes >= header_.size) return false;
    const std::uint64_t begin = UnitsOf(sizeof(Header) + header_.further_bytes) * kUnit;
    if (begin + 2 * kUnit > header_.size) return false;
    const std::uint64_t all = (header_.size - begin) / kUnit - Chunk::kControlUnits;
    const auto* chunk = reinterpret_cast<const Chunk*>(base_ + begin);
    const std::uint64_t distance = chunk->previous_units;  // to the end
    std::uint64_t before = 0;                              // units of the chunk before if that is free
    for (std::uint64_t left = all, units; left > 0; left -= units, chunk = chunk->At(units)) {
      units = chunk->units();
      if (units < Chunk::kSmallestUnits || units > left || !Follows(*chunk, before)) return false;
      if (!chunk->is_in_use() && before != 0) return false;
      before = chunk->is_in_use() ? 0 : units;
      if (before != 0) free_.push_back(&chunk->node);
    }
    return chunk->is_in_use() && chunk->units() == all && distance == all && Follows(*chunk, before);
  }

  static bool Follows(const Chunk& chunk, std::uint64_t free_before) {
    if (free_before == 0) return chunk.is_previous_in_use();
    return !chunk.is_previous_in_use() && chunk.previous_units == free_before;
  }

  // The number of black nodes on each way down, or -1 if this is no tree of all free chunks by their size.
  int HeightOf(const tree::Node* node, const tree::Node* parent, int depth) {
    if (node == nullptr) return 0;
    const bool is_free = std::binary_search(free_.begin(), free_.end(), node);
    if (!is_free || depth == 0 || node->parent.Get() != parent) return -1;
    const bool is_black = node->parent.IsBlack();
    if (!is_black && !parent->parent.IsBlack()) return -1;
    const int left = HeightOf(node->left.Get(), node, depth - 1);
    if (left < 0 || visited_.size() == free_.size()) return -1;
    if (!visited_.empty() && Chunk::UnitsOfNode(visited_.back()) > Chunk::UnitsOfNode(node)) return -1;
    visited_.push_back(node);
    const int right = HeightOf(node->right.Get(), node, depth - 1);
    return left == right ? left + (is_black ? 1 : 0) : -1;
  }

  const Header& header_;
  const char* base_;
  const std::size_t size_;
  std::vector<const tree::Node*> free_, visited_;
};

bool Heap::IsSound(std::size_t size) const { return Inspection(header(), base_, size).Passes(); }

bool Heap::IsAllocated(const char* address, std::size_t size) const {
  const auto* chunk = Chunk::Of(const_cast<char*>(address));
  const auto at = static_cast<std::size_t>(chunk->start() - base_);
  if (at < sizeof(Header) || at > size - 2 * sizeof(Chunk) || at % kUnit != 0) return false;
  const std::uint64_t units = chunk->units();
  const bool fits = units >= Chunk::kSmallestUnits && units < (size - at) / kUnit;
  return fits && chunk->is_in_use() && chunk->At(units)->is_previous_in_use();
}

}  // namespace envpack::shm
