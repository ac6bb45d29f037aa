package kv

import (
	"bytes"
	"context"
	"encoding/hex"
	"iter"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/writes"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/range/route/calltrace"
	"github.com/tidemarkdb/tidemark/txn/committer"
)

// Uncommitted is the version of a pair that the transaction itself has written. The commit replaces
// it by the real version.
func Uncommitted() Timestamp { return hlc.MaxTimestamp }

// TxnOption is an option of Update and Begin: CommitWait.
type TxnOption interface{ txn(*txnOptions) }

type txnOptions struct {
	commitWait bool
	// span is the span of Update, for all attempts. ownSpan is set for a transaction of Begin: span is
	// then the span of one attempt, which ends the span.
	span    calltrace.Span
	ownSpan bool
}

// Txn is one attempt of a transaction over any keys of any keyspaces. Update or Begin makes it. It
// reads everything at one timestamp, and sees its own writes. Its writes stay in the client until
// the commit, which applies all of them at one timestamp, or none.
//
// A Txn is for one goroutine. After its end every method fails with ErrTransactionEnded. When a
// method fails with ErrConflict or ErrTransactionAborted, all later calls fail as well, and the
// transaction has to run again. Update does that as soon as its function returns, whatever the
// function returns.
//
// The keyspaces must be those of the client that began the transaction (Client.Keyspace). With a
// keyspace of another client, even of the same cluster, a method fails with ErrInvalidArgument.
//
// A transaction can write at most 100,000 keys and 64 MiB (ErrTransactionTooLarge). Its reads are
// not limited. Beyond 10,000 keys and spans, reads are remembered less exactly, so that writes to
// neighbouring keys count as conflicts.
type Txn struct {
	reading
	transaction *committer.Transaction
	options     txnOptions
	writes      *writes.Buffer
	// attempt is the number of the attempt, from 1.
	attempt int
	// contended has the keys that an earlier attempt had read and written, or failed over. All
	// attempts share it.
	contended *contention
	// held has the spans that earlier attempts only read and failed over. heldAhead is set when this
	// attempt has asked to hold them. holding has the held spans, if all of them are held.
	held      *heldSpans
	heldAhead bool
	holding   []committer.Span
	// ahead has the pairs of keys that were locked before the function ran.
	ahead map[string]Pair
	// volatile is set if the transaction's locks are volatile, so that values which it reads under
	// them may not be committed yet. The caller is told no outcome before they are committed
	// (confirm).
	volatile bool
	// failed is the error because of which the transaction can no longer commit. cause is the error
	// behind it. Both are nil if there is none.
	failed, cause error
	ended         bool
	// rolledBack is set if the transaction has ended without an attempted commit.
	rolledBack bool
}

// Begin begins a transaction that the caller ends, with Commit or Rollback. Most callers use
// Update. When ctx ends, the transaction sends no more heartbeats. A few seconds later others may
// take its locks, which aborts the transaction. Until then, a commit may still succeed. When a call
// fails with ErrConflict or ErrTransactionAborted, Again begins the next attempt.
func (c *Client) Begin(ctx context.Context, options ...TxnOption) (*Txn, error) {
	var o txnOptions
	for _, option := range options {
		option.txn(&o)
	}
	ctx, o.span = c.conn.Tracer().Call(ctx, transactionSpan)
	o.ownSpan = true
	t, err := c.beginTxn(ctx, o, false)
	if err != nil {
		o.span.End(failureOf(err))
	}
	return t, err
}

// transactionSpan is the name of the span of a transaction.
const transactionSpan = "tidemark transaction"

func (c *Client) beginTxn(ctx context.Context, o txnOptions, volatile bool) (*Txn, error) {
	t, err := c.conn.Committer.Begin(ctx)
	if err != nil {
		return nil, c.wrapTxn("begin", "", nil, err)
	}
	return c.attemptTxn(&Txn{transaction: t, options: o, contended: new(contention),
		held: new(heldSpans), volatile: volatile, attempt: 1}), nil
}

// attemptTxn prepares an attempt that the committer has begun.
func (c *Client) attemptTxn(t *Txn) *Txn {
	t.reading = reading{client: c, id: t.transaction.ID(), begun: t.transaction.Begun()}
	t.writes = writes.New()
	return t
}

// ID returns the id of the attempt in the form of Error.Transaction and `tidemark debug txns`: 32
// hexadecimal digits.
func (t *Txn) ID() string { return hex.EncodeToString(t.transaction.ID()) }

