// tree: two binary trees, each with half of the data.
//
// In a binary tree the sums go up and the total comes down in 2 log2 N rounds: few, however many
// ranks there are. But half of the ranks are leaves, and a leaf only ever sends its own data up and
// receives the total: its link idles while the inner ranks carry double. So there are two trees,
// and an inner rank of one is a leaf of the other; each carries half of the data, and every link
// is in use all the time. For six ranks:
//
//        first half: inner ranks odd          second half: inner ranks even
//
//                    3                                    2
//                 /     \                              /     \.
//               1         5                          4         0
//              / \       /                          / \         \.
//             0   2     4                          5   3         1
//
// The first tree lies over the ranks in their order (every rank stands between those of its left
// and those of its right subtree), built so that its left subtrees are full: then all inner nodes
// have odd positions. The second is the same tree with positions mirrored for an even N, or shifted
// by one for an odd N, so that its inner nodes have even ranks.
//
// Each half is cut into segments that follow one another through the tree, so the way up of one,
// the way down of an earlier one, and both trees run at the same time. About 2 log2 N rounds;
// per rank up to 2K sent and 2K received (the ring: 2(N-1)/N K). Each sum is made once at the root
// of its tree, so all ranks hold the same bits. It wins for many ranks and data that is not long
// enough for the ring; with one segment it is a plain pair of trees for short data.
//
// Broadcast and reduce go one way only: the trees lie over the other N-1 ranks, and the root of the
// operation feeds, or drains, the roots of both: K sent by each rank at most, and log2 N rounds.
#include <algorithm>
#include <bit>

#include "tutti/collective/algorithms/catalogue.h"
#include "tutti/collective/algorithms/draft.h"

namespace tutti::collective {
namespace {

bool Supports(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kBroadcast ||
         operation == Operation::kReduce;
}

struct Edge {
  int parent;  // ranks
  int child;
  int parent_height;  // longest way down to a leaf
  int parent_depth;   // way up to the root
  int which;          // of the parent's children: 0 or 1
};

struct Tree {
  int root = -1;
  int height = 0;
  std::vector<Edge> edges;
};

// Builds the subtree over positions [first, first + size); gives the position of its root, and its
// height.
struct Subtree {
  int root;
  int height;
};
Subtree Build(int first, int size, int depth, const std::vector<int>& rank_at, Tree& tree) {
  const int left = int(std::bit_floor(unsigned(size))) - 1;  // nodes of the full left subtree
  const int root = first + left;
  const size_t edges = tree.edges.size();
  std::vector<Subtree> children;
  if (left > 0) children.push_back(Build(first, left, depth + 1, rank_at, tree));
  if (left + 1 < size) {
    children.push_back(Build(root + 1, size - left - 1, depth + 1, rank_at, tree));
  }
  int height = 0;
  for (const Subtree& child : children) height = std::max(height, child.height + 1);
  for (size_t i = 0; i < children.size(); ++i) {
    tree.edges.insert(
        tree.edges.begin() + ptrdiff_t(edges),
        {rank_at[size_t(root)], rank_at[size_t(children[i].root)], height, depth, int(i)});
  }
  return {root, height};
}

// Tree 0 or its complement 1 over the members.
Tree MakeTree(const std::vector<int>& members, int which) {
  const int n = int(members.size());
  std::vector<int> rank_at;
  for (int position = 0; position < n; ++position) {
    const int mirrored = n % 2 == 0 ? n - 1 - position : (position + n - 1) % n;
    rank_at.push_back(members[size_t(which == 0 ? position : mirrored)]);
  }
  Tree tree;
  const Subtree whole = Build(0, n, 0, rank_at, tree);
  tree.root = rank_at[size_t(whole.root)];
  tree.height = whole.height;
  return tree;
}

// A node takes from its two children one after the other, so a level of the tree takes two units
// of time, and so does the distance between segments.
void AddUp(Timetable& timetable, const Tree& tree, int segment, int piece) {
  for (const Edge& edge : tree.edges) {
    timetable.MoveReduce(2 * (edge.parent_height - 1 + segment) + edge.which, edge.child,
                         edge.parent, piece);
  }
}

// `start` is when the root has the first segment.
void AddDown(Timetable& timetable, const Tree& tree, int segment, int piece, int start) {
  for (const Edge& edge : tree.edges) {
    timetable.Move(start + 2 * (edge.parent_depth + segment) + edge.which, edge.parent, edge.child,
                   piece);
  }
}

std::vector<int> MembersFor(const Draft& draft, Operation operation) {
  if (operation == Operation::kAllReduce) return RanksUpTo(draft.ranks());
  std::vector<int> others;
  for (int i = 1; i < draft.ranks(); ++i) others.push_back(draft.Around(draft.root(), i));
  return others;
}

absl::StatusOr<Schedule> Make(const Request& request) {
  if (!Supports(request.operation)) return NotDone(kTree, request.operation);
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  Draft draft(kTree.name, request, 2, request.segments);
  if (request.ranks == 1) return std::move(draft).Take();
  const std::vector<int> members = MembersFor(draft, request.operation);
  Timetable timetable;
  for (int which = 0; which < 2; ++which) {
    const Tree tree = MakeTree(members, which);
    for (int segment = 0; segment < draft.segments(); ++segment) {
      const int piece = draft.Piece(which, segment);
      const int summed = 2 * (tree.height + segment);
      switch (request.operation) {
        case Operation::kBroadcast:
          timetable.Move(2 * segment, draft.root(), tree.root, piece);
          AddDown(timetable, tree, segment, piece, 2);
          break;
        case Operation::kReduce:
          AddUp(timetable, tree, segment, piece);
          timetable.MoveReduce(summed, tree.root, draft.root(), piece);
          break;
        default:
          AddUp(timetable, tree, segment, piece);
          AddDown(timetable, tree, segment, piece, 2 * tree.height);
          break;
      }
    }
  }
  timetable.AddTo(draft);
  return std::move(draft).Take();
}

}  // namespace

const Algorithm kTree = {
    .name = "tree",
    .summary = "two binary trees with half of the data each: few rounds for many ranks",
    .needs_memory_links = false,
    .supports = Supports,
    .make = Make,
};

}  // namespace tutti::collective
