package committer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// lockSlack is the Request.Slack of requests that wait for locks.
const lockSlack = 50 * time.Millisecond

// Locked is the result of acquiring a lock.
type Locked struct {
	// Value is the key's value, which is unchanged while the lock stands.
	Value *kvpb.GetResponse
	// At is the timestamp of the lock: no other transaction writes at or above it until this
	// transaction ends.
	At hlc.Timestamp
}

// Lock locks keys before the commit, to read or write them, and returns their values in order. It
// waits for other transactions' locks until ctx ends. Lock takes over the keys.
//
// Volatile locks cost no round of consensus, but are lost with the leader, and values read under
// them may not be committed yet. Such keys have to be in Reads.Keys, with the Leaderships.
func (t *Transaction) Lock(ctx context.Context, at hlc.Timestamp, volatile bool,
	all ...Key) ([]Locked, error) {
	if t.ended {
		return nil, errEnded
	}
	if len(all) == 0 {
		return nil, nil
	}
	t.AnchorAt(all[0])
	mutations := make([]mutation, len(all))
	for i, k := range all {
		if t.locked == nil {
			t.locked = make(map[string]Key)
		}
		t.locked[k.mapKey()] = k
		mutations[i] = mutation{k.Keyspace, &kvpb.Mutation{Key: k.Key, Kind: kvpb.Mutation_LOCK}}
	}
	out := make([]Locked, len(all))
	prepared, err := t.acquire(ctx, mutations, at, out, acquireOptions{volatile: volatile})
	if err != nil {
		return nil, err
	}
	t.prepared = hlc.Max(t.prepared, prepared)
	return out, nil
}

// errEnded reports a use after the end, a mistake of the caller.
var errEnded = errors.New("the transaction has ended")

// acquireOptions say how locks are acquired.
type acquireOptions struct {
	// volatile is set if the locks are kept in the leaders' memory only.
	volatile bool
	// compared holds the reads that the Prepares compare; nil if they compare nothing.
	compared *compared
	// wait is set for the locks of a commit with commit wait.
	wait bool
}

// acquire prepares mutations in all partitions, and returns the highest timestamp. into, if not
// nil, receives the values and timestamps.
func (t *Transaction) acquire(ctx context.Context, all []mutation, atLeast hlc.Timestamp,
	into []Locked, o acquireOptions) (hlc.Timestamp, error) {
	for i := range all {
		if i == 0 || all[i].keyspace != all[i-1].keyspace {
			t.ids.meets(all[i].keyspace)
		}
	}
	ctx, done, err := t.wait(ctx)
	if err != nil {
		return hlc.Timestamp{}, err
	}
	defer done()
	highest, err := t.acquireChunks(ctx, all, atLeast, into, o)
	if aborted := t.alive(); aborted != nil {
		return hlc.Timestamp{}, aborted
	}
	return highest, err
}

// wait is called before the transaction waits for locks: from then on the transaction sends
// heartbeats, and the context ends when a heartbeat's answer says that the transaction was aborted.
// done ends that wait.
func (t *Transaction) wait(ctx context.Context) (waiting context.Context, done func(), err error) {
	waiting, stop := context.WithCancelCause(ctx)
	t.mu.Lock()
	if aborted := t.mu.aborted; aborted != nil {
		t.mu.Unlock()
		stop(nil)
		return nil, nil, aborted
	}
	if t.mu.beaten.IsZero() {
		t.mu.beaten = time.Now()
	}
	t.mu.stop = stop
	t.mu.Unlock()
	done = func() {
		t.mu.Lock()
		t.mu.stop = nil
		t.mu.Unlock()
		stop(nil)
	}
	if err := t.c.startHeartbeats(t); err != nil {
		done()
		return nil, nil, err
	}
	return waiting, done, nil
}