// Again begins another attempt of a transaction that has ended. The new attempt counts as old as
// the first one. In conflicts over locks the older transaction wins, so an attempt succeeds
// eventually.
//
// Get, BatchGet and CompareAndSwap of the new attempt lock certain keys, as GetForUpdate does: keys
// that earlier attempts have both read and written, and keys that they have written and failed
// over. The attempt waits for the locks of others, and others wait for its locks until the attempt
// ends. The locks are replicated.
//
// ctx has the same role for the new attempt as the context of Begin has for the first one.
func (t *Txn) Again(ctx context.Context) (*Txn, error) {
	t.Rollback()
	if t.failed != nil {
		t.client.conn.Committer.Restarted(t.cause)
	}
	options := t.options
	if options.ownSpan {
		ctx, options.span = t.client.conn.Tracer().Call(ctx, transactionSpan)
	}
	next, err := t.transaction.Again(ctx)
	if err != nil {
		err = inAttempt(t.client.wrapTxn("begin", "", nil, err), t.attempt)
		if options.ownSpan {
			options.span.End(failureOf(err))
		}
		return nil, err
	}
	return t.client.attemptTxn(&Txn{
		transaction: next, options: options, contended: t.contended, held: t.held,
		attempt:  t.attempt + 1,
		volatile: t.volatile && !t.wantsReplicatedLocks(),
	}), nil
}

// wantsReplicatedLocks reports whether the next attempts should use replicated locks. Leaders keep
// volatile locks only as long as they lead. Replicated locks are better in two cases. First, a
// volatile lock was lost: a change of the leader is often followed by another change, to the
// preferred node. Second, an attempt takes so long that one more attempt would cost others that
// wait for it more than a round of consensus.
func (t *Txn) wantsReplicatedLocks() bool {
	return committer.LeaderChanged(t.cause) || t.transaction.Long()
}

// check returns why the transaction cannot be used, or nil. ks is nil where nothing is read or
// written. Reads are valid even if the transaction was aborted.
func (t *Txn) check(op string, ks *Keyspace, key []byte) error {
	switch {
	case t.ended:
		return ended(op, key)
	case t.failed != nil:
		return t.failed
	case ks == nil:
		return nil
	}
	if err := t.owns(op, ks, key); err != nil {
		return err
	}
	return t.fail(op, ks.name, key, t.transaction.Aborted())
}

// fail wraps an error, and stores it if the transaction can no longer commit.
func (t *Txn) fail(op, keyspace string, key []byte, err error) error {
	if err == nil {
		return nil
	}
	wrapped := inAttempt(t.client.wrapTxn(op, keyspace, key, err), t.attempt)
	if t.failed == nil && (mustRunAgain(err) || isTooOld(wrapped)) {
		t.failed, t.cause = wrapped, err
		t.noteContended(wrapped)
		t.held.note(t, asError(wrapped))
	}
	return wrapped
}

// resolve looks up the keyspace, and limits the context.
func (t *Txn) resolve(ctx context.Context, op string,
	ks *Keyspace) (context.Context, context.CancelFunc, *route.Keyspace, error) {
	ctx, cancel := t.client.conn.Bound(t.options.span.Within(ctx))
	found, err := ks.resolve(ctx, op)
	if err != nil {
		cancel()
		return nil, nil, nil, err
	}
	return ctx, cancel, found, nil
}

// Get returns the value of a key. It fails with ErrNotFound if there is none.
func (t *Txn) Get(ctx context.Context, ks *Keyspace, key []byte) (Pair, error) {
	p, err := t.lookUp(ctx, "get", ks, key, false)
	if err == nil && !p.Exists() {
		err = notFound("get", ks.name, key)
	}
	if err != nil {
		return Pair{}, err
	}
	return p, nil
}

// GetForUpdate does the same as Get, and locks the key until the transaction ends: other writers of
// the key wait. It waits for the locks of others, and reads the key's present value. It is for keys
// that many transactions write at the same time. Without the lock, such transactions would have to
// run again and again. It fails with ErrNotFound if the key has no value. The key is locked
// nevertheless.
func (t *Txn) GetForUpdate(ctx context.Context, ks *Keyspace, key []byte) (Pair, error) {
	p, err := t.lookUp(ctx, "get-for-update", ks, key, true)
	if err == nil && !p.Exists() {
		err = notFound("get-for-update", ks.name, key)
	}
	if err != nil {
		return Pair{}, err
	}
	return p, nil
}

