package committer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// endPause is the pause before a decision with unknown outcome is asked for again.
	endPause = 100 * time.Millisecond
	// maxLead bounds how far into the future the commit timestamp is moved for a transaction that
	// readers push again and again.
	maxLead = 50 * time.Millisecond
	// yieldAfter is the number of pushes after which a transaction gives way to older transactions
	// that are about to write keys that it has read. An older transaction may itself be the pusher:
	// two transactions that have each read what the other writes push each other, and would do so
	// for ever. A single push may be a reader's.
	yieldAfter = 2
	// holdAfter is the number of pushes after which a transaction makes readers wait for its
	// commit. holdAfter is at least yieldAfter, so that transactions that wait for each other give
	// way first.
	holdAfter = 2
)

// Commit applies all writes at the timestamp that it returns, provided that the reads are unchanged
// up to that timestamp. With wait set it returns only when every clock of the cluster has passed
// that timestamp. After an error the transaction is not committed and never will be, unless the
// error is ErrOutcomeUnknown. The transaction has ended in any case. The keys of the writes must be
// distinct. Commit takes over the writes and the reads.
//
// A transaction without writes is committed as of reads.At.
func (t *Transaction) Commit(ctx context.Context, writes []Write, reads Reads,
	wait bool) (hlc.Timestamp, error) {
	if t.ended {
		return hlc.Timestamp{}, errEnded
	}
	t.ended = true
	m := t.c.metrics
	if len(writes) == 0 {
		if len(reads.Leaderships) > 0 {
			// The values that were read may not be committed yet.
			if err := t.c.Refresh(ctx, t.id[:], t.begun, reads, reads.At); err != nil {
				m.failed(err)
				return hlc.Timestamp{}, t.fail(nil, err)
			}
		}
		t.abort(nil) // releases locks, if there are any
		m.commits.With("none").Inc()
		return reads.At, nil
	}
	t.settleAnchor(writes)
	for i := range writes {
		if i == 0 || writes[i].Keyspace != writes[i-1].Keyspace {
			t.ids.meets(writes[i].Keyspace)
		}
	}
	phases := "one"
	at, took, err := t.onePhase(ctx, writes, reads, wait)
	if !took && err == nil {
		phases = "two"
		at, err = t.twoPhase(ctx, writes, reads, wait)
	}
	if err != nil {
		m.failed(err)
		return hlc.Timestamp{}, err
	}
	m.commits.With(phases).Inc()
	return at, nil
}

// fail ends the transaction for good: no request to commit it was sent, or none can succeed any
// more.
func (t *Transaction) fail(writes []Write, err error) error {
	t.abort(keysOf(writes))
	return err
}

func keysOf(writes []Write) []Key {
	out := make([]Key, len(writes))
	for i := range writes {
		out[i] = writes[i].Key
	}
	return out
}

// onePhase tries to commit with one request; took is false if one phase is not
// possible; then nothing was sent.
func (t *Transaction) onePhase(ctx context.Context, writes []Write, reads Reads,
	wait bool) (at hlc.Timestamp, took bool, err error) {
	for {
		r, ok, err := t.oneRequest(ctx, writes, reads, wait)
		if err != nil {
			return hlc.Timestamp{}, true, t.fail(nil, err)
		}
		if !ok {
			return hlc.Timestamp{}, false, nil
		}
		fits, committed := r.Fits, r.Place
		r.Fits = func(p Place) bool {
			if !fits(p) {
				return false
			}
			committed = p
			return true
		}
		response, err := t.c.sender.Send(ctx, r)
		at := wire.FromTimestamp(response.GetPrepare().GetPrepared())
		if err == nil && at.IsZero() {
			err = fmt.Errorf("partition %s answered a commit without a timestamp", r.Place.Partition)
			return hlc.Timestamp{}, true, &Error{Kind: ErrOutcomeUnknown, Cause: err}
		}
		if errors.Is(err, ErrMoved) && unknown(err) && len(t.locked)+len(t.held.all) == 0 {
			// The partition has split, or merged. (Locks of the transaction on the key, or on a
			// span with the key, would block executed.)
			executed, asked := t.executed(ctx, r)
			if at = executed; asked == nil || errors.Is(asked, ErrMoved) {
				err = asked
			} // otherwise nothing is known of the first attempt
		}
		switch {
		case err == nil:
			// The commit has released the locks, which are all in this partition, and no record
			// exists for heartbeats.
			t.c.stopHeartbeats(t)
			t.endHeldBut(committed, at)
			return at, true, nil
		case unknown(err):
			// The early locks may go: the request needs no locks if it still executes.
			t.abort(nil)
			if errors.Is(err, ErrMoved) {
				if at, err := t.askOnePhase(ctx, r); err == nil || Retryable(err) {
					return at, true, err
				}
			}
			t.asks = func(ctx context.Context) (hlc.Timestamp, error) { return t.askOnePhase(ctx, r) }
			return hlc.Timestamp{}, true, &Error{Kind: ErrOutcomeUnknown, Cause: err}
		case errors.Is(err, ErrMoved):
			continue // the request did not run, and never will
		}
		return hlc.Timestamp{}, true, t.fail(nil, classify(r.Place.Keyspace, err))
	}
}

