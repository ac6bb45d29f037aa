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

// LiveTransaction is what one partition knows of a transaction that has locks there.
type LiveTransaction struct {
	// ID is as in kv.Error.Transaction, and Begun when its first attempt began: in conflicts the
	// older transaction wins.
	ID    string
	Begun kv.Timestamp
	// Keyspace and Partition are where the locks are.
	Keyspace  string
	Partition uint64
	// Locks is how many keys it has locked, and Spans how many spans it holds; OldestLock for how
	// long the oldest has been there, and Key its key, or the start of its span.
	Locks      uint64
	Spans      uint64
	OldestLock time.Duration
	Key        []byte
	// State is "pending", "committed" or "aborted" if the partition decides about the transaction
	// and has a record of it; otherwise "".
	State string
	// Waiters are the requests that wait for the locks, in the order in which they came.
	Waiters []LockWaiter

	// keyspaceID is that of Keyspace, and wire what the partition has answered.
	keyspaceID keys.KeyspaceID
	wire       *kvpb.LiveTransaction
}

// LockWaiter is a request that waits for another transaction's lock.
type LockWaiter struct {
	// Transaction is whose request it is; "" if it is none's.
	Transaction string
	Key         []byte
	Waited      time.Duration
	// Write: it wants to write the key, or to lock it; otherwise to read it.
	Write bool
}

// LiveTransactions shows the transactions that have locks at present, the ones with the oldest
// locks first and at most `most` of them, and what waits for them; of a keyspace, or with an empty
// name of all. A transaction that has locks in several partitions is listed for each of them. It is
// for people: the leaders are asked at different moments, and nothing is certain any more when the
// answer arrives. The second result says that there are more. If partitions do not answer, the
// error wraps an UnansweredError, and what the others say is returned with it.
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

// inspectAll asks the partitions of a keyspace, or with an empty name all, for the transactions
// that have locks, or for one of them.
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
		return nil // that one does not answer is no reason not to hear the others
	})
	found.cut()
	return nil
}

// share bounds ctx to one of so many equal parts of the time that is left; without a deadline it
// has no bound.
func share(ctx context.Context, parts int) (context.Context, context.CancelFunc) {
	deadline, has := ctx.Deadline()
	if !has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(parts))
}

// UnansweredError says that partitions did not answer that were asked by LiveTransactions.
type UnansweredError struct {
	// Partitions are why, at least one, by Keyspace and Partition; that is 0 if it did not come to
	// light which partitions a keyspace has.
	Partitions []*kv.Error
}

// Error is how many they are, and why the first did not answer.
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

// liveTransactions are those with the oldest locks of what was found so far.
type liveTransactions struct {
	most int
	mu   sync.Mutex
	all  []LiveTransaction
	more bool
	// unanswered are the partitions that did not answer.
	unanswered []*kv.Error
}

// inspection is a partition that is asked. It has none if it is not known which the keyspace has.
type inspection struct {
	keyspace  *route.Keyspace
	partition *route.Partition
}

// failed notes why a partition did not answer.
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

// err is nil if all have answered.
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

// cut leaves out what is beyond most.
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

// maxInspected is the most that one partition is asked for.
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

func micros(n uint64) time.Duration { return time.Duration(n) * time.Microsecond }
