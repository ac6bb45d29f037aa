package admin

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// LiveTransaction is a transaction with locks in a partition, according to that partition.
type LiveTransaction struct {
	// ID is the id as in kv.Error.Transaction. Begun is the time at which the first attempt of the
	// transaction began: in conflicts the older transaction wins.
	ID    string
	Begun kv.Timestamp
	// Keyspace and Partition say where the locks are.
	Keyspace  string
	Partition uint64
	// Locks and Spans are the numbers of locked keys and of held spans. OldestLock is the age of
	// the oldest lock, and Key its key, or the start of its span.
	Locks      uint64
	Spans      uint64
	OldestLock time.Duration
	Key        []byte
	// State is "pending", "committed" or "aborted" if this partition coordinates the transaction
	// and has its record; otherwise "".
	State string
	// Waiters are the requests that wait for the locks, in the order in which they came.
	Waiters []LockWaiter

	// keyspaceID is the id of Keyspace. wire is the partition's answer.
	keyspaceID keys.KeyspaceID
	wire       *kvpb.LiveTransaction
}

// LockWaiter is a request that waits for another transaction's lock.
type LockWaiter struct {
	// Transaction is the id of the waiting request's transaction. It is "" if the request belongs to
	// no transaction.
	Transaction string
	Key         []byte
	Waited      time.Duration
	// Write: the request writes or locks the key; otherwise it reads the key.
	Write bool
}

// LiveTransactions lists the transactions that hold locks at present, with the requests that wait
// for these locks. Transactions with the oldest locks come first, and at most `most` are listed.
// keyspace selects the transactions with locks in one keyspace. If it is empty, all keyspaces are
// listed. A transaction with locks in several partitions is listed once for each. The list is meant
// for people: the leaders are asked at different times, and the state may have changed when the
// answer arrives. The second result reports whether there are more transactions. If partitions do
// not answer, the error wraps an UnansweredError, and the answers of the other partitions are
// returned with it.
func (c *Client) LiveTransactions(ctx context.Context, keyspace string,
	most int) ([]LiveTransaction, bool, error) {
	const op = "live transactions"
	if most < 1 {
		return nil, false, invalid(op, keyspace,
			"at most %d are asked for; ask for at least one", most)
	}
	found := &liveTransactions{most: most}
	if err := c.inspectAll(ctx, op, keyspace, nil, found); err != nil {
		return nil, false, err
	}
	return found.all, found.more, found.err(op, keyspace)
}

// inspectAll asks the partitions of a keyspace for the transactions that have locks, or for one
// transaction. An empty name stands for all keyspaces.
func (c *Client) inspectAll(ctx context.Context, op, keyspace string, only []byte,
	found *liveTransactions) error {
	ctx, cancel := c.conn.Bound(ctx)
	defer cancel()
	var keyspaces []*route.Keyspace
	if keyspace != "" {
		ks, err := c.conn.Resolve(ctx, keyspace)
		if err != nil {
			return c.conn.Wrap(op, keyspace, err)
		}
		keyspaces = append(keyspaces, ks)
	} else {
		infos, err := c.Keyspaces(ctx)
		if err != nil {
			return err
		}
		table := c.conn.Sender.Table()
		for _, info := range infos {
			if ks := table.KeyspaceByID(keys.KeyspaceID(info.ID)); ks != nil {
				keyspaces = append(keyspaces, ks)
			}
		}
	}
	var asked []inspection
	for i, ks := range keyspaces {
		inner, cancel := share(ctx, len(keyspaces)-i+1)
		parts, err := c.conn.Sender.PartitionsOf(inner, ks.ID, keys.Span{})
		cancel()
		if err != nil {
			c.failed(found, inspection{keyspace: ks}, err)
		}
		for _, p := range parts {
			asked = append(asked, inspection{ks, p})
		}
	}
	rounds := (len(asked) + conn.ParallelRequests - 1) / conn.ParallelRequests
	_ = conn.InParallel(ctx, len(asked), conn.ParallelRequests, func(ctx context.Context,
		i int) error {
		inner, cancel := share(ctx, rounds-i/conn.ParallelRequests)
		defer cancel()
		c.inspect(inner, asked[i], only, found)
		return nil // the answers of the other partitions are still useful
	})
	found.cut()
	return nil
}

// share limits ctx to one of parts equal parts of its remaining time; a context without a deadline
// gets no limit.
func share(ctx context.Context, parts int) (context.Context, context.CancelFunc) {
	deadline, has := ctx.Deadline()
	if !has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(parts))
}

// UnansweredError names the partitions that did not answer LiveTransactions.
type UnansweredError struct {
	// Partitions has at least one error, each with Keyspace and Partition; Partition is 0 if the
	// partitions of a keyspace could not be found out.
	Partitions []*kv.Error
}

