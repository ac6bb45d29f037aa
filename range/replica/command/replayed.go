package command

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
)

// A retried request takes effect at most once (DESIGN invariant 9), because the version history of
// its key records what was done: each version carries the id of the request that wrote it.
//
// All attempts of a request carry the same session timestamp, and each gives its version a
// timestamp above that. So a later attempt looks through the key's versions above the session's
// timestamp, newest first. In the common case the newest version is not above it, and the one
// look-up that every write makes anyway decides.
//
// Versions that overwrote each other at or below the garbage collection threshold may be gone, and
// the record with them. A session older than the threshold is therefore refused. A session
// timestamp of zero belongs to a client that has seen nothing yet; all versions above the threshold
// are looked through for it, which is complete unless its request is older than the collection
// window. (Clients avoid that by asking for Now first.)
//
// An attempt that arrives after a later one was answered is stopped by other rules: the term that
// it names is over, or it finds the version, or its stream was fenced before it was read
// (Hello.stream). An attempt that was read earlier, and has waited for a lock since, finds no
// version if the later attempt was answered that there was nothing to do; but that answer has ended
// the waiting attempt. In the queue the earlier attempt comes first, and the later one finds its
// pending writes.

// Replayed is the version that an earlier attempt of a request wrote.
type Replayed struct {
	Found     bool
	Timestamp hlc.Timestamp
	// Sequence is that of the pending entry that carries it; 0 if it is applied.
	Sequence uint64
	// CommitWait is set if it was written with commit wait.
	CommitWait bool
	// Value is the version's value. It is valid until the next look-up.
	Value []byte
	// BeforeKnown is set if the version before it was pending too. WasLive then says whether that
	// version was a value that had not expired.
	BeforeKnown, WasLive bool
	// Before is the timestamp of the version before, if that version has commit wait and was
	// pending too.
	Before hlc.Timestamp
}

// Replayed looks for a version of the key that an attempt of this request wrote, and holds the
// answer if that version has commit wait. p is the key's newest version; its value is cloned if
// need be, so that it stays valid.
func (e *Evaluation) Replayed(userKey []byte, p *Prior) (Replayed, error) {
	if !p.Found || p.Timestamp.LessEq(e.Since) {
		return Replayed{}, nil
	}
	if p.Sequence != 0 {
		own, applied := e.Pending.Find(userKey, e.Since, e.Request)
		if own.Found {
			e.HoldFor(own.CommitWait, own.Timestamp)
			return own, nil
		}
		// A version that was pending a moment ago, and is not any more, is in the engine as of this
		// index.
		if err := e.see(applied); err != nil {
			return Replayed{}, err
		}
	}
	// The getter moves on, and the value of p may alias its memory.
	p.Value = bytes.Clone(p.Value)
	v, found, err := e.getter.FindRequest(e.InternalKey(userKey), e.Since, e.Request)
	e.HoldFor(found && v.CommitWait, v.Timestamp)
	return Replayed{Found: found, Timestamp: v.Timestamp, CommitWait: v.CommitWait,
		Value: v.Value}, err
}

// ExistedBefore reports whether the key had a value before the request's own version. The version
// before cannot have been collected, unless it is a tombstone or has expired: the own version is
// above the threshold, and no version at or below the threshold shadows its predecessor. The answer
// reveals it.
func (e *Evaluation) ExistedBefore(userKey []byte, own Replayed) (bool, error) {
	if own.BeforeKnown {
		e.HoldFor(true, own.Before)
		return own.WasLive, nil
	}
	v, found, err := mvcc.Get(e.State, e.InternalKey(userKey), own.Timestamp.Prev())
	e.HoldFor(found && v.CommitWait, v.Timestamp)
	// It may expire exactly at the timestamp of the own version.
	return found && v.LiveAt(own.Timestamp), err
}
