package route_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// steps records what nodes are asked, in order: "admit 1", "read 1" of a leader, "replica 3".
type steps struct {
	*nearby
	all []string
}

// follow records steps, and lets some of them fail.
func follow(n *nearby, faults map[string]fakeserver.Fault) *steps {
	s := &steps{nearby: n}
	n.cluster.Play(func(node *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
		if r.GetGet() == nil && r.GetScan() == nil {
			return fakeserver.Fault{}
		}
		kind := "read"
		switch {
		case r.Admit && r.ReplicaRead != nil:
			kind = "both"
		case r.Admit:
			kind = "admit"
		case r.ReplicaRead.GetAdmission() != nil:
			kind = "replica"
		case r.ReplicaRead != nil:
			kind = "closed"
		}
		step := kind + " " + string(rune('0'+node.ID))
		s.all = append(s.all, step)
		return faults[step]
	})
	return s
}

// put writes the key.
func (s *steps) put(value string) hlc.Timestamp {
	s.Helper()
	answer, err := s.sender.Do(s.Context(), &route.Call{Keyspace: keys.KeyspaceID(s.keyspace),
		Key: []byte("apple"), Write: true, Request: &kvpb.Request{Command: &kvpb.Request_Put{
			Put: &kvpb.PutRequest{Key: []byte("apple"), Value: []byte(value)}}}})
	if err != nil {
		s.Fatal(err)
	}
	return wire.FromTimestamp(answer.GetPut().Version)
}

// call is a get of the key.
func (s *steps) call() *route.Call {
	return &route.Call{Keyspace: keys.KeyspaceID(s.keyspace), Key: []byte("apple"),
		Request: &kvpb.Request{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte("apple")}}}}
}

// read reads the key, which has to have the value, and checks the steps.
func (s *steps) read(value string, want ...string) route.Answer {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 20*time.Second)
	defer cancel()
	s.all = nil
	call := s.call()
	answer, err := s.sender.DoFollower(ctx, call, &route.Follower{})
	if err != nil || string(answer.GetGet().GetValue()) != value || !equal(s.all, want...) {
		s.Fatalf("read %v, %v in the steps %q, want %q in %q", answer.Response, err, s.all, value, want)
	}
	if call.Request.Admit || call.Request.ReplicaRead != nil {
		s.Error("the request is not what it was:", call.Request)
	}
	return answer
}

// in runs a test of a sender in us/a, where node 3 is; node 1 leads.
func in(t *testing.T, f func(t *testing.T, s *steps)) {
	t.Helper()
	near(t, route.Config{Region: "us", Zone: "a"}, zones, func(t *testing.T, n *nearby) {
		n.T = t
		f(t, follow(n, nil))
	})
}

// The leader admits, and the nearest replica answers, with what was written just before.
func TestFollowerAnswersWhatTheLeaderAdmits(t *testing.T) {
	in(t, func(t *testing.T, s *steps) {
		version := s.put("green")
		answer := s.read("green", "admit 1", "replica 3")
		at := wire.FromTimestamp(answer.GetGet().At)
		if answer.Node != 3 || answer.Term == 0 || at.Less(version) || answer.Admitted == nil ||
			answer.Admitted.By.Node != 1 || answer.Admitted.Now == nil {
			t.Errorf("the answer is %+v", answer)
		}
		if s.sender.Clock.Seen().Less(version) || s.sender.Clock.Session().Less(at) {
			t.Error("the session has not seen it")
		}
		if s.sender.NearReads("linearizable") != 1 || s.sender.NearOutcomes("nearest") != 1 {
			t.Error("it is not counted")
		}
	})
}

