package kv

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// LiveTransaction is what one partition knows of a transaction that has locks there.
type LiveTransaction struct {
	// ID is as in Error.Transaction, and Begun when its first attempt began: in conflicts the older transaction wins.
	ID    string
	Begun Timestamp
	// Keyspace and Partition are where the locks are.
	Keyspace  string
	Partition uint64
	// Locks is how many there are, OldestLock for how long the oldest has been there, and Key its key.
	Locks      uint64
	OldestLock time.Duration
	Key        []byte
	// State is "pending", "committed" or "aborted" if the partition decides about the transaction and has a record of it; otherwise "".
	State string
	// Waiters are who waits for the locks, in the order in which they came.
	Waiters []LockWaiter
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

// LiveTransactions shows the transactions that have locks at present, the ones with the oldest locks first and at most `most` of them, and who waits
// for them; of a keyspace, or with an empty name of all. A transaction that has locks in several partitions is listed for each of
// them. It is for people: the leaders are asked at different moments, and nothing is certain any more when the answer arrives. The second
// result says that there are more.
func (c *Client) LiveTransactions(ctx context.Context, keyspace string, most int) ([]LiveTransaction, bool, error) {
	const op = "live transactions"
	if most < 1 {
		return nil, false, invalid(op, keyspace, nil, "at most %d are asked for; ask for at least one", most)
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var keyspaces []*route.Keyspace
	if keyspace != "" {
		ks, err := c.Keyspace(keyspace).resolve(ctx, op)
		if err != nil {
			return nil, false, err
		}
		keyspaces = append(keyspaces, ks)
	} else {
		infos, err := c.Keyspaces(ctx)
		if err != nil {
			return nil, false, err
		}
		table := c.sender.Table()
		for _, info := range infos {
			if ks := table.KeyspaceByID(keys.KeyspaceID(info.ID)); ks != nil {
				keyspaces = append(keyspaces, ks)
			}
		}
	}
	found := &liveTransactions{most: most}
	for _, ks := range keyspaces {
		if err := c.liveTransactions(ctx, ks, found); err != nil {
			return nil, false, wrap(op, ks.Info.Name, nil, err)
		}
	}
	found.cut()
	return found.all, found.more, nil
}

// liveTransactions are those with the oldest locks of what was found so far.
type liveTransactions struct {
	most int
	mu   sync.Mutex
	all  []LiveTransaction
	more bool
}

func (f *liveTransactions) add(keyspace string, partition keys.PartitionID, found *kvpb.InspectTransactionsResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.more = f.more || found.GetMore()
	for _, x := range found.GetTransactions() {
		f.all = append(f.all, liveTransaction(keyspace, uint64(partition), x))
	}
	if len(f.all) >= 2*f.most {
		f.cut()
	}
}

// cut leaves out what is beyond most.
func (f *liveTransactions) cut() {
	slices.SortFunc(f.all, func(a, b LiveTransaction) int {
		return cmp.Or(cmp.Compare(b.OldestLock, a.OldestLock), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Partition, b.Partition))
	})
	if len(f.all) > f.most {
		clear(f.all[f.most:])
		f.all, f.more = f.all[:f.most], true
	}
}

// liveTransactions asks the partitions of one keyspace.
func (c *Client) liveTransactions(ctx context.Context, ks *route.Keyspace, found *liveTransactions) error {
	parts, err := c.sender.PartitionsOf(ctx, ks.ID, keys.Span{})
	if err != nil {
		return err
	}
	return inParallel(ctx, len(parts), parallelRequests, func(ctx context.Context, i int) error {
		p := parts[i]
		call := &route.Call{Keyspace: ks.ID, Key: p.Span.Start, Request: &kvpb.Request{
			Command: &kvpb.Request_InspectTransactions{InspectTransactions: &kvpb.InspectTransactionsRequest{Max: uint32(min(found.most, maxInspected))}}}}
		if ks.Hashed() {
			call.By, call.Hash = route.ByHash, p.Hash
		}
		answer, err := c.sender.Do(ctx, call)
		if err == nil {
			found.add(ks.Info.Name, answer.Partition.ID, answer.GetInspectTransactions())
		}
		return err
	})
}

// maxInspected is the most that one partition is asked for.
const maxInspected = 10_000

func liveTransaction(keyspace string, partition uint64, x *kvpb.LiveTransaction) LiveTransaction {
	out := LiveTransaction{
		ID: hex.EncodeToString(x.GetTransaction().GetId()), Begun: rpc.FromTimestamp(x.GetTransaction().GetBegun()), Keyspace: keyspace, Partition: partition,
		Locks: x.Intents, OldestLock: time.Duration(x.OldestMicros) * time.Microsecond, Key: x.Key,
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
			Transaction: hex.EncodeToString(w.Transaction), Key: w.Key, Waited: time.Duration(w.WaitedMicros) * time.Microsecond, Write: w.Write})
	}
	return out
}
