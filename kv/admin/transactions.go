package admin

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn/committer"
)

// OpenTransaction is a transaction that holds locks, in one partition or in many.
type OpenTransaction struct {
	// ID is the id of the present attempt, as in kv.Error.Transaction. Begun is the start of the
	// first attempt, Age the time since the start of the present one.
	ID    string
	Begun kv.Timestamp
	Age   time.Duration
	// Idle is the time for which the application had made no call in the transaction when its client
	// was last heard. It is zero if that time was short or is not known (State).
	Idle time.Duration
	// Keyspace and Partition name the coordinating partition. They are empty and 0 if the keyspace is
	// gone.
	Keyspace  string
	Partition uint64
	// State is "pending", or for a short time "committed" or "aborted"; "" if the coordinating
	// partition has no record of the transaction (it may have just begun), or was not asked.
	State string
	// Locks and Spans are the numbers of locked keys and held spans, in Partitions partitions. Key is
	// the key with the oldest lock, or the start of the oldest held span. It is in KeyKeyspace, and
	// has been locked since OldestLock.
	Locks       uint64
	Spans       uint64
	Partitions  int
	Key         []byte
	KeyKeyspace string
	OldestLock  time.Duration
	// Client is the client's number, ClientAddress the address that it is connected from; "" if it
	// is not connected.
	Client        uint64
	ClientAddress string
	// Waiters are the transactions that wait for its locks, the longest wait first.
	Waiters []LockWaiter
}

// Transactions lists the transactions that hold locks at present, those with the oldest locks
// first, and at most `most`. keyspace selects the transactions with locks in one keyspace. If it is
// empty, all keyspaces are listed. Each transaction is listed once, with the knowledge of all
// partitions that were asked. In other respects Transactions is like LiveTransactions.
func (c *Client) Transactions(ctx context.Context, keyspace string,
	most int) ([]OpenTransaction, bool, error) {
	const op = "transactions"
	if most < 1 {
		return nil, false, invalid(op, keyspace,
			"at most %d are asked for; ask for at least one", most)
	}
	found := &liveTransactions{most: maxInspected}
	if err := c.inspectAll(ctx, op, keyspace, nil, found); err != nil {
		return nil, false, err
	}
	merged := make(map[string]*OpenTransaction)
	for i := range found.all {
		c.merge(merged, &found.all[i])
	}
	all := make([]OpenTransaction, 0, len(merged))
	for _, x := range merged {
		slices.SortStableFunc(x.Waiters, func(a, b LockWaiter) int {
			return cmp.Compare(b.Waited, a.Waited)
		})
		all = append(all, *x)
	}
	slices.SortFunc(all, func(a, b OpenTransaction) int {
		return cmp.Or(cmp.Compare(b.OldestLock, a.OldestLock), cmp.Compare(a.ID, b.ID))
	})
	more := found.more
	if len(all) > most {
		all, more = all[:most], true
	}
	return all, more, found.err(op, keyspace)
}

// merge adds one partition's knowledge of a transaction.
func (c *Client) merge(into map[string]*OpenTransaction, found *LiveTransaction) {
	x := into[found.ID]
	if x == nil {
		x = &OpenTransaction{ID: found.ID, Begun: found.Begun}
		x.Keyspace, x.Partition = c.coordinates(found.wire.GetTransaction())
		into[found.ID] = x
	}
	x.Age = max(x.Age, micros(found.wire.AgeMicros))
	x.Locks += found.Locks
	x.Spans += found.Spans
	x.Partitions++
	if x.Key == nil || found.OldestLock > x.OldestLock {
		x.Key, x.KeyKeyspace, x.OldestLock = found.Key, found.Keyspace, found.OldestLock
	}
	if found.State != "" {
		x.State, x.Idle = found.State, micros(found.wire.IdleMicros)
	}
	if x.ClientAddress == "" {
		x.Client, x.ClientAddress = found.wire.Client, found.wire.ClientAddress
	}
	x.Waiters = append(x.Waiters, found.Waiters...)
}

// coordinates returns the partition that coordinates a transaction, if it is known.
func (c *Client) coordinates(t *kvpb.Transaction) (keyspace string, partition uint64) {
	ks := c.conn.Sender.Table().KeyspaceByID(keys.KeyspaceID(t.GetKeyspace()))
	if ks == nil {
		return "", 0
	}
	if p := ks.ByKey(t.Anchor); p != nil {
		partition = uint64(p.ID)
	}
	return ks.Info.Name, partition
}

