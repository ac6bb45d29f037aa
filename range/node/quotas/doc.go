// Package quotas has a data node keep to the quotas of keyspaces: of requests and of bytes a
// second, and of stored bytes.
//
// # Data flow
//
//	Update        the node's table says which keyspaces have which quotas
//	Take          the core says with each heartbeat which part of a quota is the node's, and how many
//	              bytes the keyspace holds
//	Filter        requests that come: they are refused if a quota a second is reached
//	Full, Refuse  writes that have been evaluated, and would add data
//	Demands       what is asked of the node, for the next heartbeat
//
// # Quotas a second
//
// The core gives each node a part of a quota, by the demands that nodes report (package
// placement/server/quotas). Until the core has said so, a node takes the quota divided by the
// number of nodes. The part is kept as a fraction, so that a changed quota counts as soon as the
// node's table has it.
//
// A part is a bucket that fills by what the node may use in a second, and holds that of one second.
// A request is refused while there is not one whole request, or byte, in its bucket. Otherwise it
// takes what it costs, which may leave the bucket in debt.
//
// What counts: requests of clients for keys and values, which are those that count as load of the
// foreground, each as one, however many keys they have. Their bytes are those of the request and of
// its answer, as they are encoded: keys and values, and some tens of bytes around them. The bytes
// of the answer are taken when it is known. A request to several partitions counts for the keyspace
// of the first one. What does not count: ends, heartbeats, refreshes and resolutions of
// transactions, for which others wait; loads of whole blocks; requests of servers in the
// background; requests by which a client looks for a leader, or has a read admitted for another
// replica.
//
// A refused request is told when to come again. These times lie as far apart as the quota lets
// requests in, so that the callers do not all come at the same time.
//
// The demand that a node reports is what it lets in, and how many callers wait: a refused request
// counts by the time after which it is to come again, and as a whole one if that is the longest. So
// a node for which many wait gets a larger part, until the parts are in proportion to those who wait.
// If refused requests counted as others, a node with a small part, whose callers come again rarely,
// would keep it. Nobody knows how large the answer to a refused request would have been: it counts
// as a usual answer.
//
// # Quota of stored bytes
//
// The check is by sizes that have gone from the leaders of partitions to the core and back, with
// heartbeats. So a keyspace may come to hold what is written in some seconds more than its quota.
// The check comes after a write was evaluated, as that for free disk space: a retry of a write that
// an earlier attempt has carried out gets the answer of that attempt.
//
// # Locks
//
// Quotas.mu is held while the keyspaces change, and the lock of each keyspace within it. Requests
// take only the lock of their keyspace. A node without quotas pays one atomic load for each
// message.
package quotas
