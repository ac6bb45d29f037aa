package command

import "github.com/tidemarkdb/tidemark/rpc/kvpb"

// Commands that a node answers, of several of its partitions or of none.

// MultiGet reads keys of several partitions at one timestamp. Each partition that refuses counts as
// a batch get.
var MultiGet = register((*kvpb.Request_MultiGet)(nil), Command{
	Name:        "multi_get",
	Way:         ByNode,
	Body:        func(q *kvpb.Request) bool { return q.GetMultiGet() != nil },
	Permissions: multiGetPermissions,
	Named:       func(q *kvpb.Request) int64 { return wall(q.GetMultiGet().GetAt()) },
	Foreground:  always,
})

// MergeScan reads a page of several partitions, or finds a moment for reading them. Each partition
// that refuses counts as a scan.
var MergeScan = register((*kvpb.Request_MergeScan)(nil), Command{
	Name:        "merge_scan",
	Way:         ByNode,
	Body:        func(q *kvpb.Request) bool { return q.GetMergeScan() != nil },
	Permissions: mergeScanPermissions,
	Named:       func(q *kvpb.Request) int64 { return wall(q.GetMergeScan().GetAt()) },
	Foreground:  always,
})

// Now tells the time of the node. It needs no contents.
var Now = register((*kvpb.Request_Now)(nil), Command{
	Name:        "now",
	Way:         ByNode,
	Body:        always,
	Open:        true,
	Permissions: noPermissions,
})
