package txn

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

const (
	// resolveMost is how many transactions one request names, resolveParallel how many requests a
	// Resolve has on their way.
	resolveMost     = 1000
	resolveParallel = 8
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

// resolveBatch is a request to one partition.
type resolveBatch struct {
	partition keys.PartitionID
	keyspace  keys.KeyspaceID
	key       []byte
	all       []*kvpb.Resolution
	// of are the transactions that it names, as places in what was asked for.
	of []int
}

// Resolve implements Resolver. A transaction whose participants are in one partition costs a line
// of a request that names up to a thousand.
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
	var mu sync.Mutex // guards settled from here on
	batches := s.resolveBatches(table, all, settled)
	slots := make(chan struct{}, resolveParallel)
	var requests sync.WaitGroup
	for _, b := range batches {
		slots <- struct{}{}
		requests.Go(func() {
			defer func() { <-slots }()
			if b.send(ctx, s, sender) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, i := range b.of {
				settled[i] = false
			}
		})
	}
	requests.Wait()
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
					sender.Want(k)
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

// resolveBatches sorts what is asked for by partition. It leaves settled[i] true for those whose
// participants are all in some batch, or gone.
func (s *PushSender) resolveBatches(table *route.Table, all []Committed,
	settled []bool) (batches []*resolveBatch) {
	open := make(map[keys.PartitionID]*resolveBatch)
	now := time.Now()
	for i := range all {
		c := &all[i]
		settled[i] = true
		for _, p := range c.Participants {
			in, dropped := s.locate(table, p)
			if dropped {
				continue // and with it the locks
			}
			if in == 0 || s.resting.rests(in, now) {
				settled[i] = false
				continue
			}
			b := open[in]
			if b == nil || len(b.all) == resolveMost {
				b = &resolveBatch{partition: in, keyspace: p.Keyspace, key: p.Key}
				open[in] = b
				batches = append(batches, b)
			}
			if n := len(b.of); n > 0 && b.of[n-1] == i {
				continue // another key of the same partition
			}
			b.of = append(b.of, i)
			b.all = append(b.all,
				&kvpb.Resolution{Transaction: c.ID.Bytes(), Status: &kvpb.TransactionStatus{
					State: kvpb.TransactionState_COMMITTED, Timestamp: rpc.ToTimestamp(c.At)}})
		}
	}
	return batches
}

// locate finds the partition of a participant, 0 if that is not known; or it says that its keyspace
// was dropped.
func locate(table *route.Table, p Participant) (in keys.PartitionID, dropped bool) {
	if table.Dropped(p.Keyspace) {
		return 0, true
	}
	k := table.KeyspaceByID(p.Keyspace)
	if k == nil {
		return 0, false // it may be younger than the table
	}
	if partition := k.ByKey(p.Key); partition != nil {
		in = partition.ID
	}
	return in, false
}

// send asks one partition, and says whether it has answered.
func (b *resolveBatch) send(ctx context.Context, s *PushSender, sender Sender) bool {
	if s.resting.rests(b.partition, time.Now()) {
		return false // it did not answer an earlier batch
	}
	limited, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	_, err := sender.Do(limited, &route.Call{
		Keyspace: b.keyspace, Key: b.key, Write: true,
		Request: &kvpb.Request{
			Command: &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{Resolutions: b.all}}},
	})
	if err != nil && ctx.Err() == nil {
		s.resting.rest(b.partition, time.Now())
	}
	return err == nil
}
