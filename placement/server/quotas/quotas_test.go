package quotas

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// core is Quotas with a clock that a test sets.
type core struct {
	*Quotas
	now time.Duration
}

func newCore(nodes int, keyspaces ...*clusterpb.Keyspace) *core {
	c := &core{now: time.Hour}
	c.Quotas = New(func() int64 { return int64(c.now) })
	c.follow(nodes, keyspaces...)
	return c
}

// follow tells the core's table.
func (c *core) follow(nodes int, keyspaces ...*clusterpb.Keyspace) {
	u := &clusterpb.TableUpdate{Keyspaces: keyspaces, Complete: true}
	for i := range nodes {
		u.Nodes = append(u.Nodes, &clusterpb.Node{Id: uint64(i + 1)})
	}
	c.Follow(u)
}

func orders(requests, bytes uint64) *clusterpb.Keyspace {
	return &clusterpb.Keyspace{Id: 7, Name: "orders", QuotaRequestsPerSecond: requests,
		QuotaBytesPerSecond: bytes}
}

// beat is a heartbeat of a node, with what is asked of it for the keyspace 7.
func (c *core) beat(node keys.NodeID, requests, bytes uint64) *clusterpb.KeyspaceShare {
	var demands []*clusterpb.KeyspaceDemand
	if requests+bytes > 0 {
		demands = append(demands, &clusterpb.KeyspaceDemand{Keyspace: 7, RequestsPerSecond: requests,
			BytesPerSecond: bytes})
	}
	for _, s := range c.Heartbeat(node, demands) {
		if s.Keyspace == 7 {
			return s
		}
	}
	return nil
}

// Whatever the demands are, and whatever came before: the parts of all nodes add up to the quota,
// each node has a part, and a node that has all of the demand has most of the quota after two
// heartbeats.
func TestPartsMakeTheQuota(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, 20).Draw(t, "nodes")
		quota := rapid.Uint64Range(1, 1<<40).Draw(t, "quota")
		c := newCore(nodes, orders(quota, quota))
		c.now += Warmup
		amount := rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(0, 3*quota),
			rapid.Uint64Range(0, 1<<62))
		for range rapid.IntRange(0, 30).Draw(t, "before") {
			c.beat(keys.NodeID(rapid.IntRange(1, nodes).Draw(t, "node")), amount.Draw(t, "requests"),
				amount.Draw(t, "bytes"))
			c.now += time.Duration(rapid.IntRange(0, 5000).Draw(t, "millis")) * time.Millisecond
		}
		requests, bytes := make([]uint64, nodes), make([]uint64, nodes)
		for i := range nodes {
			requests[i], bytes[i] = amount.Draw(t, "requests"), amount.Draw(t, "bytes")
		}
		var sumRequests, sumBytes uint32
		for range 2 {
			c.now += 3 * time.Second
			sumRequests, sumBytes = 0, 0
			for i := range nodes {
				s := c.beat(keys.NodeID(i+1), requests[i], bytes[i])
				if s == nil || s.RequestsMillionths == nil || s.BytesMillionths == nil {
					t.Fatalf("node %d is told %v", i+1, s)
				}
				sumRequests, sumBytes = sumRequests+*s.RequestsMillionths, sumBytes+*s.BytesMillionths
			}
		}
		for what, sum := range map[string]uint32{"requests": sumRequests, "bytes": sumBytes} {
			if sum > 1e6 || sum < 1e6-uint32(nodes) {
				t.Fatalf("the parts of the %s make %d millionths", what, sum)
			}
		}
		// All demand moves to one node.
		busy := keys.NodeID(rapid.IntRange(1, nodes).Draw(t, "busy"))
		part := uint32(0)
		for range 2 {
			c.now += 3 * time.Second
			for i := range nodes {
				id := keys.NodeID(i + 1)
				if id == busy {
					part = *c.beat(id, max(quota/2, 1), 0).RequestsMillionths
				} else {
					c.beat(id, 0, 0)
				}
			}
		}
		if part < 800_000 {
			t.Fatalf("the only node with demand has %d millionths", part)
		}
	})
}

// Nodes that are asked for nothing share a twentieth of the quota, with which they begin to serve.
func TestIdleNodesHaveAPart(t *testing.T) {
	c := newCore(3, orders(600, 0))
	c.now += Warmup
	var parts []uint32
	for id := keys.NodeID(1); id <= 3; id++ {
		demand := uint64(0)
		if id == 1 {
			demand = 570
		}
		parts = append(parts, *c.beat(id, demand, 0).RequestsMillionths)
	}
	// (570+10)/(570+30), and 10/(570+30)
	if parts[0] != 966_666 || parts[1] != 16_666 || parts[2] != 16_666 {
		t.Errorf("%d", parts)
	}
}

