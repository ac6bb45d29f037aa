package node

import (
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// Requests for a child that is about to have a leader are answered when it has, or when it is late;
// and when the node closes.
func TestYoungAnswerWhenTheyLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		s := newDivider(c, 1, 2)
		for i := range splitKeys {
			s.put(key(i), "before")
		}
		parent := s.partitions()[0].Id
		leads, _ := c.leaderOf(parent)
		m, child := c.nodes[leads], parent+1
		lost := func(_ uint64, m *peerpb.RaftMessage) bool {
			return m.Group == child && raftpb.MessageType(m.Type) == raftpb.MsgPreVote
		}
		c.network.lose(lost)
		s.begin()
		c.await("it splits", time.Minute, func() bool {
			return m.replicas.Get(keys.PartitionID(child)) != nil
		})
		h := m.replicas.Get(keys.PartitionID(child))
		ask := func() <-chan *kvpb.Response {
			answer := make(chan *kvpb.Response, 1)
			work := m.Submit(7, []*kvpb.Request{{Id: 1, Partition: child,
				Generation: h.Replica.Descriptor().GetGeneration(),
				Command:    &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte(key(splitKeys - 1))}}}},
				func(r *kvpb.Response) { answer <- r })
			if work != nil {
				work.Run()
				work.Done()
			}
			return answer
		}
		anew := func() {
			m.newChildren.mu.Lock()
			m.newChildren.mu.all[h].tried = 0
			m.newChildren.mu.Unlock()
		}
		anew()
		held := ask()
		synctest.Wait()
		select {
		case r := <-held:
			t.Fatalf("it was answered before anything is known: %v", r)
		default:
		}
		began := time.Now()
		r := <-held
		if r.GetError().GetCode() != kvpb.ErrorCode_NOT_LEADER ||
			r.GetError().GetLeader() != nil {
			t.Errorf("late: %v", r)
		}
		if took := time.Since(began); took > (patientTries+1)*campaignPeriod {
			t.Errorf("it was held for %v", took)
		}
		if n := len(ask()); n != 1 {
			t.Error("one that comes late is held")
		}
		anew()
		held = ask()
		synctest.Wait()
		c.network.lose(nil)
		if r := <-held; r.GetError() != nil && r.GetError().GetLeader().GetNode() != leads {
			t.Errorf("when it has a leader: %v", r)
		}
		if h.Split.Campaigning.Load() || m.newChildren.mu.asked != 0 {
			t.Errorf("it is young: %v, and %d are held", h.Split.Campaigning.Load(), m.newChildren.mu.asked)
		}
	})
}