// oneRequest makes the request of a one-phase commit; ok is false if one phase is not possible.
func (t *Transaction) oneRequest(ctx context.Context, writes []Write, reads Reads,
	wait bool) (r *Request, ok bool, err error) {
	if len(writes)+len(t.locked) > chunkKeys ||
		len(reads.Keys)+len(reads.Spans)+len(reads.Locked) > chunkKeys {
		return nil, false, nil
	}
	mutations := make([]mutation, 0, len(writes)+len(t.locked))
	written := make(map[string]bool, len(writes))
	size := 0
	for _, w := range writes {
		if size += len(w.Key.Key) + len(w.Value); size > oneBytes && len(writes) > 1 {
			return nil, false, nil
		}
		if len(t.locked) > 0 {
			written[w.mapKey()] = true
		}
		mutations = append(mutations, w.mutation(nil))
	}
	for m, k := range t.locked {
		if !written[m] {
			mutations = append(mutations,
				mutation{k.Keyspace, &kvpb.Mutation{Key: k.Key, Kind: kvpb.Mutation_UNLOCK}})
		}
	}
	chunks, err := t.c.chunks(ctx, mutations, chunkKeys, oneBytes)
	if err != nil || len(chunks) > 1 {
		return nil, false, err
	}
	c := chunks[0]
	fits := c.fits
	if !slices.ContainsFunc(mutations, func(m mutation) bool {
		return t.anchor.same(Key{m.keyspace, m.Key})
	}) {
		// If writes at the anchor were taken back after keys were locked, or spans were held, the
		// record may be in another partition.
		p, err := t.c.sender.Locate(ctx, t.anchor)
		if err != nil || !p.same(c.place) {
			return nil, false, nil // two phases find the error
		}
		fits = func(p Place) bool {
			return c.fits(p) && p.holds(c.place, func(yield func([]byte) bool) { yield(t.anchor.Key) })
		}
	}
	// Keys read under a lock are checked like the rest: the check costs no extra request, and holds
	// even if the lock is gone.
	read, err := t.c.readChunks(ctx,
		append(reads.Keys[:len(reads.Keys):len(reads.Keys)], reads.Locked...), reads.Spans)
	if err != nil || len(read) > 1 || (len(read) == 1 && !read[0].place.same(c.place)) {
		return nil, false, err
	}
	for p := range reads.Leaderships {
		if p != c.place.Partition {
			return nil, false, nil
		}
	}
	if err := reads.under(read); err != nil {
		return nil, false, err
	}
	one := &kvpb.OnePhase{CommitWait: wait}
	if len(read) == 1 {
		one.Reads = &read[0].set
		one.Reads.At = wire.ToTimestamp(reads.At)
		mutationsFit := fits
		fits = func(p Place) bool { return mutationsFit(p) && read[0].fits(p) }
	}
	return &Request{Place: c.place, Key: c.mutations[0].Key, Fits: fits, Write: true,
		Slack: lockSlack, Identity: new(route.Identity),
		Command: &kvpb.Request{Command: &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{
			Transaction: t.wire(), Mutations: c.mutations,
			AtLeast: wire.ToTimestamp(hlc.Max(reads.At, t.prepared)), OnePhase: one,
		}}}}, true, nil
}

