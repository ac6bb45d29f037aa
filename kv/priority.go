package kv

import (
	"context"

	"github.com/tidemarkdb/tidemark/range/route/nodes"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Priority influences in which order requests begin while a node is overloaded. Every user has the
// same share of a node in each keyspace. A priority has an effect only among the requests of one
// user to one keyspace, and takes nothing from other users. While nodes are not overloaded,
// priorities do not matter.
type Priority int

const (
	// PriorityNormal is the priority of calls without WithPriority.
	PriorityNormal Priority = iota
	// PriorityHigh is for calls that a person waits for. They begin before the other calls of their
	// user and keyspace, and are not held back when a node refuses requests.
	PriorityHigh
	// PriorityLow is for work that may take any time, such as a report or a clean-up. Such a request
	// begins while no request of any user waits. Under lasting load such requests begin slowly: allow
	// enough time.
	PriorityLow
)

// WithPriority returns a context that gives its calls a priority. A transaction has the priority of
// the contexts of its calls. The requests that end transactions never wait, whatever their
// priority.
func WithPriority(ctx context.Context, p Priority) context.Context {
	switch p {
	case PriorityHigh:
		return nodes.WithPriority(ctx, kvpb.Priority_PRIORITY_HIGH)
	case PriorityLow:
		return nodes.WithPriority(ctx, kvpb.Priority_PRIORITY_LOW)
	}
	return nodes.WithPriority(ctx, kvpb.Priority_PRIORITY_NORMAL)
}
