package committer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// fake is a Sender in front of a fake store, behind a network that loses, repeats and reorders. It
// is used in a synctest bubble.
type fake struct {
	// Chances, 0 to 1: a request is lost on its way, its answer is, it is executed a second time
	// later, and a lost answer ends the request with an unknown outcome instead of being asked for
	// again.
	loseRequest, loseAnswer, repeat, giveUp float64
	// longest is the longest one-way trip.
	longest time.Duration
	// split changes the partitions now and then; splitBefore, if set, is a kind of request before the
	// next of which it does so, as it arrives.
	split       bool
	splitBefore string

	t        testing.TB
	mu       sync.Mutex
	store    *fakeserver.Store
	clock    *fakeserver.Clock
	data     map[keys.KeyspaceID]*fakeserver.Data
	random   *rand.Rand
	sequence uint64
	// generation changes the layout: keyspace 2 is cut at other keys.
	generation uint64
	// floor is the highest timestamp that was read.
	floor hlc.Timestamp
	// identities are the sequences of requests that may be sent again.
	identities map[*route.Identity]uint64
	// refused are the requests that were: a server that has refused a request does not execute a
	// copy of it.
	refused map[uint64]bool
	// counts is of the requests by kind.
	counts map[string]int
	// hide, if set, says why a key cannot be located just now. It is called with mu held.
	hide func(Key) error
	// maxOffset is how far the servers' clocks may be apart; zero lets them take any timestamp.
	// tooEarly are the refreshes and commits that they have refused because of it.
	maxAge    time.Duration
	maxOffset time.Duration
	tooEarly  int
	// Before each of the next pushes commits a reader reads, whose clock is ahead by pushAhead.
	pushes    int
	pushAhead time.Duration
	// earlier: it knows nothing of keys that are to be compared as they are locked.
	earlier bool
	// loaded: others use the nodes. wanted: a transaction waits for locks where they are acquired;
	// wantedLater: elsewhere.
	loaded, wanted, wantedLater bool
	// refreshed are all refreshes that were asked for.
	refreshed []*kvpb.RefreshRequest
	// participants are those of the latest commit.
	participants []*kvpb.Participant
	// bytes are those of the Prepares that are on their way, resolves how many Resolves are, and
	// the others the most there were.
	bytes, mostBytes, resolves, mostResolves int
	late                                     sync.WaitGroup
	ended                                    bool
}

// physical is the servers' clock: the bubble's.
type physical struct{}

func (physical) Now() int64 { return time.Now().UnixNano() }

func newFake(t testing.TB, seed uint64) *fake {
	f := &fake{
		t: t, random: rand.New(rand.NewPCG(seed, 7)), longest: 5 * time.Millisecond, generation: 1,
		store: fakeserver.NewStore(t), clock: fakeserver.NewClock(physical{}),
		data:    map[keys.KeyspaceID]*fakeserver.Data{1: fakeserver.NewData(), 2: fakeserver.NewData()},
		refused: make(map[uint64]bool), counts: make(map[string]int),
	}
	f.store.LockWaits = true
	return f
}

func (f *fake) chance(p float64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.Float64() < p
}

func (f *fake) trip() {
	f.mu.Lock()
	d := time.Duration(f.random.Int64N(int64(f.longest) + 1))
	f.mu.Unlock()
	time.Sleep(d)
}

// Keyspace 1 has four hash partitions, keyspace 2 is cut at two keys, which move.
func (f *fake) cutsLocked() []string {
	if f.generation%2 == 0 {
		return []string{"a3", "a6"}
	}
	return []string{"a2", "a5"}
}

func (f *fake) placeLocked(k Key) Place {
	if k.Keyspace == 1 {
		h := keys.HashPartition(k.Key, 4)
		return Place{Keyspace: 1, Partition: keys.PartitionID(10 + h), Generation: 1, Hash: int(h)}
	}
	i := 0
	cuts := f.cutsLocked()
	for i < len(cuts) && string(k.Key) >= cuts[i] {
		i++
	}
	return f.cutLocked(i)
}

func (f *fake) cutLocked(i int) Place {
	cuts := f.cutsLocked()
	p := Place{Keyspace: 2, Partition: keys.PartitionID(20 + i), Generation: f.generation,
		Hash: AllPartitions}
	if i > 0 {
		p.Span.Start = []byte(cuts[i-1])
	}
	if i < len(cuts) {
		p.Span.End = []byte(cuts[i])
	}
	return p
}

