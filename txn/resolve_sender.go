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
	// resolveMost is how many transactions one request names, resolveParallel how many requests a
	// Resolve has on their way, and resolveLines how many transactions those that it makes before it
	// sends any name together, or as many as one has partitions.
	resolveMost     = 1000
	resolveParallel = 8
	resolveLines    = 100_000
	// resolveAnchors is how many bytes of anchors fill a request.
	resolveAnchors = 256 << 10
	// resolveRounds is how often partitions are asked, at most, that turn out to be others by then.
	resolveRounds = 5
	// resolveTimeout is how long a request may take, and resolveRest for how long a partition that
	// did not answer is left alone: garbage collection has a great many to ask about, and is not to
	// wait for it again and again.
	resolveTimeout = 5 * time.Second
	resolveRest    = 20 * time.Second
	// resolveLearn is how long Resolve waits for the partitions of keyspaces that it has met for the
	// first time.
	resolveLearn = 2 * time.Second
)

// resting are the partitions that did not answer a while ago, until when. Each addition takes out
// those whose time is over, so that those of dropped keyspaces do not add up.
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

// errPartitionChanged ends a request whose partition is not any more what the table showed.
var errPartitionChanged = errors.New("the partition has split, or has merged with another")

// resolveBatch is a request to one partition.
type resolveBatch struct {
	partition *route.Partition
	all       []*kvpb.Resolution
	// of are the transactions that it names, as places in what was asked for.
	of []int
	// anchors is how many bytes their anchors have.
	anchors int
}

// Resolve implements Resolver. A transaction that has written in one partition costs a line of a
// request that names up to a thousand.
//
// INVARIANT: a transaction is settled only if each key of its participants was, at some moment
// since it was committed, in a partition that answered that there is no lock of the transaction in
// it. Its locks are beside their keys, and go with them when partitions split and merge, so none is
// left. To that end a participant is asked about in partitions of one table that hold all of its
// span, and a request goes to the very partition, of the very generation, that it was made for. It
// is refused there, too, if that is not the present one. What a partition held that has changed is
// asked of those that a later table shows in its place.
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

// awaitParticipants has the table show the partitions of all keyspaces that participants are in,
// and returns one that does, or the one that there is after a while.
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

// resolveBatches sorts what is asked for by partition.
type resolveBatches struct {
	s     *PushSender
	table *route.Table
	now   time.Time
	all   []Committed
	// settled are the transactions of which nothing is known yet that keeps them from being so.
	settled []bool

	// open are those that take in more. A table may show two parts of a partition apart, of which
	// each is asked for itself.
	open map[*route.Partition]*resolveBatch
	made []*resolveBatch
	// lines is how many transactions they name together.
	lines int
}

func (s *PushSender) batches(table *route.Table, all []Committed, settled []bool) *resolveBatches {
	return &resolveBatches{s: s, table: table, now: time.Now(), all: all, settled: settled,
		open: make(map[*route.Partition]*resolveBatch)}
}

// participants asks about a transaction wherever it has written.
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
		return // and with it the locks
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

// unsettled notes that not all is known of the transactions of some batches.
func (b *resolveBatches) unsettled(some ...*resolveBatch) {
	for _, batch := range some {
		for _, i := range batch.of {
			b.settled[i] = false
		}
	}
}

// send sends what was made, and returns the batches that were not sent because their partitions
// have changed.
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

// errResting is for a partition that did not answer an earlier batch.
var errResting = errors.New("the partition did not answer a moment ago")

// send asks one partition. Without an error it has answered.
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