// lookUp reads a key. The returned pair does not exist if there is no value.
func (t *Txn) lookUp(ctx context.Context, op string, ks *Keyspace, key []byte,
	lock bool) (Pair, error) {
	t.transaction.Enter()
	defer t.transaction.Leave()
	if err := t.check(op, ks, key); err != nil {
		return Pair{}, err
	}
	if err := ks.check(op, key, nil, ""); err != nil {
		return Pair{}, err
	}
	ctx, cancel, id, err := t.resolve(ctx, op, ks)
	if err != nil {
		return Pair{}, err
	}
	defer cancel()
	if err := t.holdAhead(ctx); err != nil {
		return Pair{}, t.fail(op, ks.name, key, err)
	}
	lock = t.contended.meets(id.ID, key, t.attempt) && !t.holds(id, key) || lock
	own, written := t.writes.Get(id.ID, key)
	if written && !lock {
		return ownPair(key, own), nil
	}
	var p Pair
	known := false
	if len(t.ahead) > 0 {
		p, known = t.ahead[contendedKey(id.ID, key)]
	}
	switch {
	case known:
		p = p.copied()
	case lock && !t.set.IsLocked(id.ID, key):
		p, err = t.lock(ctx, id, key)
	case !written:
		p, err = t.read(ctx, id, key)
	}
	if err != nil {
		return Pair{}, t.fail(op, ks.name, key, err)
	}
	if written {
		return ownPair(key, own), nil
	}
	return p, nil
}

// confirm makes sure that all values which were read are committed. It is needed if the transaction
// ends without a commit, because the commit would make sure of it.
func (t *Txn) confirm(ctx context.Context) error {
	if (t.ended && !t.rolledBack) || len(t.leaderships()) == 0 {
		return nil
	}
	t.transaction.Enter()
	defer t.transaction.Leave()
	return t.fail("update", "", nil, t.client.conn.Committer.Refresh(ctx, t.id, t.begun, t.reads(),
		t.at))
}

func ownPair(key []byte, w writes.Own) Pair {
	if w.Deleted {
		return Pair{Key: clone(key)}
	}
	return Pair{Key: clone(key), Value: owned(w.Value), Version: Uncommitted()}
}

func (r *reading) read(ctx context.Context, ks *route.Keyspace, key []byte) (Pair, error) {
	got, err := r.get(ctx, ks, key)
	if err != nil {
		return Pair{}, err
	}
	p := Pair{Key: clone(key)}
	if got.Found {
		p.Value, p.Version = owned(got.Value), fromWire(got.Version)
		p.Expires = expiryOf(got.Expires)
	}
	return p, nil
}

// copied returns a pair that shares no memory with p.
func (p Pair) copied() Pair {
	return Pair{Key: clone(p.Key), Value: bytes.Clone(p.Value), Version: p.Version,
		Expires: p.Expires}
}

// lock locks a key and reads its value under the lock. The value is the present one, so all other
// reads are moved to the present.
func (t *Txn) lock(ctx context.Context, ks *route.Keyspace, key []byte) (Pair, error) {
	if t.set.Locks() >= writes.MaxKeys {
		return Pair{}, tooLarge("get-for-update", ks.Info.Name, key,
			"with this key the transaction holds more than 100,000 locks; split it into several")
	}
	got, err := t.transaction.Lock(ctx, t.at, t.volatile,
		committer.Key{Keyspace: ks.ID, Key: clone(key)})
	if err != nil {
		return Pair{}, err
	}
	value, at := got[0].Value, got[0].At
	version := fromWire(value.GetVersion())
	if earlier, seen := t.set.Seen(ks, key); seen && earlier != version {
		return Pair{}, &committer.Error{Kind: committer.ErrConflict,
			Key: committer.Key{Keyspace: ks.ID, Key: key}}
	}
	switch {
	case t.at.IsZero():
		t.start(at, at)
	case value.GetFound() && version.LessEq(t.at):
		// The value is the same at the timestamp of the other reads.
	default:
		if err := t.moveTo(ctx, at); err != nil {
			return Pair{}, err
		}
	}
	t.set.Lock(ks, key)
	if value.GetExpires() != 0 {
		// The lock prevents others from writing the key, but it does not prevent the value from expiring.
		t.set.Again(ks, key, version)
	}
	t.lockedUnder(t.transaction.Leaderships())
	p := Pair{Key: clone(key)}
	if value.GetFound() {
		p.Value, p.Version, p.Expires = owned(value.Value), version, expiryOf(value.Expires)
	}
	return p, nil
}

