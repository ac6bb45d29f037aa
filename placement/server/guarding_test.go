package server

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/authflag"
	"github.com/tidemarkdb/tidemark/placement/server/coordination"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

func guardingOf(
	t *testing.T, client *coreclient.Client, do clusterpb.GuardingRequest_Do, version uint64,
) *clusterpb.GuardingResponse {
	t.Helper()
	r, err := client.Guarding(t.Context(), &clusterpb.GuardingRequest{Cluster: testCluster, Do: do,
		Version: version})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Nodes and members are in the way until they have said what they have to, to the leader of the
// day.
func TestGuarding(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		ctx := t.Context()
		show := func() *clusterpb.GuardingResponse {
			return guardingOf(t, client, clusterpb.GuardingRequest_SHOW, 0)
		}
		r, err := client.Register(ctx, &clusterpb.RegisterNodeRequest{Server: 1001, Address: "node1:1"})
		if err != nil || r.Guard.On {
			t.Fatal(r, err)
		}
		beat := func(report *clusterpb.GuardReport) *clusterpb.GuardState {
			t.Helper()
			h, err := client.Heartbeat(ctx, &clusterpb.HeartbeatRequest{Cluster: testCluster,
				Node: r.Node, Server: 1001, Guard: report})
			if err != nil {
				t.Fatal(err)
			}
			return h.Guard
		}
		reason := func(all []*clusterpb.UnguardedServer) string {
			for _, x := range all {
				if x.Node == r.Node {
					return x.Reason
				}
			}
			return ""
		}
		for _, x := range []struct {
			report *clusterpb.GuardReport
			want   string
		}{{nil, "upgrade"}, {&clusterpb.GuardReport{Knows: true}, "--insecure"},
			{&clusterpb.GuardReport{Knows: true, Closes: true}, ""}} {
			beat(x.report)
			if got := reason(show().Open); !strings.Contains(got, x.want) ||
				(got == "") != (x.want == "") {
				t.Errorf("%v: %q, want %q", x.report, got, x.want)
			}
		}
		if reason(show().Behind) != "" {
			t.Error("it is behind what was not begun")
		}
		begun := guardingOf(t, client, clusterpb.GuardingRequest_BEGIN, 0)
		if !begun.Guard.On || begun.Guard.Version != 1 || reason(begun.Behind) == "" {
			t.Fatalf("it begins as %v", begun)
		}
		told := beat(&clusterpb.GuardReport{Knows: true, Closes: true})
		if !told.On || told.Version != 1 {
			t.Fatalf("the node is told %v", told)
		}
		follows := &clusterpb.GuardReport{Knows: true, Closes: true, Guard: told}
		beat(follows)
		if got := reason(show().Behind); got != "" {
			t.Errorf("it follows, and is %q", got)
		}
		// Another leader knows nothing of what the one before was told.
		c.elect(c.members[1])
		if reason(show().Behind) == "" {
			t.Error("the next leader believes what it was not told")
		}
		beat(follows)
		if got := reason(show().Behind); got != "" {
			t.Errorf("it follows, and is %q", got)
		}
		late, err := client.Register(ctx, &clusterpb.RegisterNodeRequest{Server: 1002,
			Address: "node2:1", Guard: &clusterpb.GuardReport{Knows: true}})
		if err != nil || !late.Guard.On || late.Guard.Version != 1 {
			t.Fatalf("a new node is told %v, %v", late.GetGuard(), err)
		}
		isAlive := func() bool {
			for _, m := range c.members {
				if kv, err := m.server.config.Store.Stale().Get(meta.AliveKey(keys.NodeID(late.Node))); err == nil &&
					kv != nil {
					return true
				}
			}
			return false
		}
		if isAlive() {
			t.Error("a new node is given replicas before it says that it knows of users")
		}
		if _, err := client.Heartbeat(ctx, &clusterpb.HeartbeatRequest{Cluster: testCluster,
			Node: late.Node, Server: 1002, Guard: follows}); err != nil || !isAlive() {
			t.Errorf("its first heartbeat: %v", err)
		}
		// What has begun anew ends by its own version alone.
		again := guardingOf(t, client, clusterpb.GuardingRequest_BEGIN, 0)
		if again.Guard.Version != 2 || reason(again.Behind) == "" {
			t.Fatalf("it begins again as %v", again)
		}
		if r := guardingOf(t, client, clusterpb.GuardingRequest_END, 1); !r.Guard.On {
			t.Fatal("it ends by the version before")
		}
		// It ends in two steps, and may be begun between them.
		for i, x := range []struct {
			do             clusterpb.GuardingRequest_Do
			version, after uint64
			on, ending     bool
		}{
			{clusterpb.GuardingRequest_END, 2, 3, true, true},
			{clusterpb.GuardingRequest_END, 2, 3, true, true},
			{clusterpb.GuardingRequest_BEGIN, 0, 4, true, false},
			{clusterpb.GuardingRequest_END, 3, 4, true, false},
			{clusterpb.GuardingRequest_END, 4, 5, true, true},
			{clusterpb.GuardingRequest_END, 5, 6, false, false},
			{clusterpb.GuardingRequest_END, 6, 6, false, false},
		} {
			g := guardingOf(t, client, x.do, x.version).Guard
			if g.Version != x.after || g.On != x.on || g.Ending != x.ending {
				t.Fatalf("step %d: %v", i, g)
			}
		}
		if _, err := client.Guarding(ctx, &clusterpb.GuardingRequest{Cluster: testCluster,
			Do: 9}); status.Code(errors.Unwrap(err)) != codes.InvalidArgument &&
			status.Code(err) != codes.InvalidArgument {
			t.Errorf("it does what it does not know: %v", err)
		}
	})
}