// Where the leader is the nearest one, or the only one, it is asked as by any read.
func TestFollowerReadsOfANearLeader(t *testing.T) {
	near(t, route.Config{Region: "eu", Zone: "a"}, zones, func(t *testing.T, n *nearby) {
		n.T = t
		s := follow(n, nil)
		s.put("green")
		s.read("green", "read 1")
		if s.sender.NearOutcomes("leader") != 1 {
			t.Error("it is not counted")
		}
		// It learns that the leader is another one, which has moved to where the read goes.
		p := n.cluster.PartitionOf(n.keyspace, "apple")
		n.cluster.Lead(p, 2, false)
		s.read("green", "read 1", "read 2")
		s.read("green", "admit 2", "replica 1")
		n.cluster.Lead(p, 1, false)
		s.read("green", "admit 2", "admit 1", "read 1")
	})
}

// Whatever the replica refuses with, the leader answers, at once, and no other replica is asked.
func TestFollowerThatRefuses(t *testing.T) {
	refuse := func(code kvpb.ErrorCode) fakeserver.Fault { return fakeserver.Fault{Code: code} }
	for name, c := range map[string]struct {
		fault  fakeserver.Fault
		reason string
		// comesBack: it is asked by the next read already.
		comesBack bool
	}{
		"unhealthy":    {fault: refuse(kvpb.ErrorCode_NODE_UNHEALTHY), reason: "unhealthy"},
		"older server": {fault: refuse(kvpb.ErrorCode_NOT_LEADER), reason: "unhealthy"},
		"damaged":      {fault: refuse(kvpb.ErrorCode_REPLICA_DAMAGED), reason: "unhealthy"},
		"overloaded":   {fault: refuse(kvpb.ErrorCode_OVERLOADED), reason: "overloaded"},
		"not there":    {fault: refuse(kvpb.ErrorCode_PARTITION_NOT_FOUND), reason: "stale-epoch"},
		"invalid there": {fault: refuse(kvpb.ErrorCode_INVALID_ARGUMENT), reason: "unhealthy",
			comesBack: true},
		"uncertain": {fault: refuse(kvpb.ErrorCode_UNCERTAIN), reason: "uncertain",
			comesBack: true},
		"epoch": {fault: refuse(kvpb.ErrorCode_STALE_EPOCH), reason: "stale-epoch",
			comesBack: true},
		"broken": {fault: fakeserver.Fault{BreakBefore: true}, reason: "connection"},
		"broken after": {fault: fakeserver.Fault{BreakAfter: true},
			reason: "connection"},
	} {
		t.Run(name, func(t *testing.T) {
			near(t, route.Config{Region: "us", Zone: "a"}, zones, func(t *testing.T, n *nearby) {
				s := follow(n, map[string]fakeserver.Fault{"replica 3": c.fault})
				s.put("green")
				began := time.Now()
				answer := s.read("green", "admit 1", "replica 3", "read 1")
				if took := time.Since(began); took > 0 || answer.Node != 1 || answer.Admitted != nil {
					t.Errorf("after %s %+v", took, answer)
				}
				if got := s.sender.RedirectsBecauseOf(c.reason); got != 1 {
					t.Errorf("%v redirects because of %s", got, c.reason)
				}
				if s.sender.NearOutcomes("leader") != 1 {
					t.Error("it is not counted")
				}
				s = follow(n, nil)
				if c.comesBack {
					s.read("green", "admit 1", "replica 3")
					return
				}
				s.sender.DoFollower(t.Context(), s.call(), &route.Follower{})
				for _, step := range s.all {
					if strings.HasSuffix(step, "3") {
						t.Errorf("it is not left alone: %q", s.all)
					}
				}
				time.Sleep(2 * route.LeftAloneFor) // virtual
				s.read("green", "admit 1", "replica 3")
			})
		})
	}
}