func (f *fake) Locate(_ context.Context, k Key) (Place, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hide != nil {
		if err := f.hide(k); err != nil {
			return Place{}, err
		}
	}
	return f.placeLocked(k), nil
}

func (f *fake) Overlapping(_ context.Context, s Span) (out []Place, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.Keyspace == 1 {
		for h := range 4 {
			if s.Hash == AllPartitions || s.Hash == h {
				out = append(out, Place{Keyspace: 1, Partition: keys.PartitionID(10 + h),
					Generation: 1, Hash: h})
			}
		}
		return out, nil
	}
	for i := range 3 {
		if p := f.cutLocked(i); p.Span.Overlaps(s.Span) {
			out = append(out, p)
		}
	}
	return out, nil
}

func (f *fake) Now(context.Context) (now, age hlc.Timestamp, err error) {
	return f.now(), f.now(), nil
}

func (f *fake) MaxAge(keys.KeyspaceID) time.Duration { return f.maxAge }

func (f *fake) MaxClockOffset() time.Duration { return f.maxOffset }

// aheadLocked says that a timestamp is further ahead than a clock of the cluster can be.
func (f *fake) aheadLocked(t hlc.Timestamp) bool {
	if f.maxOffset == 0 || t.Wall-f.now().Wall <= int64(2*f.maxOffset) {
		return false
	}
	f.tooEarly++
	return true
}

func (f *fake) now() hlc.Timestamp { return hlc.FromTime(time.Now()) }

// Send brings a request there as a router would: again and again, with one sequence.
func (f *fake) Send(ctx context.Context, q *Request) (*kvpb.Response, error) {
	f.mu.Lock()
	size, resolves := 0, 0
	for _, m := range q.Command.GetPrepare().GetMutations() {
		size += len(m.Key) + len(m.Value)
	}
	if q.Command.GetResolve() != nil {
		resolves = 1
	}
	f.bytes, f.resolves = f.bytes+size, f.resolves+resolves
	f.mostBytes, f.mostResolves = max(f.mostBytes, f.bytes), max(f.mostResolves, f.resolves)
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.bytes, f.resolves = f.bytes-size, f.resolves-resolves
	}()
	f.sequence++
	sequence, maybe := f.sequence, false
	if q.Identity != nil {
		if f.identities == nil {
			f.identities = make(map[*route.Identity]uint64)
		}
		if before, again := f.identities[q.Identity]; again {
			sequence, maybe = before, true
		} else {
			f.identities[q.Identity] = sequence
		}
	}
	kind := fmt.Sprintf("%T", q.Command.Command)
	f.counts[kind]++
	if f.split && f.random.IntN(50) == 0 || f.splitBefore == kind {
		f.generation++
		f.splitBefore = ""
	}
	f.mu.Unlock()
	ended := func(cause error) error {
		return &route.Error{Cause: cause, OutcomeUnknown: maybe && q.Write}
	}
	for {
		if ctx.Err() != nil {
			return nil, ended(ctx.Err())
		}
		f.trip()
		f.mu.Lock()
		place := f.placeLocked(Key{q.Place.Keyspace, q.Key})
		f.mu.Unlock()
		if q.Place.Hash != AllPartitions {
			place = q.Place
		}
		if q.Fits != nil && !q.Fits(place) {
			return nil, ended(ErrMoved)
		}
		if f.chance(f.loseRequest) {
			continue
		}
		if f.chance(f.repeat) {
			f.late.Go(func() {
				for range 1 + rand.IntN(400) {
					f.trip()
				}
				_, _ = f.execute(context.Background(), place, sequence, q)
			})
		}
		response, err := f.execute(ctx, place, sequence, q)
		if f.chance(f.loseAnswer) {
			maybe = true
			if f.chance(f.giveUp) {
				return nil, ended(errors.New("no answer"))
			}
			continue
		}
		f.trip()
		var r *route.Error
		if errors.As(err, &r) && r.Cause != nil {
			r.OutcomeUnknown = maybe && q.Write
		}
		return response, err
	}
}

// Executed looks whether a request has written its version, after which no copy of it is executed.
func (f *fake) Executed(_ context.Context, q *Request, key []byte) (at hlc.Timestamp, executed bool,
	err error) {
	f.trip()
	defer f.trip()
	f.mu.Lock()
	defer f.mu.Unlock()
	by := fakeserver.WriteID{Client: 1, Sequence: f.identities[q.Identity]}
	data, name := f.named(internal(q.Place.Keyspace, key))
	for _, v := range data.Versions[name] {
		if v.By == by {
			return v.At, true, nil
		}
	}
	f.refused[by.Sequence] = true
	f.counts["not executed"]++
	return at, false, nil
}