// Error returns the number of partitions, and the error of the first.
func (e *UnansweredError) Error() string {
	if len(e.Partitions) == 1 {
		return fmt.Sprintf("a partition did not answer: %v", e.Partitions[0])
	}
	return fmt.Sprintf("%d partitions did not answer; the first: %v", len(e.Partitions),
		e.Partitions[0])
}

// Unwrap makes errors.Is and errors.As find the Partitions.
func (e *UnansweredError) Unwrap() []error {
	all := make([]error, len(e.Partitions))
	for i, p := range e.Partitions {
		all[i] = p
	}
	return all
}

// liveTransactions collects the transactions with the oldest locks.
type liveTransactions struct {
	most int
	mu   sync.Mutex
	all  []LiveTransaction
	more bool
	// unanswered are the partitions that did not answer.
	unanswered []*kv.Error
}

// inspection is the question to one partition. The partition is missing if the partitions of the
// keyspace are not known.
type inspection struct {
	keyspace  *route.Keyspace
	partition *route.Partition
}

// failed records why a partition did not answer.
func (c *Client) failed(found *liveTransactions, at inspection, err error) {
	var e *kv.Error
	errors.As(c.conn.Wrap("live transactions", at.keyspace.Info.Name, err), &e)
	if at.partition != nil {
		e.Partition = cmp.Or(e.Partition, uint64(at.partition.ID))
	}
	found.mu.Lock()
	defer found.mu.Unlock()
	found.unanswered = append(found.unanswered, e)
}

// err returns nil if all partitions have answered.
func (f *liveTransactions) err(op, keyspace string) error {
	if len(f.unanswered) == 0 {
		return nil
	}
	slices.SortFunc(f.unanswered, func(a, b *kv.Error) int {
		return cmp.Or(cmp.Compare(a.Keyspace, b.Keyspace), cmp.Compare(a.Partition, b.Partition))
	})
	e := &UnansweredError{Partitions: f.unanswered}
	return kv.NewError(op, keyspace, e.Error(), e)
}

func (f *liveTransactions) add(keyspace *route.Keyspace, partition keys.PartitionID,
	found *kvpb.InspectTransactionsResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.more = f.more || found.GetMore()
	for _, x := range found.GetTransactions() {
		live := liveTransaction(keyspace.Info.Name, uint64(partition), x)
		live.keyspaceID = keyspace.ID
		f.all = append(f.all, live)
	}
	if len(f.all) >= 2*f.most {
		f.cut()
	}
}

// cut removes transactions beyond most.
func (f *liveTransactions) cut() {
	slices.SortFunc(f.all, func(a, b LiveTransaction) int {
		return cmp.Or(cmp.Compare(b.OldestLock, a.OldestLock), cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Partition, b.Partition))
	})
	if len(f.all) > f.most {
		clear(f.all[f.most:])
		f.all, f.more = f.all[:f.most], true
	}
}

// inspect asks one partition.
func (c *Client) inspect(ctx context.Context, at inspection, only []byte, found *liveTransactions) {
	ks, p := at.keyspace, at.partition
	call := &route.Call{Keyspace: ks.ID, Key: p.Span.Start, Request: &kvpb.Request{
		Command: &kvpb.Request_InspectTransactions{
			InspectTransactions: &kvpb.InspectTransactionsRequest{
				Max: uint32(min(found.most, maxInspected)), Transaction: only}}}}
	if ks.Hashed() {
		call.By, call.Hash = route.ByHash, p.Hash
	}
	answer, err := c.conn.Sender.Do(ctx, call)
	if err != nil {
		c.failed(found, at, err)
		return
	}
	found.add(ks, answer.Partition.ID, answer.GetInspectTransactions())
}

// maxInspected is the maximum number of transactions that one partition is asked for.
const maxInspected = 10_000

func liveTransaction(keyspace string, partition uint64, x *kvpb.LiveTransaction) LiveTransaction {
	out := LiveTransaction{
		ID:    hex.EncodeToString(x.GetTransaction().GetId()),
		Begun: wire.FromTimestamp(x.GetTransaction().GetBegun()), Keyspace: keyspace,
		Partition: partition, Locks: x.Intents - min(x.Spans, x.Intents), Spans: x.Spans,
		OldestLock: micros(x.OldestMicros), Key: x.Key, wire: x,
	}
	if x.Record != nil {
		switch x.Record.State {
		case kvpb.TransactionState_COMMITTED:
			out.State = "committed"
		case kvpb.TransactionState_ABORTED:
			out.State = "aborted"
		default:
			out.State = "pending"
		}
	}
	for _, w := range x.Waiters {
		out.Waiters = append(out.Waiters, LockWaiter{
			Transaction: hex.EncodeToString(w.Transaction), Key: w.Key,
			Waited: micros(w.WaitedMicros), Write: w.Write})
	}
	return out
}
