package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Raft trusts its peers: it adopts any higher term for good, and panics if a message is
// inconsistent. So every message is checked here before it reaches Raft or changes anything else in
// the group. A refused message counts as lost by the network, and is counted in a metric.
//
// A message is refused that
//
//	type             is of a type that replicas do not send to each other
//	sender           is from a replica that was removed, or not for this replica. A follower that
//	                 lags behind a change hears a leader that it does not know: one that was added
//	                 later has a higher id than all that it knows
//	term             has no term, one above MaxTerm, or a log term above its own
//	jump             has a term that is further ahead than maxJump of any that is known (see claims)
//	index            has an index above MaxIndex
//	entries          has entries that do not follow each other, are of falling terms or later ones
//	                 than the message, or are neither normal nor well-formed changes of the
//	                 configuration; or it begins the log of a replica that a snapshot has to fill
//	commit           is a heartbeat that commits what is not in this log: a leader commits by a
//	                 heartbeat only what the follower has acknowledged
//	acknowledgement  acknowledges to a leader what it has never sent, or denies the last entry that
//	                 it has acknowledged to it
//	read             answers reads that the leader has not asked about
//	context          has a context that its type does not have
//	snapshot         offers a snapshot without its description, or with a configuration that is
//	                 invalid or does not contain this replica
//
// An honest replica could have sent all remaining messages. A forged message that a member of the
// group could have sent is believed: it can depose a leader, and lie about what is stored where. If
// it lies that a follower has stored more than the follower has, that follower stops when the
// leader commits those entries; it continues when it is restarted under another leader. A forged
// message leaves nothing on disk that does not open.
//
// INVARIANT: no message that passes makes Raft panic. The panics that a message could reach, and
// what forbids them: commitTo beyond the log (commit), the answer to a message without a term and
// terms that overflow (term), a short or high read number (context, read), a broken order of
// entries (entries), a configuration that does not restore (snapshot), a message to itself
// (sender).

// Refusal is why a message was refused; empty if it was not.
type Refusal string

// The reasons, as metrics name them.
const (
	RefusedType     Refusal = "type"
	RefusedSender   Refusal = "sender"
	RefusedTerm     Refusal = "term"
	RefusedJump     Refusal = "jump"
	RefusedIndex    Refusal = "index"
	RefusedEntries  Refusal = "entries"
	RefusedCommit   Refusal = "commit"
	RefusedAck      Refusal = "acknowledgement"
	RefusedRead     Refusal = "read"
	RefusedContext  Refusal = "context"
	RefusedSnapshot Refusal = "snapshot"
)

// Refusals lists all reasons.
var Refusals = []Refusal{RefusedType, RefusedSender, RefusedTerm, RefusedJump, RefusedIndex,
	RefusedEntries, RefusedCommit, RefusedAck,
	RefusedRead, RefusedContext, RefusedSnapshot}

const (
	// MaxTerm is higher than any number of elections: one each millisecond for eight thousand
	// years. It is far below where terms overflow.
	MaxTerm = 1 << 48
	// MaxIndex is the same for entries: a million per second for two thousand years.
	MaxIndex = 1 << 56
	// maxJump is by how much a message may raise the term at once. With it, a replica that has
	// missed an election each second for twelve days accepts the first message. To raise a term to
	// MaxTerm takes 268 million messages.
	maxJump = 1 << 20
	// claimTimeouts is for how many election timeouts a peer must repeat a term that is further
	// ahead before it is accepted. lostTimeouts is the same for a leader that says it has committed
	// what this log does not have.
	claimTimeouts = 5
	lostTimeouts  = 3
)

// ErrImplausible is returned for a replica whose stored term or log is impossible.
var ErrImplausible = errors.New("the stored term or log is impossible")

// sane returns an error if a replica cannot be opened with what its storage holds.
func sane(storage raft.Storage, hard *raftpb.HardState) error {
	last, err := storage.LastIndex()
	if err != nil {
		return err
	}
	term, err := storage.Term(last)
	if err != nil {
		return err
	}
	const next = "an earlier version has believed a forged or corrupted message; this replica is " +
		"of no use any more: a partition goes on with a majority of others, " +
		"and where they have all believed it, it has to come from a dump"
	switch {
	case hard.GetTerm() > MaxTerm:
		return fmt.Errorf("%w: the replica is in term %d, and no election reaches a term above "+
			"%d: %s", ErrImplausible, hard.GetTerm(), uint64(MaxTerm), next)
	case term > MaxTerm:
		return fmt.Errorf("%w: entry %d is of term %d, and no election reaches a term above %d: %s",
			ErrImplausible, last, term, uint64(MaxTerm), next)
	case last > MaxIndex:
		return fmt.Errorf("%w: the log ends with entry %d, and none reaches %d: %s", ErrImplausible,
			last, uint64(MaxIndex), next)
	}
	return nil
}

// validator is the state by which the group tells messages that an honest peer could have sent from
// others.
type validator struct {
	// last is the end of the log after the last Output, including what was given to the storage.
	// The log now ends between least and most, depending on which of the messages since then Raft
	// has accepted.
	last, least, most uint64
	// reads holds a term, and the highest number of a read that heartbeats of that term asked
	// about.
	reads struct{ term, highest uint64 }
	// base is a term that a peer has claimed for long enough.
	base   uint64
	claims []claim
	lost   persistence
	// broken is the reason why the replica must stop.
	broken error
}

// claim is a peer's claim of a term that is too far ahead. A peer that is really so far ahead
// claims its term with all its messages, until it is believed; a forged claim is contradicted by
// the next message of the true peer. Claims are accepted by a leader, and by a replica that knows
// no leader.
type claim struct {
	from, term uint64
	persistence
}

// persistence counts the ticks in which the same thing was said and not contradicted.
type persistence struct {
	ticks int
	said  bool
}

func (p *persistence) tick() {
	if p.said {
		p.ticks, p.said = p.ticks+1, false
	}
}

// logEnds sets the end of the log.
func (p *validator) logEnds(last uint64) { p.last, p.least, p.most = last, last, last }

// mayEnd notes that the log may end at last now.
func (p *validator) mayEnd(last uint64) { p.least, p.most = min(p.least, last), max(p.most, last) }

// askedAbout notes a heartbeat that is sent.
func (p *validator) askedAbout(m *raftpb.Message) {
	if m.GetType() != raftpb.MsgHeartbeat || len(m.GetContext()) != readContext {
		return
	}
	if m.GetTerm() != p.reads.term {
		p.reads.term, p.reads.highest = m.GetTerm(), 0
	}
	p.reads.highest = max(p.reads.highest, binary.LittleEndian.Uint64(m.GetContext()))
}

func (p *validator) claim(from, term uint64) {
	for i := range p.claims {
		if c := &p.claims[i]; c.from == from {
			c.term, c.said = min(c.term, term), true
			return
		}
	}
	p.claims = append(p.claims, claim{from: from, term: term, persistence: persistence{said: true}})
}

func (p *validator) contradict(from uint64) {
	if len(p.claims) > 0 {
		p.claims = slices.DeleteFunc(p.claims, func(c claim) bool { return c.from == from })
	}
}

// Broken returns the reason why the replica must not go on: it has lost entries that it has
// acknowledged. It returns nil if the replica may go on.
func (p *validator) Broken() error { return p.broken }
