package kv

import (
	"context"
	"iter"
	"time"

	"github.com/tidemarkdb/tidemark/kv/internal/reader"
)

// Snapshot reads any keys of any keyspaces at one timestamp, without locks. View makes a snapshot
// of the present, SnapshotAt makes one of the past.
//
// The keyspaces must be those of its client (Client.Keyspace). With a keyspace of another client,
// even of the same cluster, a method fails with ErrInvalidArgument.
//
// A Snapshot of a View is for one goroutine, and fails with ErrTransactionEnded when its function
// has returned. A Snapshot of SnapshotAt may be used by several goroutines and needs no end.
type Snapshot struct {
	// past is the timestamp of a SnapshotAt, if isPast is set. It may be zero. The other fields are
	// not used then.
	past   Timestamp
	isPast bool
	// anyReplica is set if replicas that do not lead may answer. first, if not nil, is the option of
	// the first read, which chooses the timestamp.
	anyReplica bool
	first      *FreshnessOption

	reading
	// attempt is the number of the run of a View's function, from 1.
	attempt int
	// failed is the error because of which the snapshot can no longer be read. cause is the error
	// behind it.
	failed, cause error
	ended         bool
}

// View runs f with a snapshot of the present: the snapshot has every write that was acknowledged
// before the first read of f. View takes no lock, and nothing waits for it.
//
// f may run several times. Between two reads, View may find that it cannot tell whether a write was
// acknowledged before View began. Then it runs f again at a later timestamp. If that happens again,
// it waits until the clocks of all servers have passed the timestamp, about twice the maximum clock
// offset. After that f does not run again, whatever others write. If f returns an error, View
// returns it unchanged.
//
// With Nearest, MaxStaleness, AnyStaleness or ReadYourWrites the snapshot is from the recent past,
// as old as the option allows, and the nearest replicas answer. The first read chooses the
// timestamp, which is closed for all data of this read. f runs once. With LinearizableFollower the
// snapshot is of the present, as without options, and the nearest replicas answer.
func (c *Client) View(ctx context.Context, f func(s *Snapshot) error, options ...ViewOption) error {
	const op = "view"
	if f == nil {
		return invalid(op, "", nil, "there is no function to run")
	}
	first, linearizable, bad := viewOptions(options)
	if bad != "" {
		return invalid(op, "", nil, "%s", bad)
	}
	ctx, cancel := c.conn.Bound(ctx)
	defer cancel()
	if first != nil {
		s := &Snapshot{reading: reading{client: c}, attempt: 1, anyReplica: true, first: first}
		return interrupted(ctx, op, 1, nil, s.run(f))
	}
	var near *reader.Near
	if linearizable {
		near = followerRead
	}
	var before error
	began := time.Now()
	for attempt := 1; ; attempt++ {
		s := &Snapshot{reading: reading{client: c, near: near}, attempt: attempt}
		if attempt > 1 && c.lateIsDue(ctx, attempt, began) {
			if err := s.beginLate(ctx); err != nil {
				return gaveUp(op, attempt-1, before, err)
			}
		}
		err := s.run(f)
		if s.failed == nil || !runAgain(s.failed) {
			return interrupted(ctx, op, attempt, before, err)
		}
		before = s.failed
		if stop := c.pauseRun(ctx, attempt); stop != nil {
			return gaveUp(op, attempt, s.failed, stop)
		}
		c.conn.Committer.Restarted(s.cause)
	}
}

// promptAttempts limits the attempts of a View at timestamps that can be read at once.
const promptAttempts = 3

// lateIsDue reports whether the next attempt of a View should wait for a timestamp at which nothing
// is uncertain. That is so if enough attempts have failed, or if they took as long as that wait,
// and there is enough time for it.
func (c *Client) lateIsDue(ctx context.Context, attempt int, began time.Time) bool {
	wait := c.conn.LateWait()
	if deadline, has := ctx.Deadline(); has && time.Until(deadline) < wait {
		return false
	}
	return attempt > promptAttempts || time.Since(began) >= wait
}

func (s *Snapshot) run(f func(*Snapshot) error) error {
	defer func() { s.ended = true }()
	return f(s)
}

// SnapshotAt reads the past at ts: the versions at or below ts, whenever they were acknowledged. It
// reaches as far back as the GC windows of the keyspaces. At the zero timestamp nothing can be
// read: ErrInvalidArgument. Leaders answer, or with Nearest the nearest replicas.
func (c *Client) SnapshotAt(ts Timestamp, options ...ViewOption) *Snapshot {
	s := &Snapshot{past: ts, isPast: true, reading: reading{client: c}}
	var q query
	for _, o := range options {
		o.view(&q)
	}
	s.anyReplica = q.fresh.near()
	if bad := q.fresh.conflict(true); bad != "" {
		s.failed = invalid("snapshot", "", nil, "%s", bad)
	}
	return s
}