// TransactionEnd is how a transaction ended.
type TransactionEnd struct {
	// Committed: the transaction had committed before it could be aborted, at the timestamp At.
	Committed bool
	At        kv.Timestamp
	// Reason is the reason of the abort, in words: this request, or an earlier reason.
	Reason string
	// Already: an earlier request had aborted the transaction, and its locks were gone.
	Already bool
}

// AbortTransaction aborts a transaction, given the id of an attempt (kv.Txn.ID,
// OpenTransaction.ID), wherever its client runs. The client learns of the abort at its next call.
// kv.Client.Update then runs the function again. A transaction that has committed stays committed,
// and the result says so. The call may be repeated: the leader that aborted the transaction
// remembers the id for a while. The error is kv.ErrNotFound if no partition has a lock of the
// transaction: it has ended, or has locked nothing.
func (c *Client) AbortTransaction(ctx context.Context, id string) (TransactionEnd, error) {
	const op = "abort transaction"
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) != txnIDSize {
		return TransactionEnd{}, invalid(op, "",
			"%q is no transaction's id, which has %d hexadecimal digits", id, 2*txnIDSize)
	}
	ctx, cancel := c.conn.Bound(ctx)
	defer cancel()
	found := &liveTransactions{most: maxInspected}
	inner, stop := share(ctx, 2)
	err = c.inspectAll(inner, op, "", raw, found)
	stop()
	if err != nil {
		return TransactionEnd{}, err
	}
	// A server of an earlier version returns all transactions.
	found.all = slices.DeleteFunc(found.all, func(x LiveTransaction) bool { return x.ID != id })
	if len(found.all) == 0 {
		if err := found.err(op, ""); err != nil {
			return TransactionEnd{}, err
		}
		return TransactionEnd{}, noSuchTransaction(op, id)
	}
	if x := found.all[0]; len(found.all) == 1 && x.Locks+x.Spans == 0 && x.State == "aborted" {
		return TransactionEnd{Reason: endedBecause(x.wire.Record.GetReason()), Already: true}, nil
	}
	return c.abortFound(ctx, op, id, found.all)
}

// txnIDSize is the length of a transaction's id in bytes.
const txnIDSize = 16

func noSuchTransaction(op, id string) error {
	e := kv.NewError(op, "", "no partition knows a lock of transaction "+id+
		": it has ended, or has locked nothing yet; there is nothing to abort", kv.ErrNotFound)
	e.Transaction = id
	return e
}

// abortFound aborts a transaction whose locks were found.
func (c *Client) abortFound(ctx context.Context, op, id string,
	found []LiveTransaction) (TransactionEnd, error) {
	transaction := found[0].wire.GetTransaction()
	var locked []committer.Key
	for _, x := range found {
		if len(x.Key) > 0 { // the start of a held span is not always a key
			locked = append(locked, committer.Key{Keyspace: x.keyspaceID, Key: x.Key})
		}
	}
	status, err := c.conn.Committer.AbortOther(ctx, transaction, locked)
	switch {
	case err != nil:
		return TransactionEnd{}, c.conn.Wrap(op, "", err)
	case status == nil:
		return TransactionEnd{}, noSuchTransaction(op, id)
	case status.State == kvpb.TransactionState_COMMITTED:
		return TransactionEnd{Committed: true, At: wire.FromTimestamp(status.Timestamp)}, nil
	}
	return TransactionEnd{Reason: endedBecause(status.Reason)}, nil
}

// endedBecause describes the reason of an abort in words.
func endedBecause(reason kvpb.AbortReason) string {
	switch reason {
	case kvpb.AbortReason_ROLLED_BACK:
		return "its client rolled it back"
	case kvpb.AbortReason_WOUNDED:
		return "an older transaction wanted one of its keys"
	case kvpb.AbortReason_ABANDONED:
		return "nothing was heard of its client"
	case kvpb.AbortReason_EXPIRED:
		return "it was open for too long"
	case kvpb.AbortReason_IDLE:
		return "it was idle for too long"
	case kvpb.AbortReason_REQUESTED:
		return "it was asked for"
	}
	return "of an unknown reason"
}
