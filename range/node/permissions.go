package node

import (
	"slices"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// noEnd is the end of a span that reaches to the end of the keyspace.
var noEnd = []byte{}

// RequiresAuth reports whether a request needs any right; it is rpc.BatchServerConfig.RequiresAuth.
//
// INVARIANT: a request that needs no right does nothing, and tells nothing about data.
func (n *Node) RequiresAuth(q *kvpb.Request) (requires, lasting bool, refusal *kvpb.Error) {
	c := command.Of(q)
	if c.Dispatch == command.NotKnown {
		return false, false, nil // the request is refused
	}
	return !c.Open, c.Lasting, nil
}

// Permissions appends the permissions that a request needs; it is
// rpc.BatchServerConfig.Permissions. The node says which keyspace a partition has; the client is
// not asked.
//
// INVARIANT: a request that names a partition of which the node does not know the keyspace is
// refused: by the time it is served the node might know the partition. A partition never changes
// its keyspace, and no id is used twice.
func (n *Node) Permissions(q *kvpb.Request, needs []access.Permission) (
	_ []access.Permission, refusal *kvpb.Error,
) {
	c, at := command.Of(q), request.Place{Finder: n}
	if c.Dispatch != command.ByNode {
		if at.Keyspace = n.KeyspaceOf(q.Partition); at.Keyspace == 0 {
			return needs, n.withoutKeyspace(q.Partition)
		}
	}
	if c.Dispatch == command.InQueue && q.Term == 0 {
		// No leader has that term, so the request is refused, with the leader: clients find leaders
		// that way (route.probe), even if they may only read. The refusal has the bounds of
		// partitions.
		return append(needs, access.Permission{Keyspace: at.Keyspace, End: noEnd, Right: access.Any}), nil
	}
	before := len(needs)
	needs = c.Permissions(at, q, needs)
	if c.Dispatch == command.ByNode && slices.ContainsFunc(needs[before:],
		func(x access.Permission) bool { return x.Keyspace == 0 }) {
		return needs, n.withoutKeyspace(0)
	}
	return needs, nil
}

// KeyspaceOf implements request.Finder.
func (n *Node) KeyspaceOf(partition uint64) uint64 {
	id := keys.PartitionID(partition)
	if h := n.replicas.Get(id); h != nil {
		return uint64(h.Listed.Load().GetKeyspace())
	}
	if p := n.tables.Load().Partition(id); p != nil {
		return uint64(p.Keyspace)
	}
	return uint64(n.lifecycle.Merged.SubsumedBy(id).GetKeyspace())
}

// withoutKeyspace refuses a request to a partition whose keyspace is not known, with the answer
// that it would get if it were served. partition is 0 for a request to several partitions.
func (n *Node) withoutKeyspace(partition uint64) *kvpb.Error {
	if partition != 0 {
		if _, refusal := n.serving(keys.PartitionID(partition)); refusal != nil {
			return refusal
		}
	}
	return &kvpb.Error{Code: kvpb.ErrorCode_PARTITION_NOT_FOUND, Message: "node " +
		n.config.ID.String() + " does not know the keyspace of a partition that the request names"}
}
