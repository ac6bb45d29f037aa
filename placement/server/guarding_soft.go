package server

import (
	"sync"

	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// guards is what servers have said of themselves to this member, as the leader of one term.
type guards struct {
	mu struct {
		sync.Mutex
		term    uint64
		nodes   map[keys.NodeID]*guardReport
		members map[uint64]*guardReport // by the ids of their directories
	}
}

// guardReport is what one server has said last. It is not changed.
type guardReport struct {
	*clusterpb.GuardReport
	// unproved is why it has not proved to be a server; nil if it has.
	unproved error
}

func (g *guards) init() { g.forgetLocked(0) }

func (g *guards) forgetLocked(term uint64) {
	g.mu.term = term
	g.mu.nodes, g.mu.members = map[keys.NodeID]*guardReport{}, map[uint64]*guardReport{}
}

// report notes what a server says; put is called under the lock.
func (g *guards) report(term uint64, put func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.term != term {
		g.forgetLocked(term)
	}
	put()
}

func (g *guards) node(term uint64, id keys.NodeID, r *clusterpb.GuardReport, unproved error) {
	g.report(term, func() { g.mu.nodes[id] = &guardReport{r, unproved} })
}

func (g *guards) member(term, server uint64, r *clusterpb.GuardReport, unproved error) {
	g.report(term, func() { g.mu.members[server] = &guardReport{r, unproved} })
}

func (g *guards) ofNode(id keys.NodeID) *guardReport {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.nodes[id]
}

func (g *guards) ofMember(server uint64) *guardReport {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.members[server]
}

// lacks says, in words, why strangers could pass for the server or come in by it, and why it does
// not follow users and roles under a version. nil is a server that has not been heard of.
func (r *guardReport) lacks(guard *clusterpb.GuardState) (open, behind string) {
	switch {
	case r == nil:
		silent := "it does not answer: start it, or let it go (`tidemark node decommission`, " +
			"`tidemark core remove`)"
		return silent, silent
	case !r.GuardReport.GetKnows():
		old := "it runs a version that knows no users of keyspaces: upgrade it"
		return old, old
	case !r.Closes:
		open = "it takes whoever says so for a server (--insecure): start it with TLS that " +
			"identifies servers (--tls-ca or --tls-peer-ca), or with --secret-file, the same on " +
			"all servers"
	case r.unproved != nil:
		open = "it cannot prove that it is a server: " + status.Convert(r.unproved).Message()
	}
	if g := r.Guard; guard.On && (!g.GetOn() || g.GetVersion() < guard.Version) {
		behind = "it does not follow users and roles yet"
	}
	return open, behind
}