// mutation returns the write as a mutation of a request. known are the keys that were read.
func (w *Write) mutation(known map[string]bool) mutation {
	m := &kvpb.Mutation{Key: w.Key.Key, Value: w.Value, Read: len(known) > 0 && known[w.mapKey()]}
	if w.Delete {
		m.Kind, m.Value = kvpb.Mutation_DELETE, nil
	} else {
		m.Ttl = int64(w.Lifetime)
	}
	return mutation{w.Keyspace, m}
}

// twoPhase prepares, refreshes and decides.
func (t *Transaction) twoPhase(ctx context.Context, writes []Write, reads Reads,
	wait bool) (hlc.Timestamp, error) {
	mutations, known := make([]mutation, len(writes)), t.toCompare(writes, reads)
	for i := range writes {
		mutations[i] = writes[i].mutation(known)
	}
	compared := &compared{reads: &reads, known: known}
	at, err := t.acquire(ctx, mutations, hlc.Max(reads.At, t.prepared), nil,
		acquireOptions{compared: compared, wait: wait})
	if err == nil {
		reads, err = t.c.without(ctx, compared)
	}
	if err != nil {
		return hlc.Timestamp{}, t.fail(writes, err)
	}
	at = hlc.Max(hlc.Max(at, t.prepared), reads.At)
	d := &decision{t: t, locks: t.everyLock(keysOf(writes)), reads: reads, wait: wait}
	status, err := d.decide(ctx, at)
	if err != nil {
		t.c.stopHeartbeats(t)
		if errors.Is(err, ErrOutcomeUnknown) {
			again := *d // settle continues with a copy
			t.asks = func(ctx context.Context) (hlc.Timestamp, error) { return again.askAgain(ctx) }
			t.c.background(d.settle)
		} else {
			t.abort(keysOf(writes))
		}
		return hlc.Timestamp{}, err
	}
	t.c.stopHeartbeats(t)
	t.c.background(func(ctx context.Context) {
		t.c.resolve(ctx, t.wire(), status, d.locks, t.held.all)
	})
	return wire.FromTimestamp(status.Timestamp), nil
}

// decision runs the second phase: the commit of the record.
type decision struct {
	t     *Transaction
	locks []Key
	reads Reads
	wait  bool
	// maybe is set if a request to commit was sent that may have been executed, and could still
	// succeed.
	maybe bool
	// last is the last timestamp at which a commit was asked for.
	last hlc.Timestamp
	// pushed counts how often the transaction was pushed.
	pushed int
}

// decide commits at `at` or later, and returns the COMMITTED status.
func (d *decision) decide(ctx context.Context, at hlc.Timestamp) (*kvpb.TransactionStatus, error) {
	t := d.t
	for {
		// INVARIANT: everything read is unchanged up to the commit timestamp before the commit is
		// asked for.
		if !d.reads.empty() &&
			(d.reads.At.Less(at) || (len(d.reads.Leaderships) > 0 && d.pushed == 0)) {
			like := &kvpb.RefreshRequest{Transaction: t.id[:], Begun: wire.ToTimestamp(t.begun),
				Yield: d.pushed >= yieldAfter}
			if err := t.c.refreshLike(ctx, like, d.reads, at); err != nil {
				// No request to commit can succeed: either none was sent, or the record has a bound
				// above the timestamp of each.
				return nil, err
			}
			d.reads.At = at
		}
		bound, status, err := d.ask(ctx, at)
		if err != nil || status != nil {
			return status, err
		}
		d.pushed++
		t.c.metrics.pushed.Inc()
		at = bound.Next()
		if d.pushed > 1 {
			// Readers keep pushing. Under a timestamp slightly in the future they read without a
			// push.
			at = at.Add(t.c.lead(d.pushed))
		}
	}
}

// lead returns how far above the latest reader a commit timestamp is moved after so many pushes.
// The lead is at most the maximum clock offset of the cluster: a reader's clock may be ahead by one
// offset already, and servers refuse timestamps more than two offsets in the future.
func (c *Committer) lead(pushed int) time.Duration {
	d := min(maxLead, time.Millisecond<<min(pushed, 10))
	if bound := c.sender.MaxClockOffset(); bound > 0 {
		d = min(d, bound)
	}
	return d
}