// BatchGet reads many keys of a keyspace. It returns a pair for each key, in the order of the keys.
// Exists is false for keys without a value.
func (t *Txn) BatchGet(ctx context.Context, ks *Keyspace, userKeys [][]byte) ([]Pair, error) {
	const op = "batch-get"
	t.transaction.Enter()
	defer t.transaction.Leave()
	if err := t.check(op, ks, nil); err != nil {
		return nil, err
	}
	for _, key := range userKeys {
		if err := ks.check(op, key, nil, ""); err != nil {
			return nil, err
		}
	}
	ctx, cancel, id, err := t.resolve(ctx, op, ks)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if err := t.holdAhead(ctx); err != nil {
		return nil, t.fail(op, ks.name, nil, err)
	}
	pairs := make([]Pair, len(userKeys))
	locked, err := t.lockContended(ctx, id, userKeys)
	if err != nil {
		return nil, t.fail(op, ks.name, nil, err)
	}
	var ask [][]byte
	var places []int
	for i, key := range userKeys {
		if own, written := t.writes.Get(id.ID, key); written {
			pairs[i] = ownPair(key, own)
			continue
		}
		if p, there := locked[string(key)]; there {
			pairs[i] = p.copied()
			continue
		}
		ask, places = append(ask, key), append(places, i)
	}
	got, err := t.batchGet(ctx, ks, id, ask)
	if err != nil {
		return nil, t.fail(op, ks.name, nil, err)
	}
	for i, p := range got {
		pairs[places[i]] = p
	}
	return pairs, nil
}

// Scan iterates over pairs in key order. It includes the transaction's writes from before the scan
// began. The options are those of Keyspace.Scan, without At. The loop may read and write in the
// same transaction. If an error occurs, it is the last thing that the scan yields.
func (t *Txn) Scan(ctx context.Context, ks *Keyspace,
	options ...ScanOption) iter.Seq2[Pair, error] {
	return t.scanAs(ctx, "scan", ks, func(q *query) {
		for _, o := range options {
			o.scan(q)
		}
	})
}

func (t *Txn) scanAs(ctx context.Context, op string, ks *Keyspace,
	options func(*query)) iter.Seq2[Pair, error] {
	return func(give func(Pair, error) bool) {
		ctx := t.options.span.Within(ctx)
		t.transaction.Enter()
		defer t.transaction.Leave()
		// The time that the caller spends on a row counts as idle: the caller may take long, or forget
		// the transaction.
		yield := func(p Pair, err error) bool {
			t.transaction.Leave()
			defer t.transaction.Enter()
			return give(p, err)
		}
		if err := t.check(op, ks, nil); err != nil {
			yield(Pair{}, err)
			return
		}
		q, id, err := scanQuery(ctx, op, ks, options)
		if err != nil || q.empty() {
			if err != nil {
				yield(Pair{}, err)
			}
			return
		}
		if err := t.holdAhead(ctx); err != nil {
			yield(Pair{}, t.fail(op, ks.name, nil, err))
			return
		}
		t.scan(ctx, ks, id, q, t.writes, func(p Pair, err error) bool {
			return yield(p, t.fail(op, ks.name, nil, err))
		})
	}
}

// scanQuery collects the options, and looks up the keyspace.
func scanQuery(ctx context.Context, op string, ks *Keyspace,
	options func(*query)) (q query, id *route.Keyspace, err error) {
	options(&q)
	bad := q.check()
	switch {
	case bad != "":
	case q.HasAt:
		bad = "At: a transaction reads at one moment; SnapshotAt reads the past"
	case q.fresh.near():
		bad = "a transaction reads from leaders; View takes options that say how old what it " +
			"reads may be"
	case q.info != nil:
		bad = "ReadAt: all reads are of one moment; Timestamp says which"
	}
	if bad != "" {
		return q, nil, invalid(op, ks.name, nil, "%s", bad)
	}
	id, err = ks.boundedResolve(ctx, op)
	return q, id, err
}

// Put writes the value of a key. If it fails, this write is not part of the transaction. The other
// writes are, and can be committed.
func (t *Txn) Put(ks *Keyspace, key, value []byte, options ...WriteOption) error {
	w := newWriteOptions(options)
	if w.bad != "" {
		return invalid("put", ks.name, key, "%s", w.bad)
	}
	return t.write("put", ks, key, writes.Own{Value: value, Lifetime: w.lifetime})
}

// Delete deletes the value of a key. A key without a value is no error.
func (t *Txn) Delete(ks *Keyspace, key []byte) error {
	return t.write("delete", ks, key, writes.Own{Deleted: true})
}