// A replica that is behind waits until it has applied what was admitted, and if that takes too
// long, the leader answers. Reads that may be older still go to it.
func TestFollowerThatIsBehind(t *testing.T) {
	in(t, func(t *testing.T, s *steps) {
		s.put("green")
		s.cluster.Nodes[3].Behind = 50 * time.Millisecond
		began := time.Now()
		answer, err := s.sender.DoFollower(t.Context(), s.call(), &route.Follower{})
		if err != nil || answer.Node != 3 || string(answer.GetGet().Value) != "green" {
			t.Error(answer, err)
		}
		if took := time.Since(began); took < 45*time.Millisecond || took > 60*time.Millisecond {
			t.Error("it took", took)
		}
		s.cluster.Nodes[3].Behind = time.Minute
		began = time.Now()
		answer, err = s.sender.DoFollower(t.Context(), s.call(), &route.Follower{})
		if took := time.Since(began); err != nil || answer.Node != 1 || took < 95*time.Millisecond ||
			took > 120*time.Millisecond {
			t.Error(answer.Node, err, took)
		}
		began = time.Now()
		answer, err = s.sender.DoFollower(t.Context(), s.call(), &route.Follower{})
		if took := time.Since(began); err != nil || answer.Node == 3 || took > 0 {
			t.Error("it was not left alone:", answer.Node, err, took)
		}
		answer, err = s.sender.DoNear(t.Context(), s.call(), &route.Near{})
		if err != nil || answer.Node != 3 {
			t.Error("it has what is closed:", answer.Node, err)
		}
	})
}

// What is written between the admission and the read is not seen: it is read at one moment.
func TestFollowerReadsAtTheAdmittedMoment(t *testing.T) {
	in(t, func(t *testing.T, s *steps) {
		s.put("green")
		s.cluster.Nodes[3].Behind = 50 * time.Millisecond
		time.AfterFunc(20*time.Millisecond, func() { s.put("red") })
		for _, want := range []string{"green", "red"} {
			answer, err := s.sender.DoFollower(t.Context(), s.call(), &route.Follower{})
			if err != nil || answer.Node != 3 || string(answer.GetGet().Value) != want {
				t.Error(answer, err)
			}
		}
	})
}

// A replica that reads at another moment than it was asked to is not believed.
func TestFollowerThatReadsAtAnotherMoment(t *testing.T) {
	in(t, func(t *testing.T, s *steps) {
		s.put("green")
		s.cluster.Heard = func(_ *fakeserver.Node, r *kvpb.Request, answer *kvpb.Response) {
			if r.ReplicaRead != nil && answer.ReadAt != nil {
				answer.ReadAt = wire.ToTimestamp(wire.FromTimestamp(answer.ReadAt).Add(-time.Second))
			}
		}
		s.read("green", "admit 1", "replica 3", "read 1")
	})
}

// A partition that is split, or led by another node, between the two requests: the answer is the
// latest all the same.
func TestFollowerOfAPartitionThatMoves(t *testing.T) {
	in(t, func(t *testing.T, s *steps) {
		s.put("green")
		p := s.cluster.PartitionOf(s.keyspace, "apple")
		once := func(f func()) {
			done := false
			s.cluster.Heard = func(_ *fakeserver.Node, r *kvpb.Request, _ *kvpb.Response) {
				if r.Admit && !done {
					done = true
					f()
				}
			}
		}
		once(func() { s.cluster.Split(p, "m", false) })
		s.read("green", "admit 1", "replica 3", "read 1")
		s.read("green", "admit 1", "replica 3")
		p = s.cluster.PartitionOf(s.keyspace, "apple")
		once(func() { s.cluster.Lead(p, 2, false) })
		s.put("yellow")
		s.read("yellow", "admit 1", "replica 3")
		once(func() { s.cluster.Lead(p, 3, false) })
		s.read("yellow", "admit 1", "admit 2", "admit 3", "read 3")
		// It splits before the leader is asked: the admission is of what it is by then.
		s.cluster.Heard = nil
		s.cluster.Lead(p, 1, true)
		time.Sleep(time.Second) // virtual: that is known
		s.cluster.Split(p, "b", false)
		s.read("yellow", "admit 1", "admit 1", "replica 3")
	})
}

