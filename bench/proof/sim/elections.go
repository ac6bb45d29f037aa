package sim

import (
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// elections watches the Raft messages between the servers for violations of these rules, whether or
// not a client could notice them:
//
//   - INVARIANT: a replica votes for at most one candidate in a term, even if it restarts in
//     between.
//   - INVARIANT: a term has one leader.
//   - INVARIANT: a replica that restarted neither votes nor campaigns for an election timeout,
//     because it has forgotten what it promised. Leadership transfers are an exception.
//   - INVARIANT: when a leader has been elected, no lease of an earlier leader is valid.
type elections struct {
	w *World
	// silence is how long a replica that restarted must be silent at least, in true time.
	silence time.Duration
	// elected has leaderships that were just seen to begin. If the channel is full, the leases at a
	// leadership's begin are not checked.
	elected chan epoch

	mu sync.Mutex
	// votes, leaders and transfers grow with the number of votes and terms: some thousands in a run
	// of minutes.
	votes     map[ballot]uint64 // the replica that got the vote
	leaders   map[epoch]uint64
	transfers map[epoch]bool // a replica campaigns in this epoch because of a leadership transfer
	heard     map[member]int // the first process in which a replica said anything
}

// member is a replica, epoch a term of a group, ballot the vote of a replica in an epoch.
type (
	member struct {
		realm          string
		group, replica uint64
	}
	epoch struct {
		realm       string
		group, term uint64
	}
	ballot struct {
		epoch
		replica uint64
	}
)

// fastest is how much faster than true time a server's monotonic clock runs at most.
const fastest = 1.03

// watchElections watches elections and merges until stop is called. timeout is the election
// timeout.
func watchElections(w *World, timeout time.Duration) (stop func()) {
	e := &elections{
		w: w, silence: time.Duration(float64(timeout)/fastest) - time.Millisecond,
		elected: make(chan epoch, 1024),
		votes:   make(map[ballot]uint64), leaders: make(map[epoch]uint64),
		transfers: make(map[epoch]bool), heard: make(map[member]int),
	}
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-done:
				return
			case r := <-e.elected:
				e.checkLeases(r)
			}
		}
	})
	w.Cluster.Messages().Observe(func(s kvtest.Sent) {
		w.merges.observe(s)
		e.observe(s)
	})
	return func() {
		w.Cluster.Messages().Observe(nil)
		close(done)
		watching.Wait()
	}
}

// campaignTransfer is Raft's context of vote requests in a leadership transfer.
const campaignTransfer = "CampaignTransfer"

// observe checks one message. The servers' workers call it.
func (e *elections) observe(s kvtest.Sent) {
	m := s.Message
	if m.GetWake() {
		return
	}
	from := member{s.Realm, m.GetGroup(), m.GetFrom()}
	r := epoch{s.Realm, m.GetGroup(), m.GetTerm()}
	e.mu.Lock()
	if _, known := e.heard[from]; !known {
		e.heard[from] = s.Process
	}
	restarted := s.Process > e.heard[from]
	transferred := e.transfers[r]
	var other uint64
	kind := raftpb.MessageType(m.GetType())
	switch kind {
	case raftpb.MsgVote, raftpb.MsgPreVote:
		if string(m.GetContext()) == campaignTransfer {
			e.transfers[r], transferred = true, true
		}
	case raftpb.MsgVoteResp:
		if !m.GetReject() {
			if s.Realm == "data" {
				e.w.voted(m.GetGroup(), granted{s.From, s.To})
			}
			b := ballot{r, m.GetFrom()}
			if other = e.votes[b]; other == 0 {
				e.votes[b] = m.GetTo()
			}
		}
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgTimeoutNow:
		if other = e.leaders[r]; other == 0 {
			e.leaders[r] = m.GetFrom()
			select {
			case e.elected <- r:
			default:
			}
		}
	}
	e.mu.Unlock()

	switch kind {
	case raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		if age := time.Since(s.Started); restarted && !transferred && !m.GetReject() &&
			age < e.silence {
			e.w.Violation("%s group %d: replica %d on server %d sends %s to %d in term %d, %v "+
				"after it restarted; it has to be silent for %v",
				s.Realm, m.GetGroup(), m.GetFrom(), s.From, kind, m.GetTo(), m.GetTerm(), age,
				e.silence)
		}
		if kind == raftpb.MsgVoteResp && other != 0 && other != m.GetTo() {
			e.w.Violation("%s group %d: replica %d on server %d votes for replica %d in term "+
				"%d, and has voted for %d before",
				s.Realm, m.GetGroup(), m.GetFrom(), s.From, m.GetTo(), m.GetTerm(), other)
		}
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgTimeoutNow:
		if other != 0 && other != m.GetFrom() {
			e.w.Violation("%s group %d: replicas %d and %d lead in term %d", s.Realm, m.GetGroup(),
				other, m.GetFrom(), m.GetTerm())
		}
	}
}

// checkLeases looks for leases that outlive the election of a successor.
func (e *elections) checkLeases(r epoch) {
	if r.realm != "data" {
		return
	}
	for i := range e.w.Cluster.Servers() {
		p := e.w.Cluster.Process(i)
		// A paused server serves nothing, and its clocks stand still.
		if p == nil || e.w.Cluster.Paused(i) {
			continue
		}
		for _, x := range p.Replicas() {
			if x.Partition == r.group && x.Leased && x.LeaseTerm < r.term &&
				e.w.Cluster.Process(i) == p && !e.w.Cluster.Paused(i) {
				e.w.Violation("partition %d: replica %d on server %d holds the lease of term "+
					"%d, and the leader of term %d has been elected",
					x.Partition, x.Replica, i, x.LeaseTerm, r.term)
			}
		}
	}
}