func (t *Txn) write(op string, ks *Keyspace, key []byte, own writes.Own) error {
	t.transaction.Enter()
	defer t.transaction.Leave()
	if err := t.check(op, ks, key); err != nil {
		return err
	}
	if err := ks.check(op, key, own.Value, ""); err != nil {
		return err
	}
	id := t.client.conn.Sender.Table().KeyspaceByName(ks.name)
	if id == nil {
		// The table may lag behind. The client waits for it within the lifetime of the transaction.
		ctx, cancel := t.client.conn.Bound(t.transaction.Life())
		defer cancel()
		var err error
		if id, err = ks.resolve(ctx, op); err != nil {
			return err
		}
	}
	if bad := t.writes.Put(id.ID, key, own); bad != "" {
		return tooLarge(op, ks.name, key, bad)
	}
	t.transaction.AnchorAt(committer.Key{Keyspace: id.ID, Key: clone(key)})
	return nil
}

// Savepoint is a state of a transaction's writes.
type Savepoint struct {
	txn    *Txn
	number uint64
}

// Savepoint remembers the transaction's writes so far. The latest 1,000 savepoints are kept.
func (t *Txn) Savepoint() Savepoint {
	t.transaction.Enter()
	defer t.transaction.Leave()
	if t.ended {
		return Savepoint{}
	}
	return Savepoint{t, t.writes.Save()}
}

// RollbackTo undoes the writes since a savepoint, and removes later savepoints. The savepoint
// itself stays. Reads still count, and locks stay.
func (t *Txn) RollbackTo(s Savepoint) error {
	const op = "roll back"
	t.transaction.Enter()
	defer t.transaction.Leave()
	if err := t.check(op, nil, nil); err != nil {
		return err
	}
	if s.txn != t || !t.writes.RollBack(s.number) {
		return invalid(op, "", nil,
			"the savepoint is not one of this transaction, or was forgotten: after a rollback to "+
				"an earlier one, or with 1,000 later ones")
	}
	return nil
}

// Timestamp returns the timestamp at which the transaction reads. It is zero before the first read.
// It can move up while the transaction runs, if all data that was read is the same at the later
// timestamp.
func (t *Txn) Timestamp() Timestamp { return t.at }

// Len returns the number of keys that the transaction has written. Bytes returns their size with
// values.
func (t *Txn) Len() int   { return t.writes.Len() }
func (t *Txn) Bytes() int { return t.writes.Bytes() }

// Commit ends the transaction and returns its timestamp: the version of all its writes. A
// transaction that has only read is committed at the timestamp of its reads.
//
// ErrConflict and ErrTransactionAborted mean that the transaction is not committed and has to run
// again (Again). ErrOutcomeUnknown means that the context ended before the outcome was known.
// Outcome asks for the outcome later. Any other error means that the transaction is not committed
// and never will be.
//
// Within the function of Update, Commit does nothing and returns ErrInvalidArgument: Update commits
// when the function has returned.
func (t *Txn) Commit(ctx context.Context) (_ Timestamp, err error) {
	switch {
	case t.options.ownSpan:
		defer func() { t.options.span.End(failureOf(err)) }()
	case !t.ended:
		return Timestamp{}, invalid("commit", "", nil, "Update commits the transaction when its "+
			"function returns nil; remove the commit from the function, or use Begin")
	}
	return t.commit(ctx)
}

func (t *Txn) commit(ctx context.Context) (Timestamp, error) {
	const op = "commit"
	t.transaction.Enter()
	defer t.transaction.Leave()
	if err := t.check(op, nil, nil); err != nil {
		t.Rollback()
		return Timestamp{}, err
	}
	ctx, cancel := t.client.conn.Bound(t.options.span.Within(ctx))
	defer cancel()
	t.ended = true
	all := t.writes.All()
	at, err := t.transaction.Commit(ctx, all, t.reads(),
		t.options.commitWait || t.client.anyWaits(all))
	if err != nil {
		return Timestamp{}, t.asking(t.fail(op, "", nil, err))
	}
	t.client.conn.Sender.Clock.Saw(at)
	return at, nil
}

// anyWaits reports whether a keyspace of the writes has commit wait.
func (c *Client) anyWaits(writes []committer.Write) bool {
	table := c.conn.Sender.Table()
	var looked keys.KeyspaceID
	for i := range writes {
		id := writes[i].Key.Keyspace
		if i > 0 && id == looked {
			continue
		}
		// A keyspace that is not in the table is dropped, and nothing is written to it.
		if ks := table.KeyspaceByID(id); ks != nil && ks.Info.CommitWait {
			return true
		}
		looked = id
	}
	return false
}

// Rollback ends the transaction without effect. Its locks are released in the background. After the
// end of the transaction it does nothing.
func (t *Txn) Rollback() {
	t.rolledBack = t.rolledBack || !t.ended
	t.ended = true
	t.transaction.Abort()
	if t.options.ownSpan {
		t.options.span.End("")
	}
}