// Without a leader there is no admission, and so no answer; with the first leader there is.
func TestFollowerWithoutALeader(t *testing.T) {
	in(t, func(t *testing.T, s *steps) {
		s.put("green")
		p := s.cluster.PartitionOf(s.keyspace, "apple")
		s.cluster.Lead(p, 0, true)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		_, err := s.sender.DoFollower(ctx, s.call(), &route.Follower{})
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) ||
			took != 2*time.Second {
			t.Fatal(err, took)
		}
		if s.sender.NearOutcomes("failed") != 1 {
			t.Error("it is not counted")
		}
		time.AfterFunc(time.Second, func() { s.cluster.Lead(p, 2, true) })
		answer, err := s.sender.DoFollower(t.Context(), s.call(), &route.Follower{})
		if err != nil || answer.Node != 3 || string(answer.GetGet().Value) != "green" {
			t.Fatal(answer, err)
		}
	})
}

// A replica that is silent leaves the leader half of the caller's time.
func TestFollowerThatIsSilent(t *testing.T) {
	near(t, route.Config{Region: "us", Zone: "a"}, zones, func(t *testing.T, n *nearby) {
		s := follow(n, map[string]fakeserver.Fault{"replica 3": {Swallow: true}})
		s.put("green")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		answer, err := s.sender.DoFollower(ctx, s.call(), &route.Follower{})
		if took := time.Since(began); err != nil || answer.Node != 1 || took > 25*time.Millisecond {
			t.Fatal(answer.Node, err, took)
		}
		time.Sleep(2 * route.LeftAloneFor) // virtual
		n.cluster.Nodes[3].Hang(true)
		began = time.Now()
		answer, err = s.sender.DoFollower(t.Context(), s.call(), &route.Follower{})
		if took := time.Since(began); err != nil || answer.Node == 3 || took > 3*time.Second {
			t.Fatal(answer.Node, err, took)
		}
		n.cluster.Nodes[3].Hang(false)
	})
}

// The pages of a scan need one admission, as long as they are of its moment and its partition.
func TestFollowerReadsByOneAdmission(t *testing.T) {
	in(t, func(t *testing.T, s *steps) {
		s.put("green")
		var admitted route.Admitted
		scan := func(at *kvpb.Timestamp) *kvpb.Timestamp {
			t.Helper()
			prepared := false
			command := &kvpb.ScanRequest{At: at, MaxRows: 10, MaxBytes: 1 << 20}
			answer, err := s.sender.DoFollower(t.Context(), &route.Call{
				Keyspace: keys.KeyspaceID(s.keyspace), Key: []byte("apple"),
				Request: &kvpb.Request{Command: &kvpb.Request_Scan{Scan: command}},
				Prepare: route.PreparerFunc(func(p *route.Partition, l route.Leader) error {
					prepared = true
					command.Start, command.End = p.Span.Start, p.Span.End
					if l.Term != 0 && l.Node != 1 {
						t.Error("it is prepared for", l)
					}
					return nil
				}),
			}, &route.Follower{At: wire.FromTimestamp(at), Admitted: &admitted})
			if err != nil || answer.Node != 3 || !prepared || answer.GetScan().At == nil {
				t.Fatal(answer, err)
			}
			return answer.GetScan().At
		}
		at := scan(nil)
		scan(at)
		scan(at)
		if !equal(s.all, "admit 1", "replica 3", "replica 3", "replica 3") {
			t.Errorf("%q", s.all)
		}
		s.all = nil
		earlier := wire.ToTimestamp(wire.FromTimestamp(at).Add(-time.Millisecond))
		scan(earlier)
		s.cluster.Split(s.cluster.PartitionOf(s.keyspace, "apple"), "m", true)
		time.Sleep(time.Second) // virtual: the table shows it
		scan(earlier)
		if !equal(s.all, "admit 1", "replica 3", "admit 1", "replica 3") {
			t.Errorf("%q", s.all)
		}
	})
}

// A caller that has less time left than a replica would wait has the leader's answer.
func TestFollowerThatLagsLeavesTimeForTheLeader(t *testing.T) {
	in(t, func(t *testing.T, s *steps) {
		s.put("green")
		s.cluster.Nodes[3].Behind = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Millisecond)
		defer cancel()
		if answer, err := s.sender.DoFollower(ctx, s.call(), &route.Follower{}); err != nil {
			t.Error("the leader could have answered:", answer.Node, err)
		}
	})
}
