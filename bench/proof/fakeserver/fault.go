package fakeserver

import "github.com/tidemarkdb/tidemark/rpc/kvpb"

// Fault is what happens to a request. The zero Fault does nothing.
type Fault struct {
	// Code refuses the request without executing it.
	Code kvpb.ErrorCode
	// NotExecuted, together with Code, says that no attempt of the request has taken effect, and
	// none will.
	NotExecuted bool
	// BreakBefore and BreakAfter reset the connections of the node, before or after the request is
	// executed.
	BreakBefore, BreakAfter bool
	// Unknown executes the request, and answers OUTCOME_UNKNOWN.
	Unknown bool
	// Swallow never answers the request.
	Swallow bool
}

// Script decides what happens to a request for one partition before it is served. It is called with
// the cluster's lock held.
type Script func(n *Node, r *kvpb.Request) Fault
