package server

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

func guardingOf(
	t *testing.T, client *Client, do clusterpb.GuardingRequest_Do, version uint64,
) *clusterpb.GuardingResponse {
	t.Helper()
	r, err := client.Guarding(t.Context(), &clusterpb.GuardingRequest{Cluster: testCluster, Do: do,
		Version: version})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Nodes and members are in the way until they have said what they have to, to the leader of the day.
func TestGuarding(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *Client) {
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
			if got := reason(show().Open); !strings.Contains(got, x.want) || (got == "") != (x.want == "") {
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
			Address: "node2:1"})
		if err != nil || !late.Guard.On || late.Guard.Version != 1 {
			t.Fatalf("a new node is told %v, %v", late.GetGuard(), err)
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
	inBubble(t, func(t *testing.T, c *core, client *Client) {
		leader := c.members[0].server
		leader.config.Proves = func(context.Context) error {
			return status.Error(codes.PermissionDenied, "it has no certificate")
		}
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
		for _, x := range guardingOf(t, client, clusterpb.GuardingRequest_SHOW, 0).Open {
			if x.Node == r.Node && !strings.Contains(x.Reason, "it has no certificate") {
				t.Errorf("its reason is %q", x.Reason)
			}
		}
	})
}
