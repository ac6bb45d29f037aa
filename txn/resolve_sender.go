package txn

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// resolveMost bounds the transactions in one request, and resolveParallel the requests of one
	// Resolve that run at a time. resolveLines bounds the transactions in all batches that Resolve
	// collects before it sends them; a single transaction with many partitions may exceed
	// resolveLines.
	resolveMost     = 1000
	resolveParallel = 8
	resolveLines    = 100_000
	// resolveAnchors is the number of bytes of anchors at which a request is full.
	resolveAnchors = 256 << 10
	// resolveRounds bounds how often Resolve asks again because partitions have changed.
	resolveRounds = 5
	// resolveTimeout bounds the time of a request. resolveRest is how long a partition that did not
	// answer is left alone: garbage collection asks very many questions, and must not wait for that
	// partition each time.
	resolveTimeout = 5 * time.Second
	resolveRest    = 20 * time.Second
	// resolveLearn is how long Resolve waits for the table to include the partitions of keyspaces
	// that it did not have.
	resolveLearn = 2 * time.Second
)

// resting maps partitions that did not answer a while ago to the end of their rest. Each addition
// removes those whose rest is over, so that those of dropped keyspaces do not accumulate.
type resting struct {
	sync.Mutex
	until map[keys.PartitionID]time.Time
}

func (r *resting) rests(id keys.PartitionID, now time.Time) bool {
	r.Lock()
	defer r.Unlock()
	return now.Before(r.until[id])
}

func (r *resting) rest(id keys.PartitionID, now time.Time) {
	r.Lock()
	defer r.Unlock()
	maps.DeleteFunc(r.until, func(_ keys.PartitionID, until time.Time) bool {
		return !now.Before(until)
	})
	if r.until == nil {
		r.until = make(map[keys.PartitionID]time.Time)
	}
	r.until[id] = now.Add(resolveRest)
}

// errPartitionChanged ends a request whose partition has changed since the table showed it.
var errPartitionChanged = errors.New("the partition has split, or has merged with another")

// resolveBatch is a request to one partition.
type resolveBatch struct {
	partition *route.Partition
	all       []*kvpb.Resolution
	// of are the transactions of the request, as indices of Resolve's argument.
	of []int
	// anchors is the bytes of these transactions' anchors.
	anchors int
}

// Resolve implements Resolver. One request names up to a thousand transactions.
//
// INVARIANT: a transaction is settled only if each key of its participants was, at some moment
// since the commit, in a partition that answered that it has no lock of the transaction. Locks lie
// beside their keys, and go with them when partitions split and merge, so no lock is left. To
// ensure this, Resolve asks the partitions that hold all of a participant's span in one table. Each
// request names the partition and its generation; a partition of another generation refuses the
// request. Resolve then asks the partitions that a later table has in that place.
func (s *PushSender) Resolve(ctx context.Context, all []Committed) (settled []bool) {
	settled = make([]bool, len(all))
	sender, err := s.open()
	if err != nil {
		return settled
	}
	defer s.running.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	table, err := sender.AwaitTable(ctx)
	if err != nil {
		return settled
	}
	table = awaitParticipants(ctx, sender, table, all)
	for i := range settled {
		settled[i] = true
	}
	for next := 0; next < len(all); {
		b := s.batches(table, all, settled)
		for ; next < len(all) && b.lines < resolveLines; next++ {
			b.participants(next)
		}
		for round := 1; len(b.made) > 0; round++ {
			changed := b.send(ctx, sender)
			if later, err := sender.AwaitTable(ctx); err == nil && round < resolveRounds {
				table = later
			} else {
				b.unsettled(changed...)
				break
			}
			b = s.batches(table, all, settled)
			for _, c := range changed {
				for _, i := range c.of {
					b.ask(i, areaOf(c.partition))
				}
			}
		}
	}
	return settled
}

// awaitParticipants waits until the table has the partitions of all participants' keyspaces, for
// resolveLearn at most, and returns the latest table.
func awaitParticipants(ctx context.Context, sender Sender, table *route.Table,
	all []Committed) *route.Table {
	timer := time.NewTimer(resolveLearn)
	defer timer.Stop()
	for {
		missing := false
		for i := range all {
			for _, p := range all[i].Participants {
				if k := table.KeyspaceByID(p.Keyspace); k != nil && !k.Followed() {
					sender.Subscribe(k)
					missing = true
				}
			}
		}
		if !missing {
			return table
		}
		select {
		case <-table.Changed():
		case <-timer.C:
			return table
		case <-ctx.Done():
			return table
		}
		next, err := sender.AwaitTable(ctx)
		if err != nil {
			return table
		}
		table = next
	}
}

