// Package assign places the partitions of one keyspace that have no replicas yet. In the order of
// what matters most:
//
//   - the replicas of a partition are on distinct nodes, where the rules of the keyspace allow them
//     (INVARIANT, never bent: the plan waits for nodes instead);
//   - they are spread over as many zones as there are, and then over as many regions;
//   - each node holds as many replicas of the keyspace as any other, since the load comes by
//     keyspace: a new node does not get every replica of the next keyspace only because it is
//     empty;
//   - what does not divide evenly goes to the nodes that hold the fewest replicas of all keyspaces,
//     so that remainders spread instead of piling up on the node with the lowest id;
//   - each node is the preferred leader of as many partitions as any other, again in the keyspace
//     first and then over all. The first replica of a partition is its preferred leader: the one
//     that campaigns first.
//
// Replicas are chosen for one partition after the other, always in the least loaded region, zone
// and node, and the preferred leader among them greedily. Then the leaders are improved by moving
// leadership along chains of partitions until no chain makes it more even. This is the usual
// augmenting path for balanced assignment, so the result is as even as the replicas allow.
//
// The objective of the other rooms plays no part: a new keyspace has no load and no bytes yet, so
// that its own numbers are all there is to make even. The plan is legal and spread by the same
// rules.
package assign
