// Package quotas divides the quotas of keyspaces among the data nodes. It runs on the leader of the
// core, which also knows how much of each quota is used.
//
// Nodes enforce quotas (package range/node/quotas). With each heartbeat a node reports the demand
// of clients for each keyspace with a quota of requests or of bytes a second. The answer has the
// node's part of each quota, and the number of bytes of each keyspace with a quota of bytes.
//
// # Parts
//
// With n nodes, the part of node i is
//
//	(demand_i + floor) / (sum of all demands + n * floor),   floor = quota / (20 n)
//
// of the quota. The parts of all nodes add up to the whole quota. The floor gives a node without
// demand a part with which it begins to serve at once when requests come. A demand that is older
// than DemandTime does not count.
//
// A node learns its part with its next heartbeat. So for the interval of a heartbeat after demand
// has moved from one node to another, the sum of the parts in use may be more than the quota, or
// less.
//
// # A new leader
//
// Nothing is stored. A new leader knows no demand yet, and would give too much to the first nodes
// that it hears. So for the first Warmup it gives nodes no parts, and the nodes keep the parts that
// they have. In the same way it gives nodes no sizes until all living nodes have reported their
// sizes.
//
// The lock of Quotas is a leaf: no other lock is taken under it.
package quotas