// Timestamp returns the timestamp of the snapshot. It is zero in a View that has not read yet. The
// timestamp of a View can move up while the View runs, if all data that was read is the same at the
// later timestamp.
func (s *Snapshot) Timestamp() Timestamp {
	if s.isPast {
		return s.past
	}
	return s.at
}

func (s *Snapshot) check(op string, ks *Keyspace, key []byte) error {
	switch {
	case s.ended:
		return ended(op, key)
	case s.failed != nil:
		return s.failed
	}
	return s.owns(op, ks, key)
}

func (s *Snapshot) fail(op, keyspace string, key []byte, err error) error {
	if err == nil {
		return nil
	}
	wrapped := inAttempt(s.client.wrapTxn(op, keyspace, key, err), s.attempt)
	if s.failed == nil && (mustRunAgain(err) || isTooOld(wrapped)) {
		s.failed, s.cause = wrapped, err
	}
	return wrapped
}

// Get returns the value of a key. It fails with ErrNotFound if there is none.
func (s *Snapshot) Get(ctx context.Context, ks *Keyspace, key []byte) (Pair, error) {
	const op = "get"
	if err := s.check(op, ks, key); err != nil {
		return Pair{}, err
	}
	var found ReadInfo
	if exact, ok := s.exactly(&found); ok {
		p, err := ks.Get(ctx, key, as[GetOption](exact)...)
		s.found(found.At)
		return p, err
	}
	if err := ks.check(op, key, nil, ""); err != nil {
		return Pair{}, err
	}
	ctx, cancel := s.client.conn.Bound(ctx)
	defer cancel()
	id, err := ks.resolve(ctx, op)
	if err != nil {
		return Pair{}, err
	}
	p, err := s.read(ctx, id, key)
	if err != nil {
		return Pair{}, s.fail(op, ks.name, key, err)
	}
	if !p.Exists() {
		return Pair{}, notFound(op, ks.name, key)
	}
	return p, nil
}

// BatchGet reads many keys of a keyspace. It returns a pair for each key, in the order of the keys.
// Exists is false for keys without a value.
func (s *Snapshot) BatchGet(ctx context.Context, ks *Keyspace, userKeys [][]byte) ([]Pair, error) {
	const op = "batch-get"
	if err := s.check(op, ks, nil); err != nil {
		return nil, err
	}
	var found ReadInfo
	if exact, ok := s.exactly(&found); ok {
		pairs, err := ks.BatchGet(ctx, userKeys, as[GetOption](exact)...)
		s.found(found.At)
		return pairs, err
	}
	for _, key := range userKeys {
		if err := ks.check(op, key, nil, ""); err != nil {
			return nil, err
		}
	}
	ctx, cancel := s.client.conn.Bound(ctx)
	defer cancel()
	id, err := ks.resolve(ctx, op)
	if err != nil {
		return nil, err
	}
	pairs, err := s.batchGet(ctx, ks, id, userKeys)
	if err != nil {
		return nil, s.fail(op, ks.name, nil, err)
	}
	return pairs, nil
}

// Scan iterates over pairs in key order. The options are those of Keyspace.Scan, without At. If an
// error occurs, it is the last thing that the scan yields.
func (s *Snapshot) Scan(ctx context.Context, ks *Keyspace,
	options ...ScanOption) iter.Seq2[Pair, error] {
	const op = "scan"
	return func(yield func(Pair, error) bool) {
		if err := s.check(op, ks, nil); err != nil {
			yield(Pair{}, err)
			return
		}
		q, id, err := scanQuery(ctx, op, ks, func(q *query) {
			for _, o := range options {
				o.scan(q)
			}
		})
		var found ReadInfo
		exact, ok := s.exactly(&found)
		switch {
		case err != nil:
			yield(Pair{}, err)
		case ok:
			ks.Scan(ctx, as(exact, options...)...)(func(p Pair, err error) bool {
				s.found(found.At) // before the loop reads anything else
				return yield(p, err)
			})
			s.found(found.At)
		case !q.empty():
			s.scan(ctx, ks, id, q, nil, func(p Pair, err error) bool {
				return yield(p, s.fail(op, ks.name, nil, err))
			})
		}
	}
}

// Count counts the keys of the keyspace, or the keys within Prefix, From and To.
func (s *Snapshot) Count(ctx context.Context, ks *Keyspace,
	options ...CountOption) (uint64, error) {
	const op = "count"
	if err := s.check(op, ks, nil); err != nil {
		return 0, err
	}
	q, id, err := scanQuery(ctx, op, ks, func(q *query) {
		for _, o := range options {
			o.count(q)
		}
	})
	if err != nil || q.empty() {
		return 0, err
	}
	var found ReadInfo
	if exact, ok := s.exactly(&found); ok {
		n, err := ks.Count(ctx, as(exact, options...)...)
		s.found(found.At)
		return n, err
	}
	ctx, cancel := s.client.conn.Bound(ctx)
	defer cancel()
	total, err := s.count(ctx, ks, id, &q)
	return total, s.fail(op, ks.name, nil, err)
}
