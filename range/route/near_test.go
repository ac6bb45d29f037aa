package route_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// nearby is a sender to a fake cluster of three nodes with one partition.
type nearby struct {
	*testing.T
	cluster  *fakeserver.Cluster
	sender   *route.Sender
	keyspace uint32
	// asked are the nodes that got reads, in order; leading, those of them that got them as leaders.
	asked   []keys.NodeID
	leading []keys.NodeID
}

// near runs a test in virtual time. Node 1 leads.
func near(t *testing.T, cfg route.Config, set func(c *fakeserver.Cluster),
	f func(t *testing.T, n *nearby)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := fakeserver.Start(t, 3)
		defer c.Close()
		if set != nil {
			set(c)
		}
		n := &nearby{T: t, cluster: c, keyspace: c.AddKeyspace("fruit", 0)}
		c.Lead(c.PartitionOf(n.keyspace, "apple"), 1, true)
		cfg.Endpoints, cfg.Dial = c.Endpoints(), c.Dialer("client")
		sender, err := route.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer sender.Close()
		n.sender = sender
		if _, err := sender.AwaitTable(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // virtual: something is closed
		n.fault(nil)
		f(t, n)
	})
}

// fault lets reads at replicas fail at some nodes.
func (n *nearby) fault(faults map[keys.NodeID]fakeserver.Fault) {
	n.cluster.Play(func(node *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
		if r.GetGet() == nil {
			return fakeserver.Fault{}
		}
		id := keys.NodeID(node.ID)
		if r.ReplicaRead == nil {
			n.leading = append(n.leading, id)
			return fakeserver.Fault{}
		}
		n.asked = append(n.asked, id)
		return faults[id]
	})
}

// get reads a key, and returns the nodes that were asked and that were asked as leaders.
func (n *nearby) get(near route.Near) (answer route.Answer, asked, leading []keys.NodeID,
	err error) {
	n.asked, n.leading = nil, nil
	ctx, cancel := context.WithTimeout(n.Context(), 20*time.Second)
	defer cancel()
	answer, err = n.sender.DoNear(ctx, &route.Call{Keyspace: keys.KeyspaceID(n.keyspace),
		Key: []byte("apple"), Request: &kvpb.Request{Command: &kvpb.Request_Get{
			Get: &kvpb.GetRequest{Key: []byte("apple")}}}}, &near)
	return answer, n.asked, n.leading, err
}

// zones puts the nodes into eu/a, eu/b and us/a.
func zones(c *fakeserver.Cluster) {
	for id, place := range map[uint64][2]string{1: {"eu", "a"}, 2: {"eu", "b"}, 3: {"us", "a"}} {
		c.Nodes[id].Region, c.Nodes[id].Zone = place[0], place[1]
	}
}

