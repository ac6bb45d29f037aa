package command

import (
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Commands that are answered outside of this package: by a node, from several of its partitions or
// from none, or from the memory of a leader.

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

// MergeScan reads a page of several partitions, or chooses a timestamp for reading them. Each
// partition that refuses counts as a scan.
var MergeScan = register((*kvpb.Request_MergeScan)(nil), Command{
	Name:        "merge_scan",
	Dispatch:    ByNode,
	Body:        func(q *kvpb.Request) bool { return q.GetMergeScan() != nil },
	Permissions: mergeScanNeeds,
	Named:       func(q *kvpb.Request) int64 { return wall(q.GetMergeScan().GetAt()) },
	Foreground:  always,
})

// Now returns the time of the node. It needs no contents.
var Now = register((*kvpb.Request_Now)(nil), Command{
	Name:        "now",
	Dispatch:    ByNode,
	Body:        always,
	Open:        true,
	Permissions: request.NoNeeds,
})

// SlowRequests returns the requests that a node remembers as slow. It reveals keys of all clients,
// so it needs the right to administer each keyspace that it names.
var SlowRequests = register((*kvpb.Request_SlowRequests)(nil), Command{
	Name:     "slow_requests",
	Dispatch: ByNode,
	Body:     func(q *kvpb.Request) bool { return q.GetSlowRequests() != nil },
	Permissions: func(_ request.Place, q *kvpb.Request,
		needs []access.Permission) []access.Permission {
		for _, id := range q.GetSlowRequests().GetKeyspaces() {
			needs = request.NeedAll(needs, id, access.Admin)
		}
		return needs
	},
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
		// All keys are of one keyspace, or the request is refused.
		keyspace := at.Finder.KeyspaceOf(p.GetPartition())
		if i == 0 || keyspace != last {
			needs = request.NeedSpan(needs, keyspace, access.Read, c.GetStart(), c.GetEnd())
		}
		last = keyspace
	}
	return needs
}

// InspectTransactions returns the transactions that have locks in a partition. The answer is for
// people, so leadership is not proved.
var InspectTransactions = register((*kvpb.Request_InspectTransactions)(nil), Command{
	Name:     "inspect_transactions",
	Dispatch: InMemory,
	Body:     func(q *kvpb.Request) bool { return q.GetInspectTransactions() != nil },
	// The answer reveals keys, ids and addresses of all clients.
	Permissions: func(at request.Place, _ *kvpb.Request,
		needs []access.Permission) []access.Permission {
		return request.NeedAll(needs, at.Keyspace, access.Admin)
	},
})
