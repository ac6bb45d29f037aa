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

// Config has the dependencies of a Flag. All fields must be set.
type Config struct {
	Meta  *meta.Records
	Store *store.Store
	// Proves returns an error if a caller has not proved to be a server of the cluster.
	Proves func(context.Context) error
	// Notify asks a node to send a heartbeat soon.
	Notify func(keys.NodeID)
	Logger *slog.Logger
}

// Flag has the record that says whether servers must follow users and roles, and the servers'
// reports about it to this member as the leader of one term.
type Flag struct {
	config Config
	mu     struct {
		sync.Mutex
		term    uint64
		nodes   map[keys.NodeID]*report
		members map[uint64]*report // by the ids of the members' directories
	}
}

// report is the last report of one server. It is immutable.
type report struct {
	*clusterpb.GuardReport
	// unproved is the error if the server has not proved to be a server of the cluster.
	unproved error
}

// New makes the Flag of a member that has no reports yet.
func New(config Config) *Flag {
	f := &Flag{config: config}
	f.forgetLocked(0)
	return f
}

func (f *Flag) forgetLocked(term uint64) {
	f.mu.term = term
	f.mu.nodes, f.mu.members = map[keys.NodeID]*report{}, map[uint64]*report{}
}

// note stores a report. put is called with the lock held.
func (f *Flag) note(term uint64, put func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.term != term {
		f.forgetLocked(term)
	}
	put()
}

// NodeSays stores the report of a node to this member, which leads for a term. ctx is the context
// of the call, and identifies the caller.
func (f *Flag) NodeSays(
	ctx context.Context, term uint64, id keys.NodeID, r *clusterpb.GuardReport,
) {
	unproved := f.config.Proves(ctx)
	f.note(term, func() { f.mu.nodes[id] = &report{r, unproved} })
}

// MemberSays stores the report of the member of the core with a data directory, as NodeSays does
// for nodes.
func (f *Flag) MemberSays(
	ctx context.Context, term, server uint64, r *clusterpb.GuardReport,
) {
	unproved := f.config.Proves(ctx)
	f.note(term, func() { f.mu.members[server] = &report{r, unproved} })
}

// of returns the last reports of a node and of a member. They are nil if there are none.
func (f *Flag) of(node keys.NodeID, server uint64) (ofNode, ofMember *report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.nodes[node], f.mu.members[server]
}

// lacks returns what is wrong with a server, in words. open says why strangers could impersonate
// the server or get in through it. behind says why the server does not follow users and roles under
// a version. r is nil if the server has not reported.
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