func (f *fake) SendAll(ctx context.Context, limit int, all []*Request,
	landed func(i int, response *kvpb.Response, err error) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var senders sync.WaitGroup
	defer senders.Wait()
	defer cancel()
	type answer struct {
		of       int
		response *kvpb.Response
		err      error
	}
	answers := make(chan answer, len(all))
	sent := 0
	for over := range all {
		for ; sent < min(len(all), over+limit); sent++ {
			i := sent
			senders.Go(func() {
				response, err := f.Send(ctx, all[i])
				answers <- answer{i, response, err}
			})
		}
		a := <-answers
		if err := landed(a.of, a.response, a.err); err != nil {
			return err
		}
	}
	return nil
}

// execute does what a request says. It waits for locks until ctx ends.
func (f *fake) execute(ctx context.Context, place Place, sequence uint64,
	q *Request) (*kvpb.Response, error) {
	for {
		response, err, wait := f.tryExecute(place, sequence, q)
		if !wait {
			return response, err
		}
		select {
		case <-ctx.Done():
			f.mu.Lock()
			f.refused[sequence] = true
			f.mu.Unlock()
			return nil, &route.Error{Code: kvpb.ErrorCode_LOCKED, Cause: ctx.Err()}
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (f *fake) tryExecute(place Place, sequence uint64,
	q *Request) (response *kvpb.Response, err error, wait bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.ended:
		return nil, &route.Error{Cause: route.ErrClosed}, false
	case f.refused[sequence]:
		return nil, &route.Error{Code: kvpb.ErrorCode_DEADLINE_EXCEEDED,
			Message: "refused before"}, false
	}
	defer func() { f.refused[sequence] = err != nil }()
	if err := f.before(q.Command); err != nil {
		return nil, err, false
	}
	command := q.Command
	if f.earlier && command.GetPrepare() != nil {
		command = withoutComparison(command)
	}
	r := proto.Clone(command).(*kvpb.Request)
	r.Sequence = sequence
	p := f.partition(place)
	response, wait = f.store.Execute(p, f.clock, 1, r)
	f.floor = hlc.Max(f.floor, p.Read)
	if wait {
		return nil, nil, true
	}
	if e := response.Error; e != nil {
		return nil, &route.Error{Code: e.Code, Message: e.Message,
			Timestamp: wire.FromTimestamp(e.Timestamp), Conflict: e.Conflict}, false
	}
	if a := response.GetPrepare(); a != nil {
		low := q.Command.GetPrepare().LowPriority
		a.Busy, a.Wanted = f.loaded && low, f.wanted && low
	}
	if a := response.GetHeartbeatTransaction(); a != nil {
		a.Wanted = f.wantedLater
	}
	return response, nil, false
}

// before is what happens before a request is executed.
func (f *fake) before(r *kvpb.Request) error {
	if c := r.GetRefresh(); c != nil {
		f.refreshed = append(f.refreshed, proto.Clone(c).(*kvpb.RefreshRequest))
		if f.aheadLocked(wire.FromTimestamp(c.To)) {
			return refuse(kvpb.ErrorCode_TIMESTAMP_IN_FUTURE)
		}
	}
	if c := r.GetEndTransaction(); c != nil {
		f.participants = c.Participants
		if c.Commit {
			f.checkNamed(c)
		}
		if c.Commit && f.aheadLocked(wire.FromTimestamp(c.CommitTimestamp)) {
			return refuse(kvpb.ErrorCode_CLOCK_SKEW)
		}
		if c.Commit && f.pushes > 0 {
			f.pushes--
			f.store.Record(c.Transaction.Id).Push(f.now().Add(f.pushAhead))
		}
	}
	return nil
}

// checkNamed sees that every lock of a transaction that is to be committed lies in a span that is
// named: the record goes when there is none in these.
func (f *fake) checkNamed(c *kvpb.EndTransactionRequest) {
	e, err := txn.ParseEnd(c)
	if err != nil {
		f.t.Error(err)
		return
	}
	for id, data := range f.data {
		for key, l := range data.Locks {
			if bytes.Equal(l.Transaction.Id, c.Transaction.Id) &&
				!slices.ContainsFunc(e.Participants, func(p txn.Participant) bool {
					hash := uint32(0)
					if id == 1 {
						hash = keys.HashPartition([]byte(key), 4)
					}
					return !p.Whole() && p.Keyspace == id && p.Hash == hash && p.Span().Contains([]byte(key))
				}) {
				f.t.Errorf("the lock of %s is in none of %v", internal(id, []byte(key)), c.Participants)
			}
		}
	}
}

// withoutComparison is a Prepare as servers understand it that know nothing of keys to be compared.
func withoutComparison(r *kvpb.Request) *kvpb.Request {
	r = proto.Clone(r).(*kvpb.Request)
	p := r.GetPrepare()
	p.ReadAt = nil
	for _, m := range p.Mutations {
		m.Read = false
	}
	return r
}

func refuse(code kvpb.ErrorCode) error { return &route.Error{Code: code, Message: "refused"} }

// internal is a name of a key.
func internal(id keys.KeyspaceID, key []byte) string { return fmt.Sprintf("%d/%s", id, key) }

// named is the keyspace's data and the key of a name.
func (f *fake) named(name string) (*fakeserver.Data, string) {
	id, key, _ := strings.Cut(name, "/")
	return f.data[keys.KeyspaceID(id[0]-'0')], key
}

// write makes a version of a key, with mu held.
func (f *fake) write(name string, v fakeserver.Version) {
	data, key := f.named(name)
	data.Add(key, v)
}

// versions are the versions of a key, with mu held.
func (f *fake) versions(name string) []fakeserver.Version {
	data, key := f.named(name)
	return data.Versions[key]
}

// newest are the newest versions of all keys.
func (f *fake) newest() map[string]fakeserver.Version {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string]fakeserver.Version)
	for id, data := range f.data {
		for key := range data.Versions {
			all[internal(id, []byte(key))] = *data.Newest(key)
		}
	}
	return all
}