// The demand of a node that is silent does not count for long, and a decommissioned node has no
// part.
func TestSilentNodes(t *testing.T) {
	c := newCore(2, orders(1000, 0))
	c.now += Warmup
	c.beat(1, 1000, 0)
	c.now += time.Second
	if got := *c.beat(2, 1000, 0).RequestsMillionths; got != 500_000 {
		t.Errorf("half of the demand gets %d millionths", got)
	}
	c.now += DemandTime - time.Second
	if got := *c.beat(2, 1000, 0).RequestsMillionths; got != 500_000 {
		t.Errorf("after %s of silence: %d millionths", DemandTime, got)
	}
	c.now += 2 * time.Second
	if got := *c.beat(2, 1000, 0).RequestsMillionths; got < 950_000 || got > 980_000 {
		t.Errorf("after more than %s of silence: %d millionths", DemandTime, got)
	}
	c.Follow(&clusterpb.TableUpdate{Nodes: []*clusterpb.Node{{Id: 1,
		Status: clusterpb.NodeStatus_NODE_GONE}}})
	c.now += time.Second
	if got := *c.beat(2, 1000, 0).RequestsMillionths; got != 1e6 {
		t.Errorf("the only node has %d millionths", got)
	}
	if s := c.beat(1, 1000, 0); s != nil {
		t.Errorf("a node that is gone is told %v", s)
	}
}

// A new leader tells no parts until it can have heard all nodes, and no sizes until it knows them.
func TestNewLeader(t *testing.T) {
	c := newCore(2, &clusterpb.Keyspace{Id: 7, Name: "orders", QuotaBytes: 5,
		QuotaRequestsPerSecond: 9})
	if s := c.beat(1, 10, 0); s == nil || s.RequestsMillionths != nil || s.UsedBytes != nil {
		t.Errorf("at once: %v", s)
	}
	c.SetUsed(7, 3)
	c.now += Warmup
	if s := c.beat(1, 10, 0); s.RequestsMillionths == nil || s.BytesMillionths != nil ||
		s.GetUsedBytes() != 3 {
		t.Errorf("after %s: %v", Warmup, s)
	}
	if s := c.beat(1, 10, 0); s != nil {
		t.Errorf("a moment later: %v", s)
	}
	c.Reset()
	if s := c.beat(1, 10, 0); s != nil {
		t.Errorf("after the leadership: %v", s)
	}
	c.Follow(&clusterpb.TableUpdate{Nodes: []*clusterpb.Node{{Id: 1}},
		Keyspaces: []*clusterpb.Keyspace{orders(5, 0)}})
	if s := c.beat(1, 10, 0); s != nil {
		t.Errorf("before the table is complete: %v", s)
	}
}

// What is used is shown of those quotas that there are, and of keyspaces that have any.
func TestUsage(t *testing.T) {
	full := &clusterpb.Keyspace{Id: 8, Name: "full", QuotaBytes: 1000}
	c := newCore(2, orders(1000, 4000), full, &clusterpb.Keyspace{Id: 9, Name: "free"})
	if u := c.Usage(8); u != nil {
		t.Errorf("of an unknown size: %v", u)
	}
	c.SetUsed(8, 900)
	c.SetUsed(9, 900)
	c.beat(1, 200, 600)
	c.now += time.Second
	c.beat(2, 300, 400)
	u, of := c.Usage(7), c.Usage(8)
	if u.GetRequestsPerSecond() != 500 || u.GetBytesPerSecond() != 1000 || of.GetBytes() != 900 ||
		of.GetRequestsPerSecond() != 0 || c.Usage(9) != nil {
		t.Errorf("%v, %v, %v", u, of, c.Usage(9))
	}
	ratios := func(want ...string) {
		t.Helper()
		if got := collect(t, c.Quotas); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	ratios("full bytes 0.9", "orders requests 0.5", "orders throughput 0.25")
	full.QuotaBytes = 0
	c.follow(2, full, orders(250, 0))
	ratios("orders requests 2")
	c.Follow(&clusterpb.TableUpdate{RemovedKeyspaces: []uint32{7}})
	ratios()
}

// collect returns the series of a collector, in order.
func collect(t *testing.T, c prometheus.Collector) (all []string) {
	t.Helper()
	ch := make(chan prometheus.Metric, 100)
	c.Collect(ch)
	close(ch)
	for m := range ch {
		var one dto.Metric
		if err := m.Write(&one); err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, label := range one.Label {
			text += label.GetValue() + " "
		}
		all = append(all, fmt.Sprint(text, one.Gauge.GetValue()))
	}
	slices.Sort(all)
	return all
}

// BenchmarkHeartbeat is a heartbeat of one of 100 nodes of a cluster with 1,000 quotas.
func BenchmarkHeartbeat(b *testing.B) {
	var all []*clusterpb.Keyspace
	for i := range 1000 {
		all = append(all, &clusterpb.Keyspace{Id: uint32(i), Name: fmt.Sprint(i),
			QuotaRequestsPerSecond: 100})
	}
	c := newCore(100, all...)
	c.now += Warmup
	var demands []*clusterpb.KeyspaceDemand
	for i := range 1000 {
		demands = append(demands, &clusterpb.KeyspaceDemand{Keyspace: uint32(i), RequestsPerSecond: 5})
	}
	for i := 0; b.Loop(); i++ {
		c.now += 30 * time.Millisecond
		c.Heartbeat(keys.NodeID(i%100+1), demands)
	}
}