// A caller that does not prove to be a server is in the way, with the reason.
func TestGuardingUnproved(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		c.reconfigure(func(config *Config) {
			config.Proves = func(context.Context) error {
				return status.Error(codes.PermissionDenied, "it has no certificate")
			}
		})
		r, err := client.Register(t.Context(), &clusterpb.RegisterNodeRequest{Server: 1001,
			Address: "node1:1"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Heartbeat(t.Context(), &clusterpb.HeartbeatRequest{Cluster: testCluster,
			Node: r.Node, Server: 1001, Guard: &clusterpb.GuardReport{Knows: true, Closes: true},
		}); err != nil {
			t.Fatal(err)
		}
		open := guardingOf(t, client, clusterpb.GuardingRequest_SHOW, 0).Open
		if !isInTheWay(open, r.Node, "it has no certificate") {
			t.Errorf("in the way are %v", open)
		}
	})
}

// A mark that the record cannot have come to, as after the core has gone on from one member, raises
// it; a node that knows no users is refused while servers have to follow.
func TestGuardingAfterRecovery(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		ctx := t.Context()
		r, err := client.Register(ctx, &clusterpb.RegisterNodeRequest{Server: 1001, Address: "node1:1"})
		if err != nil {
			t.Fatal(err)
		}
		beat := func(report *clusterpb.GuardReport) (*clusterpb.GuardState, error) {
			h, err := client.Heartbeat(ctx, &clusterpb.HeartbeatRequest{Cluster: testCluster,
				Node: r.Node, Server: 1001, Guard: report})
			return h.GetGuard(), err
		}
		mark := func(version uint64, on bool) *clusterpb.GuardReport {
			return &clusterpb.GuardReport{Knows: true, Guard: &clusterpb.GuardState{Version: version,
				On: on}}
		}
		for _, x := range []struct {
			report  *clusterpb.GuardReport
			version uint64
			on      bool
		}{{mark(0, false), 0, false}, {mark(3, true), 4, true}, {mark(3, true), 4, true},
			{mark(4, true), 4, true}, {mark(4, false), 5, true}, {mark(9, false), 10, true}} {
			got, err := beat(x.report)
			if err != nil || got.Version != x.version || got.On != x.on {
				t.Errorf("%v: the record is %v, %v; want %d, %v", x.report, got, err, x.version, x.on)
			}
		}
		if _, err := beat(nil); err == nil || !strings.Contains(err.Error(), "upgrade it") {
			t.Errorf("a node that knows no users: %v", err)
		}
		leader := c.members[0].server
		ops, err := authflag.RecoveredRecords(leader.config.Store)
		if err != nil {
			t.Fatal(err)
		}
		ids, _, err := meta.LoadIDs(leader.config.Store.Stale())
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := leader.meta.Commit(ctx, nil, ops...); err != nil || !ok {
			t.Fatal(ok, err)
		}
		later, _, err := meta.LoadIDs(leader.config.Store.Stale())
		if err != nil || later.Keyspace < ids.Keyspace+1000 || later.Partition < ids.Partition+1000 ||
			later.Node <= ids.Node || later.Operator <= ids.Operator {
			t.Errorf("ids go on from %v to %v, %v", ids, later, err)
		}
		if got, err := beat(mark(10, true)); err != nil || !got.On || got.Version <= 1000 {
			t.Errorf("the record is %v, %v", got, err)
		}
		// Nothing is permitted before it is said whether authentication is to be enabled.
		state, err := authority.New(nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		of, err := coordination.Recovered(heldBy{leader.config.Store, state}, leader.config.Store)
		if err != nil {
			t.Fatal(err)
		}
		if empty := of.Authority(); !empty.Enabled() || of.Authority() != empty {
			t.Error("a store that may have lost users has all clients do everything")
		}
		now := guardingOf(t, client, clusterpb.GuardingRequest_BEGIN, 0).Guard
		if !of.Authority().Enabled() {
			t.Error("it has all clients do everything while authentication is being enabled")
		}
		now = guardingOf(t, client, clusterpb.GuardingRequest_END, now.Version).Guard
		if !of.Authority().Enabled() {
			t.Error("it has all clients do everything before authentication is seen to be disabled")
		}
		guardingOf(t, client, clusterpb.GuardingRequest_END, now.Version)
		if of.Authority() != state {
			t.Error("it does not go by the store after authentication was disabled")
		}
	})
}

// heldBy is a store that has these users and roles.
type heldBy struct {
	*store.Store
	state *authority.State
}

func (h heldBy) Authority() *authority.State { return h.state }