// resolveBatches groups the questions by partition.
type resolveBatches struct {
	s     *PushSender
	table *route.Table
	now   time.Time
	all   []Committed
	// settled is set for each transaction for which no answer is missing or negative so far.
	settled []bool

	// open are the batches that are not full. While a table shows one partition as two parts, each
	// part has its own batch.
	open map[*route.Partition]*resolveBatch
	made []*resolveBatch
	// lines is the number of transactions in all batches, counted once per batch.
	lines int
}

func (s *PushSender) batches(table *route.Table, all []Committed, settled []bool) *resolveBatches {
	return &resolveBatches{s: s, table: table, now: time.Now(), all: all, settled: settled,
		open: make(map[*route.Partition]*resolveBatch)}
}

// participants asks about a transaction in all its participants.
func (b *resolveBatches) participants(i int) {
	var whole map[keys.KeyspaceID]bool
	for j := range b.all[i].Participants {
		p := &b.all[i].Participants[j]
		if p.Whole() {
			if whole[p.Keyspace] {
				continue
			}
			if whole == nil {
				whole = make(map[keys.KeyspaceID]bool)
			}
			whole[p.Keyspace] = true
		}
		b.ask(i, p.area())
	}
}

// ask asks about a transaction in an area.
func (b *resolveBatches) ask(i int, a area) {
	if b.s.dropped(b.table, a.keyspace) {
		return // the keyspace is gone, and the locks with it
	}
	over, covered := b.s.partitions(b.table, a)
	if !covered {
		b.settled[i] = false
	}
	for _, p := range over {
		if b.s.resting.rests(p.ID, b.now) {
			b.settled[i] = false
			continue
		}
		batch := b.open[p]
		if batch == nil || len(batch.all) == resolveMost || batch.anchors >= resolveAnchors {
			batch = &resolveBatch{partition: p}
			b.open[p] = batch
			b.made = append(b.made, batch)
		}
		if n := len(batch.of); n > 0 && batch.of[n-1] == i {
			continue // another span in the same partition
		}
		c := &b.all[i]
		batch.of = append(batch.of, i)
		batch.all = append(batch.all,
			&kvpb.Resolution{Transaction: c.ID.Bytes(), Status: &kvpb.TransactionStatus{
				State: kvpb.TransactionState_COMMITTED, Timestamp: wire.ToTimestamp(c.At)},
				Keyspace: uint32(c.Keyspace), Anchor: c.Anchor})
		batch.anchors += len(c.Anchor)
		b.lines++
	}
}

// unsettled records that the transactions of some batches lack an answer.
func (b *resolveBatches) unsettled(some ...*resolveBatch) {
	for _, batch := range some {
		for _, i := range batch.of {
			b.settled[i] = false
		}
	}
}

// send sends the batches, and returns those that were not sent because their partitions have
// changed.
func (b *resolveBatches) send(ctx context.Context, sender Sender) (changed []*resolveBatch) {
	var mu sync.Mutex // guards b.settled and changed
	slots := make(chan struct{}, resolveParallel)
	var requests sync.WaitGroup
	for _, batch := range b.made {
		slots <- struct{}{}
		requests.Go(func() {
			defer func() { <-slots }()
			err := batch.send(ctx, b.s, sender)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, errPartitionChanged):
				changed = append(changed, batch)
			case err != nil:
				b.unsettled(batch)
			}
		})
	}
	requests.Wait()
	return changed
}

// errResting is the error of a batch to a partition that did not answer an earlier batch.
var errResting = errors.New("the partition did not answer a moment ago")

// send asks one partition. If it returns nil, the partition has answered.
func (b *resolveBatch) send(ctx context.Context, s *PushSender, sender Sender) error {
	if s.resting.rests(b.partition.ID, time.Now()) {
		return errResting
	}
	limited, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	call := callTo(b.partition)
	call.Write = true
	call.Request = &kvpb.Request{
		Command: &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{Resolutions: b.all}}}
	call.Prepare = route.PreparerFunc(func(p *route.Partition, _ route.Leader) error {
		if p.ID != b.partition.ID || p.Generation != b.partition.Generation {
			return errPartitionChanged
		}
		return nil
	})
	_, err := sender.Do(limited, call)
	if err != nil && ctx.Err() == nil && !errors.Is(err, errPartitionChanged) {
		s.resting.rest(b.partition.ID, time.Now())
	}
	return err
}