// ask asks for the decision until it is made. If the transaction can only commit above a timestamp,
// ask returns that timestamp as bound.
func (d *decision) ask(ctx context.Context,
	at hlc.Timestamp) (bound hlc.Timestamp, status *kvpb.TransactionStatus, err error) {
	t := d.t
	for {
		if err := t.alive(); err != nil && (!d.maybe || errors.Is(err, ErrAborted)) {
			return hlc.Timestamp{}, nil, err
		}
		d.last = at
		response, err := d.send(ctx)
		if err == nil {
			status := response.GetEndTransaction().GetStatus()
			if status.GetState() == kvpb.TransactionState_COMMITTED {
				return hlc.Timestamp{}, status, nil
			}
			cause := fmt.Errorf("the coordinator answered a commit with %s", status.GetState())
			return hlc.Timestamp{}, nil, &Error{Kind: ErrOutcomeUnknown, Cause: cause}
		}
		r, answered := codeOf(err)
		switch {
		case !answered:
		case r.Code == kvpb.ErrorCode_TRANSACTION_ABORTED:
			// The answer is final; all other requests that were sent get the same answer.
			d.maybe = false
			return hlc.Timestamp{}, nil, classify(t.anchor.Keyspace, err)
		case r.Code == kvpb.ErrorCode_TRANSACTION_PUSHED && at.LessEq(r.Timestamp):
			// The record is pending, and no request so far asked for a later timestamp.
			d.maybe = false
			return r.Timestamp, nil, nil
		}
		d.maybe = d.maybe || unknown(err)
		if ctx.Err() == nil && !final(err) {
			if t.c.pause(ctx, endPause) == nil {
				continue
			}
		}
		if d.maybe {
			return hlc.Timestamp{}, nil, &Error{Kind: ErrOutcomeUnknown, Cause: err}
		}
		return hlc.Timestamp{}, nil, classify(t.anchor.Keyspace, err)
	}
}

// send asks for the commit at the last timestamp.
//
// INVARIANT: a commit names spans that hold every key that may have a lock: the coordinator forgets
// the decision when no lock is left in these spans. Partitions only serve to group the keys: a span
// may reach beyond its partition, and may later lie in several partitions. But the hash numbers
// must be right, so nothing is sent while a key's hash number is unknown.
func (d *decision) send(ctx context.Context) (*kvpb.Response, error) {
	places, err := d.t.c.placesOf(ctx, d.locks)
	if err != nil {
		return nil, err
	}
	return d.t.toAnchor(ctx,
		&kvpb.Request{Command: &kvpb.Request_EndTransaction{EndTransaction: &kvpb.EndTransactionRequest{
			Transaction: d.t.wire(), Commit: true, CommitTimestamp: wire.ToTimestamp(d.last),
			CommitWait:   d.wait,
			Participants: encoded(participantsOf(places)), HoldTimestamp: d.pushed >= holdAfter,
		}}})
}

// settle continues to ask for a decision after the caller has stopped waiting, so that others need
// not find the locks.
func (d *decision) settle(ctx context.Context) {
	for {
		response, err := d.send(ctx)
		status := response.GetEndTransaction().GetStatus()
		var e *Error
		if errors.As(classify(d.t.anchor.Keyspace, err), &e) && e.Kind == ErrAborted {
			status = e.status()
		} else if err != nil {
			r, answered := codeOf(err)
			if answered && r.Code == kvpb.ErrorCode_TRANSACTION_PUSHED && d.last.LessEq(r.Timestamp) {
				// The transaction is pending, and can be committed only above every timestamp that
				// was asked for.
				d.t.rollBack(ctx, d.locks)
				return
			}
			if final(err) || d.t.c.pause(ctx, endPause) != nil {
				return // requests that meet the locks find the transaction abandoned
			}
			continue
		}
		if status.GetState() != kvpb.TransactionState_PENDING {
			d.t.c.resolve(ctx, d.t.wire(), status, d.locks, d.t.held.all)
		}
		return
	}
}

// final reports whether sending the request again is useless.
func final(err error) bool {
	if errors.Is(err, route.ErrClosed) || errors.Is(err, route.ErrNoKeyspace) ||
		errors.Is(err, route.ErrWrongCluster) {
		return true
	}
	r, answered := codeOf(err)
	if !answered {
		return false
	}
	switch r.Code {
	case kvpb.ErrorCode_INVALID_ARGUMENT, kvpb.ErrorCode_TRANSACTION_TOO_OLD,
		kvpb.ErrorCode_TRANSACTION_CONFLICT:
		return true
	}
	return false
}
