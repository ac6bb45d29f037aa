package command

import (
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Commands that are answered outside of this package: by a node, of several of its partitions or of
// none, or from the memory of a leader.

// MultiGet reads keys of several partitions at one timestamp. Each partition that refuses counts as
// a batch get.
var MultiGet = register((*kvpb.Request_MultiGet)(nil), Command{
	Name:        "multi_get",
	Dispatch:    ByNode,
	Body:        func(q *kvpb.Request) bool { return q.GetMultiGet() != nil },
	Permissions: multiGetNeeds,
	Named:       func(q *kvpb.Request) int64 { return wall(q.GetMultiGet().GetAt()) },
	Foreground:  always,
})

// MergeScan reads a page of several partitions, or finds a moment for reading them. Each partition
// that refuses counts as a scan.
var MergeScan = register((*kvpb.Request_MergeScan)(nil), Command{
	Name:        "merge_scan",
	Dispatch:    ByNode,
	Body:        func(q *kvpb.Request) bool { return q.GetMergeScan() != nil },
	Permissions: mergeScanNeeds,
	Named:       func(q *kvpb.Request) int64 { return wall(q.GetMergeScan().GetAt()) },
	Foreground:  always,
})

// Now tells the time of the node. It needs no contents.
var Now = register((*kvpb.Request_Now)(nil), Command{
	Name:        "now",
	Dispatch:    ByNode,
	Body:        always,
	Open:        true,
	Permissions: request.NoNeeds,
})

func multiGetNeeds(at request.Place, q *kvpb.Request,
	needs []access.Permission) []access.Permission {
	for _, p := range q.GetMultiGet().GetPartitions() {
		needs = request.NeedKeys(needs, at.Finder.KeyspaceOf(p.GetPartition()), access.Read,
			p.GetKeys())
	}
	return needs
}

func mergeScanNeeds(at request.Place, q *kvpb.Request,
	needs []access.Permission) []access.Permission {
	c := q.GetMergeScan()
	last := uint64(0)
	for i, p := range c.GetPartitions() {
		// All are of one keyspace, or it is refused.
		keyspace := at.Finder.KeyspaceOf(p.GetPartition())
		if i == 0 || keyspace != last {
			needs = request.NeedSpan(needs, keyspace, access.Read, c.GetStart(), c.GetEnd())
		}
		last = keyspace
	}
	return needs
}

// InspectTransactions shows the transactions that have locks in a partition. What it says is for
// people, so nothing is proved.
var InspectTransactions = register((*kvpb.Request_InspectTransactions)(nil), Command{
	Name:     "inspect_transactions",
	Dispatch: InMemory,
	Body:     func(q *kvpb.Request) bool { return q.GetInspectTransactions() != nil },
	// It tells keys, ids and addresses of all clients.
	Permissions: func(at request.Place, _ *kvpb.Request,
		needs []access.Permission) []access.Permission {
		return request.NeedAll(needs, at.Keyspace, access.Admin)
	},
})
