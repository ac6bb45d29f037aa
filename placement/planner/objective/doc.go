// Package objective judges a State: what must hold, and how good a placement is. It changes
// nothing.
//
// # Levels
//
// The objective has levels, of which a lower one never outweighs a higher one (planner.Level):
//
//  1. the rules of the keyspace, and no replica on a node that is being decommissioned;
//  2. quorum: as many sound voters as the keyspace wants, on nodes that are not lost;
//  3. spread over zones, then over regions;
//  4. the leader: not on a drained node, where the keyspace prefers it, where it is wanted;
//  5. growth: partitions that split, merge, or are led elsewhere for their growth;
//  6. room on disk, load, bytes, number of replicas, number of leaders.
//
// A voter is lost when its node has been silent for the repair delay, or at once if it is damaged.
// What is not a repair waits until every voter of the partition answers. Without a quorum nothing
// is proposed, and the partition is reported. A rule with a number gives way to a repair: a replica
// in the wrong region is better than none. A rule for all replicas never gives way.
//
// # Shares and bands
//
// Each node has a share of load, of bytes (by capacity), of replicas and of leaders, and a band
// around it. While all nodes are within their bands nothing moves. Moves are judged by the squares
// of what is beyond half the band; so a move ends well within, and none can be undone with a gain.
// Leaders and replicas are balanced by one sum of load, in which leading costs more than following,
// so that they cannot pull in two directions. Bytes come after load because a disk with room takes
// no harm, and room comes before both.
package objective
