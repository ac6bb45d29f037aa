package group

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// leasePromise is what a replica owes to the leader whose heartbeat it has answered, because that
// leader's lease relies on the answer. Until the promise ends the replica neither campaigns nor
// votes for another replica, except in a leadership transfer, whatever Raft would do. Raft's own
// count of ticks is not enough: ticks can be skipped (WakeLeaderGone) or ignored (a campaign that
// the host asks for).
//
// A leader owes the same to the reads that it served: some rely on no other replica being elected
// before the lease ends, even if this leadership ends earlier because it hears of a higher term.
type leasePromise struct {
	duration time.Duration
	// until is the end of the promise on the host's monotonic clock; 0: no promise was ever given.
	until int64
	// votes holds requests for votes that came since the last Output. The next Output decides about
	// them, because only there the time is known, and with it whether a promise still stands.
	votes []*raftpb.Message
}

// give begins a promise. It is called when an answer is about to be sent, which is later than when
// the heartbeat was sent.
func (p *leasePromise) give(now int64) { p.until = max(p.until, now+int64(p.duration)) }

// keep extends the promise to a time at least.
func (p *leasePromise) keep(until int64) { p.until = max(p.until, until) }

func (p *leasePromise) stands(now int64) bool { return now < p.until }

// campaignTransfer is the context of the votes that a leadership transfer asks for.
const campaignTransfer = "CampaignTransfer"

// asksForVote reports whether a message asks for a vote that a promise forbids.
func asksForVote(kind raftpb.MessageType, context []byte) bool {
	return (kind == raftpb.MsgVote ||
		kind == raftpb.MsgPreVote) && string(context) != campaignTransfer
}

// holdsBack reports whether a message begins a campaign that breaks the promise. The caller drops
// it: no replica gets a higher term, and the next heartbeat of a live leader restores it.
func (p *leasePromise) holdsBack(m *raftpb.Message, now int64) bool {
	return m.GetType() == raftpb.MsgPreVote && p.stands(now)
}
