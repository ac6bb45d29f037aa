package authflag

import (
	"context"
	"log/slog"
	"sync"

	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Config is what a Flag is made of. All fields must be set.
type Config struct {
	Meta  *meta.Records
	Store *store.Store
	// Proves says why a caller has not proved to be a server of the cluster; nil if it has.
	Proves func(context.Context) error
	// Notify has a node send a heartbeat soon.
	Notify func(keys.NodeID)
	Logger *slog.Logger
}

// Flag is the record of whether servers must follow users and roles, and what servers have reported
// about it to this member, as the leader of one term.
type Flag struct {
	config Config
	mu     struct {
		sync.Mutex
		term    uint64
		nodes   map[keys.NodeID]*report
		members map[uint64]*report // by the ids of their directories
	}
}

// report is what one server has said last. It is not changed.
type report struct {
	*clusterpb.GuardReport
	// unproved is why it has not proved to be a server; nil if it has.
	unproved error
}

// New makes the flag of a member that has heard of no server.
func New(config Config) *Flag {
	f := &Flag{config: config}
	f.forgetLocked(0)
	return f
}

func (f *Flag) forgetLocked(term uint64) {
	f.mu.term = term
	f.mu.nodes, f.mu.members = map[keys.NodeID]*report{}, map[uint64]*report{}
}

// note notes what a server says; put is called under the lock.
func (f *Flag) note(term uint64, put func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.term != term {
		f.forgetLocked(term)
	}
	put()
}

// NodeSays notes what a node says to this member, which leads for a term. ctx is that of the call,
// by which the node proves to be a server.
func (f *Flag) NodeSays(
	ctx context.Context, term uint64, id keys.NodeID, r *clusterpb.GuardReport,
) {
	unproved := f.config.Proves(ctx)
	f.note(term, func() { f.mu.nodes[id] = &report{r, unproved} })
}

// MemberSays is NodeSays for the member with a data directory.
func (f *Flag) MemberSays(
	ctx context.Context, term, server uint64, r *clusterpb.GuardReport,
) {
	unproved := f.config.Proves(ctx)
	f.note(term, func() { f.mu.members[server] = &report{r, unproved} })
}

// of is what a node and a member have said last; nil: nothing.
func (f *Flag) of(node keys.NodeID, server uint64) (ofNode, ofMember *report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.nodes[node], f.mu.members[server]
}

// lacks says, in words, why strangers could pass for the server or come in by it, and why it does
// not follow users and roles under a version. nil is a server that has not been heard of.
func (r *report) lacks(guard *clusterpb.GuardState) (open, behind string) {
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