func (t *Transaction) acquireChunks(ctx context.Context, all []mutation, atLeast hlc.Timestamp,
	into []Locked, o acquireOptions) (highest hlc.Timestamp, err error) {
	rest, restInto := all, into
	pace := t.pacing(ctx, all)
	for {
		chunks, err := t.c.chunks(ctx, rest, pace.keys, pace.bytes)
		if err != nil {
			return hlc.Timestamp{}, err
		}
		var moved []mutation
		var movedInto []int
		pace.begin(len(chunks))
		for begin := 0; begin < len(chunks) && err == nil; {
			count, abreast := pace.next(ctx, chunks[begin:])
			some := chunks[begin : begin+count]
			begin += count
			requests := make([]*Request, len(some))
			for i, c := range some {
				requests[i] = t.prepare(c, atLeast, into != nil, o)
				requests[i].Command.GetPrepare().LowPriority = pace.slow && !t.isWanted()
			}
			err = t.c.sender.SendAll(ctx, abreast, requests,
				func(i int, response *kvpb.Response, err error) error {
					pace.answered(ctx, response.GetPrepare())
					c := some[i]
					prepared, err := t.acquired(c, response, err, restInto)
					if err == nil {
						o.compared.landed(c, response.GetPrepare().GetCompared())
					}
					if errors.Is(err, ErrMoved) {
						// The partitions execute their part of the request again, to the same
						// effect.
						for _, place := range c.places {
							moved, movedInto = append(moved, rest[place]), append(movedInto, place)
						}
						return nil
					}
					highest = hlc.Max(highest, prepared)
					return err
				})
		}
		if err != nil || len(moved) == 0 {
			return highest, err
		}
		if into == nil {
			rest = moved
			continue
		}
		// Values of moved keys go to the places of their keys.
		again := make([]Locked, len(moved))
		prepared, err := t.acquireChunks(ctx, moved, atLeast, again, o)
		for i, place := range movedInto {
			restInto[place] = again[i]
		}
		return hlc.Max(highest, prepared), err
	}
}

// prepare returns the request that acquires one chunk.
func (t *Transaction) prepare(c *chunk, atLeast hlc.Timestamp, values bool,
	o acquireOptions) *Request {
	p := &kvpb.PrepareRequest{
		Transaction: t.wire(), Mutations: c.mutations, AtLeast: wire.ToTimestamp(atLeast),
		ReturnValues: values, Volatile: o.volatile,
		CommitWait: o.wait,
	}
	o.compared.ask(c, p)
	return &Request{
		Place: c.place, Key: c.mutations[0].Key, Fits: c.fits, Write: true, Slack: lockSlack,
		Command: &kvpb.Request{Command: &kvpb.Request_Prepare{Prepare: p}},
	}
}

// acquired processes the answer to a Prepare.
func (t *Transaction) acquired(c *chunk, response *kvpb.Response, err error,
	into []Locked) (hlc.Timestamp, error) {
	if err != nil {
		return hlc.Timestamp{}, classify(c.place.Keyspace, err)
	}
	r := response.GetPrepare()
	prepared := wire.FromTimestamp(r.GetPrepared())
	switch {
	case prepared.IsZero():
		return hlc.Timestamp{},
			fmt.Errorf("partition %s answered a prepare without a timestamp", c.place.Partition)
	case into != nil && len(r.GetValues()) != len(c.mutations):
		return hlc.Timestamp{}, fmt.Errorf("partition %s answered with %d values for %d locks",
			c.place.Partition, len(r.GetValues()), len(c.mutations))
	}
	if l := r.GetLeadership(); l != nil && !t.lockedUnder(c.place.Partition, l) {
		return hlc.Timestamp{}, &Error{Kind: ErrConflict, LeaderChanged: true,
			Key: Key{c.place.Keyspace, c.mutations[0].Key}}
	}
	for i, place := range c.places {
		if into != nil {
			into[place] = Locked{Value: r.Values[i], At: prepared}
		}
	}
	return prepared, nil
}