// locks counts locks, with mu held.
func (f *fake) locks() int { return len(f.data[1].Locks) + len(f.data[2].Locks) }

// push makes a transaction commit above a timestamp.
func (f *fake) push(id []byte, above hlc.Timestamp) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store.Record(id).Push(above)
}

// whole is a keyspace as one partition.
func (f *fake) whole(id keys.KeyspaceID) *fakeserver.Partition {
	return f.partition(Place{Keyspace: id, Hash: AllPartitions})
}

// partition is a place as a partition.
func (f *fake) partition(place Place) *fakeserver.Partition {
	p := &fakeserver.Partition{Data: f.data[place.Keyspace], Read: f.floor,
		Desc: &clusterpb.Partition{Keyspace: uint32(place.Keyspace)}}
	if place.Hash != AllPartitions {
		p.HashPartitions, p.Desc.Hash = 4, uint32(place.Hash)
		return p
	}
	prefix := keys.KeyspacePrefix(place.Keyspace)
	p.Desc.PrefixLength, p.Desc.Start, p.Desc.End = uint32(len(prefix)),
		append(prefix, place.Span.Start...), keys.PrefixEnd(prefix)
	if place.Span.End != nil {
		p.Desc.End = append(keys.KeyspacePrefix(place.Keyspace), place.Span.End...)
	}
	return p
}

// get reads a key at a timestamp, waiting for no lock.
func (f *fake) get(k Key, at hlc.Timestamp) (value string, found bool) {
	f.trip()
	f.mu.Lock()
	defer f.mu.Unlock()
	data, key := f.data[k.Keyspace], string(k.Key)
	if l := data.Locks[key]; l != nil && l.Kind != kvpb.Mutation_LOCK && l.Prepared.LessEq(at) {
		f.store.Settled(f.whole(k.Keyspace), key, nil, at)
	}
	f.floor = hlc.Max(f.floor, at)
	if v := data.Live(key, at); v != nil {
		return v.Value, true
	}
	return "", false
}

// sweep resolves every lock, as requests do that meet it.
func (f *fake) sweep() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, data := range f.data {
		for key := range data.Locks {
			f.store.Settled(f.whole(id), key, nil, hlc.Timestamp{})
		}
	}
}

func (f *fake) end() {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.late.Wait()
}

func unknownError() error {
	return &route.Error{Cause: errors.New("no answer"), OutcomeUnknown: true}
}

// lockOf is a lock of a transaction that writes nothing.
func lockOf(x *Transaction) *fakeserver.Lock {
	return &fakeserver.Lock{Transaction: x.wire(), Kind: kvpb.Mutation_LOCK}
}
