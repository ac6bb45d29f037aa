package node

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// admitted asks the leader to admit a read of a key.
func (c *cluster) admitted(p *clusterpb.Partition, key string) *kvpb.Admission {
	c.t.Helper()
	answer := c.do(func(term uint64) *kvpb.Request {
		return &kvpb.Request{Partition: p.Id, Generation: p.Generation, Term: term, Admit: true,
			Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte(key)}}}
	}, p.Id, 10*time.Second)
	if answer.GetAdmission() == nil {
		c.t.Fatalf("no admission: %v", answer)
	}
	return answer.Admission
}

// A replica that does not lead hears of what is committed when a read is admitted, and not with the
// next heartbeat, of a group that was busy, has been idle, is about to sleep, or sleeps: a read
// that was admitted after the acknowledgement waits for a few milliseconds at most.
func TestFollowersReadByAdmissionAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sleepAfter = 20 * time.Millisecond
		c := newCluster(t, 3, func(c *Config) { c.SleepAfter = sleepAfter })
		p := c.createHash(2, 1)[0]
		c.await("it is led where it is preferred", 10*time.Second,
			func() bool { return c.asPreferred([]*clusterpb.Partition{p}) })
		leader, _ := c.believedLeader(p.Id)
		asleep := func() bool { return c.nodes[leader].host.Awake() == 0 }
		most, slept := time.Duration(0), 0
		for i, idle := range []time.Duration{0, 0, time.Millisecond, sleepAfter / 2,
			sleepAfter - time.Millisecond, sleepAfter, sleepAfter + time.Millisecond, 2 * sleepAfter,
			time.Second, time.Minute, 0} {
			key := fmt.Sprint("k", i)
			c.mustPut(p, key, "v")
			time.Sleep(idle) // virtual
			if asleep() {
				slept++
			}
			admission := c.admitted(p, key)
			for node := uint64(1); node <= 3; node++ {
				began := time.Now()
				q := &kvpb.Request{Partition: p.Id, Generation: p.Generation,
					ReplicaRead: &kvpb.ReplicaRead{WaitMicros: 1e6, Admission: admission},
					Command:     &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte(key)}}}
				answer := c.ask(node, q)[q.Id]
				if answer.GetError() != nil || string(answer.GetGet().GetValue()) != "v" {
					t.Errorf("after %s, node %d answers %v", idle, node, answer)
				}
				most = max(most, time.Since(began))
			}
		}
		if slept == 0 {
			t.Error("the group never slept")
		}
		if most > 10*time.Millisecond {
			t.Errorf("a read waited for %s", most)
		}
		// A node that was cut off while something was written answers when it is connected again.
		away := leader%3 + 1
		c.network.setCut(away, true)
		c.mustPut(p, "k", "w")
		admission := c.admitted(p, "k")
		q := &kvpb.Request{Partition: p.Id, Generation: p.Generation,
			ReplicaRead: &kvpb.ReplicaRead{WaitMicros: 1e4, Admission: admission},
			Command:     &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte("k")}}}
		if e := c.ask(away, q)[q.Id].GetError(); e.GetCode() != kvpb.ErrorCode_NOT_CLOSED {
			t.Errorf("cut off, it answers %v", e)
		}
		c.network.setCut(away, false)
		c.await("it answers", 10*time.Second, func() bool {
			return string(c.ask(away, q)[q.Id].GetGet().GetValue()) == "w"
		})
	})
}

// Only reads of keys and spans of one partition are admitted.
func TestAdmitsReadsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		p := c.createHash(2, 1)[0]
		for _, q := range []*kvpb.Request{
			{Partition: p.Id, Generation: p.Generation, Sequence: 1, Admit: true,
				Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte("k"), Value: []byte("v")}}},
			{Admit: true, Command: &kvpb.Request_Now{}},
			{Admit: true, Command: &kvpb.Request_MultiGet{MultiGet: &kvpb.MultiGetRequest{}}},
			{Admit: true, Command: &kvpb.Request_MergeScan{MergeScan: &kvpb.MergeScanRequest{}}},
		} {
			answer := c.ask(1, q)[q.Id]
			if answer.GetError().GetCode() != kvpb.ErrorCode_INVALID_ARGUMENT {
				t.Errorf("%v is answered %v", q, answer)
			}
		}
	})
}