func equal[T comparable](a []T, b ...T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// The replica in the zone is asked; without it one in the region; and at last another one.
func TestNearestByLocality(t *testing.T) {
	near(t, route.Config{Region: "us", Zone: "a"}, zones, func(t *testing.T, n *nearby) {
		for range 5 {
			if _, asked, leading, err := n.get(route.Near{}); err != nil || !equal(asked, 3) ||
				leading != nil {
				t.Fatal(asked, leading, err)
			}
		}
		n.cluster.Nodes[3].Kill()
		answer, asked, _, err := n.get(route.Near{})
		if err != nil || len(asked) != 1 || answer.Node == 3 {
			t.Fatal(asked, err)
		}
		n.cluster.Nodes[3].Start()
	})
	near(t, route.Config{Region: "eu", Zone: "b"}, zones, func(t *testing.T, n *nearby) {
		n.fault(map[keys.NodeID]fakeserver.Fault{2: {Code: kvpb.ErrorCode_NODE_UNHEALTHY},
			1: {Code: kvpb.ErrorCode_NODE_UNHEALTHY}})
		if _, asked, _, err := n.get(route.Near{}); err != nil || !equal(asked, 2, 1, 3) {
			t.Fatal(asked, err)
		}
	})
	// A zone without a region is compared by its name.
	near(t, route.Config{Zone: "b"}, zones, func(t *testing.T, n *nearby) {
		if _, asked, _, err := n.get(route.Near{}); err != nil || !equal(asked, 2) {
			t.Fatal(asked, err)
		}
	})
}

// Whatever a replica refuses with, the next one is asked at once, and the one that refused is left
// alone for a second.
func TestRefusedReadsGoToTheNextReplica(t *testing.T) {
	refuse := func(code kvpb.ErrorCode) fakeserver.Fault { return fakeserver.Fault{Code: code} }
	for name, c := range map[string]struct {
		fault  fakeserver.Fault
		reason string
		// comesBack: it is asked by the next read already.
		comesBack bool
	}{
		"nothing closed": {fault: refuse(kvpb.ErrorCode_NOT_CLOSED), reason: "not-closed"},
		"unhealthy":      {fault: refuse(kvpb.ErrorCode_NODE_UNHEALTHY), reason: "unhealthy"},
		"clock":          {fault: refuse(kvpb.ErrorCode_CLOCK_SKEW), reason: "unhealthy"},
		"damaged":        {fault: refuse(kvpb.ErrorCode_REPLICA_DAMAGED), reason: "unhealthy"},
		"older server":   {fault: refuse(kvpb.ErrorCode_NOT_LEADER), reason: "unhealthy"},
		"overloaded":     {fault: refuse(kvpb.ErrorCode_OVERLOADED), reason: "overloaded"},
		"no time":        {fault: refuse(kvpb.ErrorCode_DEADLINE_EXCEEDED), reason: "overloaded"},
		"not there":      {fault: refuse(kvpb.ErrorCode_PARTITION_NOT_FOUND), reason: "stale-epoch"},
		"epoch": {fault: refuse(kvpb.ErrorCode_STALE_EPOCH), reason: "stale-epoch",
			comesBack: true},
		"broken": {fault: fakeserver.Fault{BreakBefore: true}, reason: "connection"},
	} {
		t.Run(name, func(t *testing.T) {
			near(t, route.Config{Region: "eu", Zone: "b"}, zones, func(t *testing.T, n *nearby) {
				n.fault(map[keys.NodeID]fakeserver.Fault{2: c.fault})
				began := time.Now()
				answer, asked, leading, err := n.get(route.Near{})
				if err != nil || !equal(asked, 2, 1) || leading != nil || answer.Node != 1 {
					t.Fatal(asked, leading, err)
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("the next one was asked after %s", took)
				}
				if got := n.sender.RedirectsBecauseOf(c.reason); got != 1 {
					t.Errorf("%v redirects because of %s", got, c.reason)
				}
				n.fault(nil)
				again := keys.NodeID(1)
				if c.comesBack {
					again = 2
				}
				if _, asked, _, err := n.get(route.Near{}); err != nil || !equal(asked, again) {
					t.Fatal(asked, err)
				}
				time.Sleep(route.LeftAloneFor) // virtual
				if _, asked, _, err := n.get(route.Near{}); err != nil || !equal(asked, 2) {
					t.Fatal(asked, err)
				}
			})
		})
	}
}

// What is wrong with the request is no matter of the replica.
func TestReadsThatNoReplicaTakesEnd(t *testing.T) {
	near(t, route.Config{}, nil, func(t *testing.T, n *nearby) {
		for _, code := range []kvpb.ErrorCode{kvpb.ErrorCode_INVALID_ARGUMENT,
			kvpb.ErrorCode_TIMESTAMP_TOO_OLD, kvpb.ErrorCode_TIMESTAMP_IN_FUTURE} {
			f := fakeserver.Fault{Code: code}
			n.fault(map[keys.NodeID]fakeserver.Fault{1: f, 2: f, 3: f})
			_, asked, leading, err := n.get(route.Near{})
			var e *route.Error
			if !errors.As(err, &e) || e.Code != code || len(asked) != 1 || leading != nil {
				t.Fatal(code, asked, leading, err)
			}
			time.Sleep(route.LeftAloneFor) // virtual
		}
	})
}

// When all replicas refuse, the leader is asked as a leader.
func TestReadsThatAllRefuseGoToTheLeader(t *testing.T) {
	near(t, route.Config{Region: "eu", Zone: "b"}, zones, func(t *testing.T, n *nearby) {
		f := fakeserver.Fault{Code: kvpb.ErrorCode_NOT_CLOSED}
		n.fault(map[keys.NodeID]fakeserver.Fault{1: f, 2: f, 3: f})
		answer, asked, leading, err := n.get(route.Near{})
		if err != nil || !equal(asked, 2, 1, 3) || !equal(leading, 1) || answer.Term == 0 {
			t.Fatal(asked, leading, err)
		}
		if n.sender.NearOutcomes("leader") != 1 || n.sender.NearReads("any") != 1 {
			t.Error("it is not counted")
		}
		// They are left alone, and it goes to the leader at once.
		if _, asked, leading, err := n.get(route.Near{}); err != nil || asked != nil ||
			!equal(leading, 1) {
			t.Fatal(asked, leading, err)
		}
	})
}

// A read that needs more than is closed waits at the first replica, but no longer than it is to;
// and those that come after it, and need as much, do not wait at all.
func TestReadsWaitForWhatIsClosed(t *testing.T) {
	near(t, route.Config{Region: "us", Zone: "a"}, zones, func(t *testing.T, n *nearby) {
		const ms = time.Millisecond
		now := func() hlc.Timestamp { return hlc.Timestamp{Wall: time.Now().UnixNano()} }
		// In 50 ms it is closed.
		began, need := time.Now(), now().Add(-950*ms)
		answer, _, leading, err := n.get(route.Near{Freshness: route.FreshSession, AtLeast: need,
			Wait: 100 * ms})
		if took := time.Since(began); err != nil || answer.Node != 3 || leading != nil ||
			took < 45*ms || took > 60*ms {
			t.Fatal(answer.Node, leading, err, took)
		}
		if at := wire.FromTimestamp(answer.ReadAt); at.Less(need) {
			t.Fatal("it is read at", at)
		}
		// Now it is known when it will be: a read that cannot wait so long goes to the leader at once.
		began = time.Now()
		_, asked, leading, err := n.get(route.Near{AtLeast: now(), Wait: 100 * ms})
		if took := time.Since(began); err != nil || len(asked) == 0 || asked[0] == 3 || took > 0 {
			t.Fatal(asked, leading, err, took)
		}
		time.Sleep(2 * route.LeftAloneFor) // virtual
		// Nothing is known: it waits once.
		began = time.Now()
		_, _, _, err = n.get(route.Near{AtLeast: now(), Wait: 100 * ms})
		if took := time.Since(began); err != nil || took < 95*ms || took > 115*ms {
			t.Fatal(err, took)
		}
		// What is closed by now may be read there.
		if answer, _, _, err := n.get(route.Near{AtLeast: now().Add(-1200 * ms)}); err != nil ||
			answer.Node != 3 {
			t.Fatal(answer.Node, err)
		}
	})
}

// A replica that reads at an older timestamp than it was asked to is not believed.
func TestOldAnswersAreRefused(t *testing.T) {
	near(t, route.Config{Region: "us", Zone: "a"}, zones, func(t *testing.T, n *nearby) {
		n.cluster.Heard = func(_ *fakeserver.Node, r *kvpb.Request, answer *kvpb.Response) {
			if r.ReplicaRead != nil {
				answer.ReadAt.Wall -= uint64(time.Minute)
			}
		}
		least := hlc.Timestamp{Wall: time.Now().Add(-1500 * time.Millisecond).UnixNano()}
		_, _, _, err := n.get(route.Near{AtLeast: least})
		if err == nil || !strings.Contains(err.Error(), route.ErrTooOldAnswer.Error()) {
			t.Fatal(err)
		}
		if _, _, _, err := n.get(route.Near{}); err != nil {
			t.Fatal(err)
		}
	})
}

// Of replicas that are equally near, a sender that is not busy asks always the same one about a
// partition.
func TestReadsOfAPartitionStay(t *testing.T) {
	near(t, route.Config{}, nil, func(t *testing.T, n *nearby) {
		var first keys.NodeID
		for i := range 50 {
			_, asked, _, err := n.get(route.Near{Stay: i%2 == 0})
			if err != nil || len(asked) != 1 || (i > 0 && asked[0] != first) {
				t.Fatal(asked, first, err)
			}
			first = asked[0]
		}
	})
}

// Without a locality the latency counts: of reads, and of pings, which there are only as long as
// there are such reads.
func TestNearestByLatency(t *testing.T) {
	near(t, route.Config{}, func(c *fakeserver.Cluster) {
		for i, ms := range []time.Duration{20, 2, 40} {
			c.Network.SetLatency("client", c.Nodes[uint64(i+1)].Host, ms*time.Millisecond)
			c.Network.SetLatency(c.Nodes[uint64(i+1)].Host, "client", ms*time.Millisecond)
		}
	}, func(t *testing.T, n *nearby) {
		if _, _, _, err := n.get(route.Near{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // virtual: they are pinged
		for range 5 {
			if _, asked, _, err := n.get(route.Near{}); err != nil || !equal(asked, 2) {
				t.Fatal(asked, err)
			}
		}
		time.Sleep(2 * time.Second) // virtual
		before := n.cluster.RequestsOf("now")
		time.Sleep(time.Minute) // virtual
		if after := n.cluster.RequestsOf("now"); after != before {
			t.Errorf("%d pings in a minute without reads", after-before)
		}
		// The nearest one is far away by now.
		n.cluster.Network.SetLatency("client", n.cluster.Nodes[2].Host, time.Second/4)
		for range 60 {
			if _, _, _, err := n.get(route.Near{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond) // virtual
		}
		if _, asked, _, err := n.get(route.Near{}); err != nil || !equal(asked, 1) {
			t.Fatal(asked, err)
		}
	})
}

// Without a leader a replica that is there answers, also when it comes back only while the read
// waits for a leader.
func TestReplicaAnswersWithoutALeader(t *testing.T) {
	near(t, route.Config{}, nil, func(t *testing.T, n *nearby) {
		n.cluster.Lead(n.cluster.PartitionOf(n.keyspace, "apple"), 0, false)
		for range 5 {
			if answer, _, _, err := n.get(route.Near{}); err != nil || answer.ReadAt == nil {
				t.Fatal(err)
			}
		}
		for id := range n.cluster.Nodes {
			n.cluster.Nodes[id].Kill()
		}
		time.AfterFunc(3*time.Second, n.cluster.Nodes[2].Start)
		began := time.Now()
		answer, _, _, err := n.get(route.Near{})
		if took := time.Since(began); err != nil || answer.Node != 2 || took > 4*time.Second {
			t.Fatal(answer.Node, err, took)
		}
		for _, id := range []uint64{1, 3} {
			n.cluster.Nodes[id].Start()
		}
	})
}

// What was seen is that of which answers tell, and not what time it is.
func TestSeenIsNotTheTime(t *testing.T) {
	near(t, route.Config{}, nil, func(t *testing.T, n *nearby) {
		if !n.sender.Clock.Seen().IsZero() {
			t.Fatal(n.sender.Clock.Seen())
		}
		do := func(r *kvpb.Request, write bool) *kvpb.Response {
			t.Helper()
			time.Sleep(time.Second) // virtual
			answer, err := n.sender.Do(t.Context(), &route.Call{Keyspace: keys.KeyspaceID(n.keyspace),
				Key: []byte("apple"), Write: write, Request: r})
			if err != nil {
				t.Fatal(err)
			}
			return answer.Response
		}
		get := func() *kvpb.Request {
			return &kvpb.Request{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte("apple")}}}
		}
		put := do(&kvpb.Request{Command: &kvpb.Request_Put{
			Put: &kvpb.PutRequest{Key: []byte("apple")}}}, true).GetPut().Version
		if n.sender.Clock.Seen() != wire.FromTimestamp(put) {
			t.Fatal(n.sender.Clock.Seen())
		}
		if do(get(), false); n.sender.Clock.Seen() != wire.FromTimestamp(put) {
			t.Fatal("a value is older than its reading:", n.sender.Clock.Seen())
		}
		deleted := do(&kvpb.Request{Command: &kvpb.Request_Delete{
			Delete: &kvpb.DeleteRequest{Key: []byte("apple")}}}, true).GetDelete().Version
		if n.sender.Clock.Seen().Less(wire.FromTimestamp(deleted)) {
			t.Fatal(n.sender.Clock.Seen())
		}
		if now := do(get(), false).Now; n.sender.Clock.Seen() != wire.FromTimestamp(now) {
			t.Fatal("that there is nothing is news:", n.sender.Clock.Seen())
		}
		count := do(&kvpb.Request{Command: &kvpb.Request_Count{Count: &kvpb.CountRequest{}}}, false)
		if n.sender.Clock.Seen() != wire.FromTimestamp(count.GetCount().At) {
			t.Fatal(n.sender.Clock.Seen())
		}
		n.sender.Clock.Saw(hlc.Timestamp{Wall: 1})
		later := n.sender.Clock.Seen().Add(time.Minute)
		if n.sender.Clock.Saw(later); n.sender.Clock.Seen() != later ||
			n.sender.Clock.Session() != later {
			t.Fatal(n.sender.Clock.Seen(), n.sender.Clock.Session())
		}
	})
}
