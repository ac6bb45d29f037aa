// Package planner decides where replicas go. It is pure and deterministic: what it is given goes
// in, a plan and its reasons come out, and the same input gives the same plan, in whatever order
// nodes and partitions are listed. It knows nothing of the core, of clocks or of messages, so that
// it can be run on a thousand imaginary nodes.
//
// # Assign
//
// Assign places the partitions of one keyspace that do not have replicas yet. In the order of what
// matters most:
//
//   - the replicas of a partition are on distinct nodes (INVARIANT, never bent: it waits for nodes
//     instead);
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
// The package imports range/keys only.
package planner
