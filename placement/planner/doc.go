// Package planner decides where replicas go, and which leads. It is pure and deterministic: what it
// is given goes in, a plan and its reasons come out, and the same input gives the same plan, in
// whatever order nodes and partitions are listed. It knows nothing of the core, of clocks or of
// messages, so that it can be run on a thousand imaginary nodes.
//
// # Assign
//
// Assign places the partitions of one keyspace that do not have replicas yet. In the order of what
// matters most:
//
//   - the replicas of a partition are on distinct nodes, where the rules of the keyspace allow them
//     (INVARIANT, never bent: it waits for nodes instead);
//   - over as many zones as there are, and then over as many regions;
//   - each node holds as many replicas of the keyspace as any other, since the load comes by
//     keyspace: a new node does not get every replica of the next keyspace only because it is
//     empty;
//   - what does not divide evenly goes to the nodes that hold the fewest replicas of all keyspaces,
//     so that remainders spread instead of piling up on the node with the lowest id;
//   - each node is the preferred leader of as many partitions as any other, again in the keyspace
//     first and then over all. The first replica of a partition is its preferred leader: the one
//     that campaigns first.
//
// Replicas are chosen one partition after the other, always the least loaded region, zone and node,
// and the preferred leader among them greedily. Then the leaders are improved by moving leadership
// along chains of partitions until no chain makes it more even (this is the usual augmenting path
// for balanced assignment, so the result is as even as the replicas allow).
//
// It is not the objective below: a new keyspace has no load and no bytes yet, so that what evens it
// out is its own numbers. What it decides is legal and spread by the same rules.
//
// # State
//
// A State holds nodes, keyspaces and partitions in arrays, and sums for each node. What is set
// marks what it touches. Step looks at that, at what waits, and at nodes that are outside of their
// bands, and proposes operators. WhyPartition, WhyNode and WhyKeyspace tell in words why things are
// as they are, and CanRemove what stands in the way of removing nodes.
//
// The caller stores operators, carries them out, and tells of every one in flight with each step.
// Nothing else is remembered of them: a new leader of the core begins with a new State. That
// proposes the same, but that it does not know what leaders have yet to measure: the load of what
// has just split, merged or changed its leader, for which an older State keeps what was known.
//
// # The objective
//
// Levels, of which a lower never outweighs a higher (see Level):
//
//  1. the rules of the keyspace, and no replica on a node that is being decommissioned;
//  2. quorum: as many sound voters as the keyspace wants, on nodes that are not lost;
//  3. spread over zones, then over regions;
//  4. the leader: not on a drained node, where the keyspace prefers it, where it is wanted;
//  5. room on disk, load, bytes, number of replicas, number of leaders.
//
// An operator has to better the level that it is for and no higher one may lose; so every sequence
// of operators on a State that does not change comes to an end.
//
// A voter is lost when its node has been silent for the repair delay, or at once if it is damaged.
// What is not a repair waits until every voter of the partition answers. Without a quorum nothing
// is proposed, and that is told. A rule with a number gives way to a repair: a replica in the wrong
// region is better than none. A rule for all replicas never gives way.
//
// # Balance
//
// Each node has a share of load, of bytes (by capacity), of replicas and of leaders, and a band
// around it. While all nodes are within their bands nothing moves. A node that is outside begins a
// move, and moves are judged by the squares of what is beyond half the band; so a move ends well
// within, and none can be undone with a gain. What a move gains has to be a part of what it moves
// (LeastGain). The best move is the one that gains most for what it costs: its bytes and an
// overhead; a transfer of leadership, which costs nothing, comes first.
//
// INVARIANT: a move takes no node farther out of its band at a higher level. Leaders and replicas
// are balanced by one sum of load, in which leading costs more than following, so that they cannot
// pull in two directions. A move for load has to be dense (see survey.worthwhile): without that, a
// day's simulation moved as many bytes for load as it moved back for bytes.
//
// Bytes come after load because a disk with room takes no harm, and room comes before everything.
//
// # Damping
//
//   - What is in flight counts as done at both ends, as far as the descriptor does not show it yet.
//   - The load of a partition is kept when its leader changes, until the new one has measured.
//   - A partition rests after an operator (Pause). Repairs and rules do not wait for it.
//   - Nodes and zones have limits of snapshots in flight. Where the best place is only busy it is
//     waited for: in the wrong zone the replica would have to be moved twice.
//   - A node that has just come back is given nothing until it has answered for a while (Settle).
//
// # Time
//
// A step looks at what is dirty, at the few of which the time alone makes something else (see age),
// and its searches and scans are bounded (Settings). What a step does not get to waits in queues;
// where there is too much, turns are a function of the time. Sums are of integers, and ties are
// broken by ids, so that the order in which a State was told of things does not matter.
//
// The package imports range/keys only.
package planner
