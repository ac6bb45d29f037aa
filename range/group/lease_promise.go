package group

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// leasePromise is what a replica owes to the leader whose heartbeat it has answered: that leader's
// lease stands on the answer. For as long it neither campaigns nor votes for another, but in a
// leadership transfer, whatever Raft would do. Raft counts ticks from the heartbeat, and ticks can
// be skipped (WakeLeaderGone) or forgotten (a campaign that the host asks for).
//
// A leader owes the same to the reads that it served: some count on no other replica being elected
// before the lease ends, even if this leadership ends earlier, because it hears of a higher term.
type leasePromise struct {
	duration time.Duration
	// until is the end of the promise by the host's monotonic clock; 0: none was ever given.
	until int64
	// votes are requests for votes that came since the last Output: whether the promise stands, or
	// a lease that is becoming one, is known in the next one, with the time.
	votes []*raftpb.Message
}

// give is called when an answer is about to be sent, which is later than the heartbeat was.
func (p *leasePromise) give(now int64) { p.until = max(p.until, now+int64(p.duration)) }

// keep makes it last until a time at least.
func (p *leasePromise) keep(until int64) { p.until = max(p.until, until) }

func (p *leasePromise) stands(now int64) bool { return now < p.until }

// campaignTransfer is the context of the votes that a leadership transfer asks for.
const campaignTransfer = "CampaignTransfer"

// asksForVote says whether a message asks for a vote that a promise forbids.
func asksForVote(kind raftpb.MessageType, context []byte) bool {
	return (kind == raftpb.MsgVote ||
		kind == raftpb.MsgPreVote) && string(context) != campaignTransfer
}

// holdsBack says whether a message begins a campaign that breaks the promise. It is dropped then:
// no replica has a higher term because of it, and a leader that lives is followed again with its
// next heartbeat.
func (p *leasePromise) holdsBack(m *raftpb.Message, now int64) bool {
	return m.GetType() == raftpb.MsgPreVote && p.stands(now)
}
