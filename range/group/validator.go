package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Raft believes its peers: it takes over any higher term, for good, and panics if a message says
// what cannot be. So nothing reaches it, is kept by it, or changes anything else in the group,
// before it was looked at here. What is refused is as if the network had lost it, but counted.
//
// A message is refused that
//
//	type             is none that a replica sends to another
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
//	snapshot         offers a snapshot without its description, or of a configuration that cannot be
//	                 or that this replica is not in
//
// What is left is what an honest replica could have sent. A forged message that a member of the
// group could have sent is believed: it can depose a leader, and lie about what is stored where. A
// follower of which it lies that it has stored more than it has stops when the leader commits that;
// it goes on when it is started again under another leader. A forged message leaves nothing on disk
// that does not open.
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

// Refusals are all reasons.
var Refusals = []Refusal{RefusedType, RefusedSender, RefusedTerm, RefusedJump, RefusedIndex,
	RefusedEntries, RefusedCommit, RefusedAck,
	RefusedRead, RefusedContext, RefusedSnapshot}

const (
	// MaxTerm is what no number of elections reaches: one each millisecond for eight thousand
	// years. It is far from where terms overflow.
	MaxTerm = 1 << 48
	// MaxIndex is the same for entries: a million each second for two thousand years.
	MaxIndex = 1 << 56
	// maxJump is by how much a message may raise the term at once: a replica that has missed an
	// election each second for twelve days is still at home in its group with the first message.
	// From one message to MaxTerm is a quarter of a thousand million of them.
	maxJump = 1 << 20
	// claimTimeouts is for how many election timeouts a peer has to repeat a term that is further
	// ahead, and lostTimeouts a leader that it has committed what this log does not have.
	claimTimeouts = 5
	lostTimeouts  = 3
)

// ErrImplausible is returned for a replica whose stored term or log cannot be.
var ErrImplausible = errors.New("what is on disk cannot be")

// sane says whether a replica can be opened with what its storage has.
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

// validator is what the group remembers to tell messages that an honest peer could have sent from
// those that none could.
type validator struct {
	// last is where the log ended after the last Output, with what was given to the storage. Where
	// it ends now is between least and most, whichever of the messages since then Raft has taken.
	last, least, most uint64
	// reads is the highest number of a read about which heartbeats of a term asked.
	reads struct{ term, highest uint64 }
	// base is a term that a peer has claimed for long enough.
	base   uint64
	claims []claim
	lost   persistence
	// broken is why the replica has to end.
	broken error
}

// claim is what one peer says of a term that is too far ahead. One that really is so far ahead says
// it with all its messages, and goes on until it is heard; a forged one is contradicted by the next
// message of the one that it pretends to be from. Claims count on a leader, and on a replica that
// knows none.
type claim struct {
	from, term uint64
	persistence
}

// persistence counts the ticks in which something was said, as long as it is not contradicted.
type persistence struct {
	ticks int
	said  bool
}

func (p *persistence) tick() {
	if p.said {
		p.ticks, p.said = p.ticks+1, false
	}
}

// logEnds sets where the log ends.
func (p *validator) logEnds(last uint64) { p.last, p.least, p.most = last, last, last }

// mayEnd says that the log may end there now.
func (p *validator) mayEnd(last uint64) { p.least, p.most = min(p.least, last), max(p.most, last) }

// askedAbout takes note of a heartbeat that goes out.
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

// Broken is why the replica must not go on: it has lost what it has acknowledged. Nil if it may.
func (p *validator) Broken() error { return p.broken }
