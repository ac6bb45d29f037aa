package fakeserver

import "github.com/tidemarkdb/tidemark/rpc/kvpb"

// Fault is what a script lets happen to a request. The zero Fault is nothing.
type Fault struct {
	// Code refuses it, without running it.
	Code kvpb.ErrorCode
	// NotExecuted says with the Code that no attempt has taken effect, and none will.
	NotExecuted bool
	// BreakBefore and BreakAfter reset the connections of the node, before or after it ran.
	BreakBefore, BreakAfter bool
	// Unknown runs it and answers OUTCOME_UNKNOWN.
	Unknown bool
	// Swallow never answers it.
	Swallow bool
}

// Script decides what happens to a request for one partition before it is served. It is called with
// the cluster's lock held.
type Script func(n *Node, r *kvpb.Request) Fault
