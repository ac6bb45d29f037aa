package committer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// Transaction is one attempt of a transaction. It is used by one goroutine at a time, and ends with
// Commit or Abort.
type Transaction struct {
	c *Committer
	// life bounds how long the attempt may send heartbeats.
	life           context.Context
	id             txn.ID
	begun, started hlc.Timestamp
	ids            *attemptIDs
	// again is set if this is not the first attempt.
	again bool

	// anchor is the key whose partition decides; empty until the first lock, or the commit.
	anchor Key
	// locked are the keys of early locks: the keys for which a request was sent, whatever its
	// outcome. prepared is the highest timestamp of the acquired locks.
	locked   map[string]Key
	prepared hlc.Timestamp
	// held are the partitions in which spans are held, or may be (hold.go).
	held  heldPlaces
	ended bool
	// activity measures the application; the goroutine of heartbeats reads it.
	activity activity
	// asks asks for an unknown outcome of the commit; nil if the outcome is known.
	asks func(context.Context) (hlc.Timestamp, error)

	mu struct {
		sync.Mutex
		// leaderships are the leaderships under which keys were locked in leaders' memory, by
		// partition.
		leaderships map[keys.PartitionID]*kvpb.Leadership
		// beaten is when the last heartbeat was sent; before the first, when the first lock was
		// asked for.
		beaten  time.Time
		beating bool
		// wanted is set once another request waits for the transaction's locks, so that the
		// transaction makes no pauses.
		wanted bool
		// long is set if at least one heartbeat was due.
		long bool
		// aborted is set if the transaction cannot be committed any more.
		aborted *Error
		// stop ends the present wait for locks; nil outside a wait.
		stop context.CancelCauseFunc
	}
}

// ID returns the id of the attempt. The slice must not be changed.
func (t *Transaction) ID() []byte { return t.id[:] }

// Long reports whether the attempt has held locks, or waited for them, for so long that it had to
// send heartbeats.
func (t *Transaction) Long() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.long
}

// Begun returns when the first attempt began: the transaction's age.
func (t *Transaction) Begun() hlc.Timestamp { return t.begun }

// Life returns the context with which the attempt was begun.
func (t *Transaction) Life() context.Context { return t.life }

// Prepared returns the highest timestamp at which early locks were acquired; zero if there are
// none.
func (t *Transaction) Prepared() hlc.Timestamp { return t.prepared }

// Leaderships returns the leaderships under which volatile locks were acquired, for Reads.
func (t *Transaction) Leaderships() map[keys.PartitionID]*kvpb.Leadership {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.mu.leaderships)
}

// lockedUnder records the leadership of a partition's volatile locks. It returns false if the
// partition had another leadership before: the reads under that leadership are lost.
func (t *Transaction) lockedUnder(p keys.PartitionID, l *kvpb.Leadership) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if earlier := t.mu.leaderships[p]; earlier != nil {
		return earlier.Partition == l.Partition && earlier.Term == l.Term && earlier.Epoch == l.Epoch
	}
	if t.mu.leaderships == nil {
		t.mu.leaderships = make(map[keys.PartitionID]*kvpb.Leadership)
	}
	t.mu.leaderships[p] = l
	return true
}

// Anchor returns the key whose partition decides; its Key is empty if no anchor is chosen yet.
func (t *Transaction) Anchor() Key { return t.anchor }

// AnchorAt makes k the anchor, unless the transaction has one. It takes over k.
func (t *Transaction) AnchorAt(k Key) {
	if len(t.anchor.Key) == 0 {
		t.anchor = k
	}
}

// settleAnchor makes sure that there is an anchor. An anchor that no server knows yet is replaced
// by one of the written keys: the first key that the user wrote may have been taken back.
func (t *Transaction) settleAnchor(writes []Write) {
	if len(t.locked)+len(t.held.all) == 0 &&
		!slices.ContainsFunc(writes, func(w Write) bool { return w.Key.same(t.anchor) }) {
		t.anchor = writes[0].Key
	}
}

func (t *Transaction) wire() *kvpb.Transaction {
	return &kvpb.Transaction{
		Id: t.id[:], Begun: wire.ToTimestamp(t.begun), Keyspace: uint32(t.anchor.Keyspace),
		Anchor: t.anchor.Key, Started: wire.ToTimestamp(t.started),
	}
}

// toAnchor sends a request to the coordinator partition.
func (t *Transaction) toAnchor(ctx context.Context, r *kvpb.Request) (*kvpb.Response, error) {
	p, err := t.c.sender.Locate(ctx, t.anchor)
	if err != nil {
		return nil, err
	}
	return t.c.sender.Send(ctx, &Request{Place: p, Key: t.anchor.Key, Write: true, Command: r})
}

// Aborted returns why the transaction cannot be committed any more, as its heartbeats' answers have
// told; nil if no answer told so.
func (t *Transaction) Aborted() error { return t.alive() }

// alive returns the known reason why the transaction has ended; nil if there is none.
func (t *Transaction) alive() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.aborted != nil {
		return t.mu.aborted
	}
	return nil
}

// Abort ends the transaction without a commit, and releases its locks in the background. After
// Commit or Abort it does nothing.
func (t *Transaction) Abort() {
	if t.ended {
		return
	}
	t.ended = true
	t.abort(nil)
}

// abort releases all locks that the transaction has, or may have. No request to commit it may be
// running.
func (t *Transaction) abort(more []Key) {
	t.c.stopHeartbeats(t)
	all := t.everyLock(more)
	if len(all)+len(t.held.all) == 0 {
		return
	}
	t.c.background(func(ctx context.Context) { t.rollBack(ctx, all) })
}

// rollBack aborts the transaction at its record, and releases its locks on the keys. No request to
// commit the transaction may be running that can succeed.
func (t *Transaction) rollBack(ctx context.Context, all []Key) {
	places, _ := t.c.placesOf(ctx, all) // an abort need not name them all
	r, err := t.toAnchor(ctx,
		&kvpb.Request{Command: &kvpb.Request_EndTransaction{EndTransaction: &kvpb.EndTransactionRequest{
			Transaction: t.wire(), Participants: aborted(places),
		}}})
	status := r.GetEndTransaction().GetStatus()
	if err != nil {
		e, ok := classify(t.anchor.Keyspace, err).(*Error)
		if !ok || e.Kind != ErrAborted {
			if !errors.Is(err, route.ErrNoKeyspace) {
				return // others will find the transaction abandoned
			}
			// No record exists that could tell, and the transaction cannot have been committed.
			e = &Error{Reason: kvpb.AbortReason_ROLLED_BACK}
		}
		status = e.status()
	}
	if status.GetState() != kvpb.TransactionState_PENDING {
		t.c.resolve(ctx, t.wire(), status, all, t.held.all)
	}
}

// aborted returns the participants of an abort; nil if they are more than a decision may name. An
// abort does not depend on them.
func aborted(places []written) []*kvpb.Participant {
	all := participantsOf(places)
	if !txn.ParticipantsFit(all) {
		return nil
	}
	return encoded(all)
}

// everyLock returns all keys that may be locked: the early ones and more.
func (t *Transaction) everyLock(more []Key) []Key {
	if len(t.locked) == 0 {
		return more
	}
	all := more[:len(more):len(more)]
	seen := make(map[string]bool, len(more))
	for _, k := range more {
		seen[k.mapKey()] = true
	}
	for m, k := range t.locked {
		if !seen[m] {
			all = append(all, k)
		}
	}
	return all
}
