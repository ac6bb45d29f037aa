package coordinator

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// fake is all partitions of a cluster in memory, as naive as can be, behind a network that loses, repeats and reorders. It is used in a
// synctest bubble.
type fake struct {
	// Chances, 0 to 1: a request is lost on its way, its answer is, it is executed a second time later, and a lost answer ends the
	// request with an unknown outcome instead of being asked for again.
	loseRequest, loseAnswer, repeat, giveUp float64
	// longest is the longest one-way trip.
	longest time.Duration
	// split changes the partitions now and then.
	split bool

	mu       sync.Mutex
	random   *rand.Rand
	sequence uint64
	// generation changes the layout: keyspace 2 is cut at other keys.
	generation uint64
	versions   map[string][]fakeVersion
	locks      map[string]*fakeLock
	records    map[string]*fakeRecord
	// floor is the highest timestamp that was read.
	floor hlc.Timestamp
	// done are the one-phase requests that were executed, by sequence.
	done map[uint64]hlc.Timestamp
	// identities are the sequences of requests that may be sent again.
	identities map[*route.Identity]uint64
	// refused are the requests that were: a server that has refused a request does not execute a copy of it.
	refused map[uint64]bool
	// counts is of the requests by kind.
	counts map[string]int
	// hide, if set, says why a key cannot be located just now. It is called with mu held.
	hide func(Key) error
	// maxOffset is how far the servers' clocks may be apart; zero lets them take any timestamp. tooEarly are the refreshes and commits that they
	// have refused because of it.
	maxOffset time.Duration
	tooEarly  int
	// Before each of the next pushes commits a reader reads, whose clock is ahead by pushAhead.
	pushes    int
	pushAhead time.Duration
	// earlier: it knows nothing of keys that are to be compared as they are locked.
	earlier bool
	// refreshed are all refreshes that were asked for.
	refreshed []*kvpb.RefreshRequest
	// participants are those of the latest commit.
	participants []*kvpb.Participant
	// bytes are those of the Prepares that are on their way, resolves how many Resolves are, and the others the most there were.
	bytes, mostBytes, resolves, mostResolves int
	late                                     sync.WaitGroup
	ended                                    bool
}

type fakeVersion struct {
	at      hlc.Timestamp
	value   string
	deleted bool
	txn     string
}

type fakeLock struct {
	txn      *kvpb.Transaction
	prepared hlc.Timestamp
	kind     kvpb.Mutation_Kind
	value    string
	laid     time.Time
	// sequence is of the request that laid it.
	sequence uint64
}

type fakeRecord struct {
	status kvpb.TransactionStatus
	heard  time.Time
}

func newFake(seed uint64) *fake {
	return &fake{
		random: rand.New(rand.NewPCG(seed, 7)), longest: 5 * time.Millisecond, generation: 1,
		versions: make(map[string][]fakeVersion), locks: make(map[string]*fakeLock), records: make(map[string]*fakeRecord),
		done: make(map[uint64]hlc.Timestamp), refused: make(map[uint64]bool), counts: make(map[string]int),
	}
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
	p := Place{Keyspace: 2, Partition: keys.PartitionID(20 + i), Generation: f.generation, Hash: AllPartitions}
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
				out = append(out, Place{Keyspace: 1, Partition: keys.PartitionID(10 + h), Generation: 1, Hash: h})
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

func (f *fake) Now(context.Context) (now, age hlc.Timestamp, err error) { return f.now(), f.now(), nil }

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
	f.counts[fmt.Sprintf("%T", q.Command.Command)]++
	if f.split && f.random.IntN(50) == 0 {
		f.generation++
	}
	f.mu.Unlock()
	ended := func(cause error) error { return &route.Error{Cause: cause, OutcomeUnknown: maybe && q.Write} }
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

func (f *fake) SendAll(ctx context.Context, limit int, all []*Request, landed func(i int, response *kvpb.Response, err error) error) error {
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

func refuse(code kvpb.ErrorCode, key string, other []byte, at hlc.Timestamp) error {
	return &route.Error{Code: code, Message: "refused", Timestamp: at, Conflict: &kvpb.Conflict{Key: []byte(key), Transaction: other}}
}

func internal(id keys.KeyspaceID, key []byte) string { return fmt.Sprintf("%d/%s", id, key) }

// execute does what a request says. It waits for locks until ctx ends.
func (f *fake) execute(ctx context.Context, place Place, sequence uint64, q *Request) (*kvpb.Response, error) {
	for {
		f.mu.Lock()
		if f.ended {
			f.mu.Unlock()
			return nil, &route.Error{Cause: route.ErrClosed}
		}
		if f.refused[sequence] {
			f.mu.Unlock()
			return nil, &route.Error{Code: kvpb.ErrorCode_DEADLINE_EXCEEDED, Message: "refused before"}
		}
		response, err, wait := f.executeLocked(place, sequence, q)
		f.refused[sequence] = err != nil
		f.mu.Unlock()
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

func (f *fake) executeLocked(place Place, sequence uint64, q *Request) (response *kvpb.Response, err error, wait bool) {
	switch c := q.Command.Command.(type) {
	case *kvpb.Request_Prepare:
		return f.prepareLocked(place, sequence, c.Prepare)
	case *kvpb.Request_Refresh:
		return f.refreshLocked(place, c.Refresh)
	case *kvpb.Request_EndTransaction:
		f.participants = c.EndTransaction.Participants
		response, err = f.endLocked(c.EndTransaction)
		return response, err, false
	case *kvpb.Request_HeartbeatTransaction:
		r := f.recordLocked(c.HeartbeatTransaction.Transaction.Id)
		r.heard = time.Now()
		return &kvpb.Response{Result: &kvpb.Response_HeartbeatTransaction{HeartbeatTransaction: &kvpb.HeartbeatTransactionResponse{Status: r.copy()}}}, nil, false
	case *kvpb.Request_Resolve:
		for _, r := range c.Resolve.Resolutions {
			for k, l := range f.locks {
				if bytes.Equal(l.txn.Id, r.Transaction) && f.holdsLocked(place, k) {
					f.resolveLocked(k, l, r.Status)
				}
			}
		}
		return &kvpb.Response{}, nil, false
	}
	panic(fmt.Sprintf("%T", q.Command.Command))
}

// holdsLocked says whether a partition as it was holds an internal key.
func (f *fake) holdsLocked(place Place, k string) bool {
	var id keys.KeyspaceID
	var key string
	_, _ = fmt.Sscanf(k, "%d/%s", &id, &key)
	if id != place.Keyspace {
		return false
	}
	if place.Hash != AllPartitions {
		return int(keys.HashPartition([]byte(key), 4)) == place.Hash
	}
	return place.Span.Contains([]byte(key))
}

func (r *fakeRecord) copy() *kvpb.TransactionStatus {
	return &kvpb.TransactionStatus{State: r.status.State, Timestamp: r.status.Timestamp, Reason: r.status.Reason}
}

func (f *fake) recordLocked(id []byte) *fakeRecord {
	r := f.records[string(id)]
	if r == nil {
		r = &fakeRecord{heard: time.Now()}
		f.records[string(id)] = r
	}
	return r
}

func (f *fake) resolveLocked(k string, l *fakeLock, status *kvpb.TransactionStatus) {
	delete(f.locks, k)
	if status.State != kvpb.TransactionState_COMMITTED || l.kind == kvpb.Mutation_LOCK {
		return
	}
	f.writeLocked(k, fakeVersion{at: rpc.FromTimestamp(status.Timestamp), value: l.value, deleted: l.kind == kvpb.Mutation_DELETE, txn: string(l.txn.Id)})
}

func (f *fake) writeLocked(k string, v fakeVersion) {
	all := f.versions[k]
	i, there := slices.BinarySearchFunc(all, v, func(a, b fakeVersion) int { return a.at.Compare(b.at) })
	if there && all[i] == v {
		return
	}
	f.versions[k] = slices.Insert(all, i, v)
}

func (f *fake) newestLocked(k string) (v fakeVersion) {
	if all := f.versions[k]; len(all) > 0 {
		v = all[len(all)-1]
	}
	return v
}

// settledLocked says whether the lock of another transaction is out of the way. Otherwise it stays for now.
func (f *fake) settledLocked(k string, l *fakeLock, waiter *kvpb.Transaction, read hlc.Timestamp) bool {
	r := f.recordLocked(l.txn.Id)
	if r.status.State == kvpb.TransactionState_PENDING {
		heard := r.heard
		if heard.Before(l.laid) {
			heard = l.laid
		}
		older := waiter != nil && len(waiter.Anchor) > 0 && cmp.Or(rpc.FromTimestamp(waiter.Begun).Compare(rpc.FromTimestamp(l.txn.Begun)), bytes.Compare(waiter.Id, l.txn.Id)) < 0
		switch {
		case time.Since(heard) > 3*time.Second:
			r.status.State, r.status.Reason = kvpb.TransactionState_ABORTED, kvpb.AbortReason_ABANDONED
		case !read.IsZero():
			r.status.Timestamp = rpc.ToTimestamp(hlc.Max(rpc.FromTimestamp(r.status.Timestamp), read))
			return true
		case older:
			r.status.State, r.status.Reason = kvpb.TransactionState_ABORTED, kvpb.AbortReason_WOUNDED
		}
	}
	if r.status.State == kvpb.TransactionState_PENDING {
		return false
	}
	f.resolveLocked(k, l, r.copy())
	return true
}

func (f *fake) prepareLocked(place Place, sequence uint64, c *kvpb.PrepareRequest) (*kvpb.Response, error, bool) {
	t := c.Transaction
	if at, before := f.done[sequence]; before {
		return prepared(at, nil, false), nil, false
	}
	at := hlc.Max(hlc.Max(f.now(), f.floor.Next()), rpc.FromTimestamp(c.AtLeast))
	for _, m := range c.Mutations {
		k := internal(place.Keyspace, m.Key)
		if l := f.locks[k]; l != nil && !bytes.Equal(l.txn.Id, t.Id) {
			if m.Read && !f.earlier && !txn.ID(l.txn.Id).SameTransaction(txn.ID(t.Id)) {
				return nil, refuse(kvpb.ErrorCode_TRANSACTION_CONFLICT, k, l.txn.Id, hlc.Timestamp{}), false
			}
			if !f.settledLocked(k, l, t, hlc.Timestamp{}) {
				return nil, nil, true
			}
		}
		newest := f.newestLocked(k)
		if m.Read && !f.earlier && rpc.FromTimestamp(c.ReadAt).Less(newest.at) {
			return nil, refuse(kvpb.ErrorCode_TRANSACTION_CONFLICT, k, []byte(newest.txn), hlc.Timestamp{}), false
		}
		at = hlc.Max(at, newest.at.Next())
	}
	if one := c.OnePhase; one != nil {
		// Another's lock on what was read may become a version below.
		for k, l := range f.locks {
			if !bytes.Equal(l.txn.Id, t.Id) && f.coversLocked(place, one.Reads, k) && !f.settledLocked(k, l, t, at) {
				return nil, nil, true
			}
		}
		for k, other := range f.changedLocked(place, one.Reads, rpc.FromTimestamp(one.Reads.GetAt()), hlc.MaxTimestamp, t.Id) {
			return nil, refuse(kvpb.ErrorCode_TRANSACTION_CONFLICT, k, []byte(other), hlc.Timestamp{}), false
		}
		f.floor = hlc.Max(f.floor, at)
		for _, m := range c.Mutations {
			k := internal(place.Keyspace, m.Key)
			delete(f.locks, k)
			if m.Kind == kvpb.Mutation_PUT || m.Kind == kvpb.Mutation_DELETE {
				f.writeLocked(k, fakeVersion{at, string(m.Value), m.Kind == kvpb.Mutation_DELETE, string(t.Id)})
			}
		}
		f.done[sequence] = at
		return prepared(at, nil, false), nil, false
	}
	var values []*kvpb.GetResponse
	// What was prepared once stays so: a repeated request is told the same, and a late one takes nothing of a later one back.
	again := true
	told := hlc.Timestamp{}
	for _, m := range c.Mutations {
		l := f.locks[internal(place.Keyspace, m.Key)]
		if l == nil || !bytes.Equal(l.txn.Id, t.Id) || l.sequence < sequence {
			again = false
		} else {
			told = hlc.Max(told, l.prepared)
		}
	}
	if again {
		at = told
	}
	for _, m := range c.Mutations {
		k := internal(place.Keyspace, m.Key)
		if l := f.locks[k]; l == nil || !bytes.Equal(l.txn.Id, t.Id) || l.sequence < sequence {
			f.locks[k] = &fakeLock{t, at, m.Kind, string(m.Value), time.Now(), sequence}
		}
		if c.ReturnValues {
			v := f.newestLocked(k)
			got := &kvpb.GetResponse{Found: !v.at.IsZero() && !v.deleted}
			if got.Found {
				got.Value, got.Version = []byte(v.value), rpc.ToTimestamp(v.at)
			}
			values = append(values, got)
		}
	}
	return prepared(at, values, c.ReadAt != nil && !f.earlier), nil, false
}

func prepared(at hlc.Timestamp, values []*kvpb.GetResponse, compared bool) *kvpb.Response {
	return &kvpb.Response{Result: &kvpb.Response_Prepare{Prepare: &kvpb.PrepareResponse{
		Prepared: rpc.ToTimestamp(at), Values: values, Compared: compared,
	}}}
}

func (f *fake) coversLocked(place Place, reads *kvpb.ReadSet, k string) bool {
	for _, key := range reads.GetKeys() {
		if internal(place.Keyspace, key) == k {
			return true
		}
	}
	for _, s := range reads.GetSpans() {
		if f.holdsLocked(place, k) && (keys.Span{Start: s.Start, End: s.End}).Contains([]byte(k[2:])) {
			return true
		}
	}
	return false
}

// changedLocked are the keys that were read here and written in (from, to] by somebody else.
func (f *fake) changedLocked(place Place, reads *kvpb.ReadSet, from, to hlc.Timestamp, id []byte) map[string]string {
	out := make(map[string]string)
	for k, all := range f.versions {
		for _, v := range all {
			if from.Less(v.at) && v.at.LessEq(to) && v.txn != string(id) && f.coversLocked(place, reads, k) {
				out[k[2:]] = v.txn
			}
		}
	}
	return out
}

func (f *fake) refreshLocked(place Place, c *kvpb.RefreshRequest) (*kvpb.Response, error, bool) {
	f.refreshed = append(f.refreshed, proto.Clone(c).(*kvpb.RefreshRequest))
	to := rpc.FromTimestamp(c.To)
	if f.aheadLocked(to) {
		return nil, refuse(kvpb.ErrorCode_TIMESTAMP_IN_FUTURE, "", nil, hlc.Timestamp{}), false
	}
	for k, l := range f.locks {
		if !bytes.Equal(l.txn.Id, c.Transaction) && f.coversLocked(place, c.Reads, k) && l.prepared.LessEq(to) && !f.settledLocked(k, l, nil, to) {
			return nil, nil, true
		}
	}
	for k, other := range f.changedLocked(place, c.Reads, rpc.FromTimestamp(c.Reads.At), to, c.Transaction) {
		return nil, refuse(kvpb.ErrorCode_TRANSACTION_CONFLICT, k, []byte(other), hlc.Timestamp{}), false
	}
	f.floor = hlc.Max(f.floor, to)
	return &kvpb.Response{}, nil, false
}

func (f *fake) endLocked(c *kvpb.EndTransactionRequest) (*kvpb.Response, error) {
	r := f.recordLocked(c.Transaction.Id)
	at := rpc.FromTimestamp(c.CommitTimestamp)
	if c.Commit && f.aheadLocked(at) {
		return nil, refuse(kvpb.ErrorCode_CLOCK_SKEW, "", nil, hlc.Timestamp{})
	}
	if c.Commit && f.pushes > 0 {
		f.pushes--
		r.status.Timestamp = rpc.ToTimestamp(hlc.Max(rpc.FromTimestamp(r.status.Timestamp), f.now().Add(f.pushAhead)))
	}
	switch {
	case r.status.State == kvpb.TransactionState_ABORTED && c.Commit:
		return nil, &route.Error{Code: kvpb.ErrorCode_TRANSACTION_ABORTED, Conflict: &kvpb.Conflict{Reason: r.status.Reason}}
	case r.status.State != kvpb.TransactionState_PENDING:
	case !c.Commit:
		r.status.State, r.status.Reason = kvpb.TransactionState_ABORTED, kvpb.AbortReason_ROLLED_BACK
	case at.LessEq(rpc.FromTimestamp(r.status.Timestamp)):
		return nil, refuse(kvpb.ErrorCode_TRANSACTION_PUSHED, "", nil, rpc.FromTimestamp(r.status.Timestamp))
	default:
		r.status.State, r.status.Timestamp = kvpb.TransactionState_COMMITTED, c.CommitTimestamp
	}
	return &kvpb.Response{Result: &kvpb.Response_EndTransaction{EndTransaction: &kvpb.EndTransactionResponse{Status: r.copy()}}}, nil
}

// get reads a key at a timestamp, waiting for nobody.
func (f *fake) get(k Key, at hlc.Timestamp) (value string, found bool) {
	f.trip()
	f.mu.Lock()
	defer f.mu.Unlock()
	id := internal(k.Keyspace, k.Key)
	if l := f.locks[id]; l != nil && l.kind != kvpb.Mutation_LOCK && l.prepared.LessEq(at) {
		f.settledLocked(id, l, nil, at)
	}
	f.floor = hlc.Max(f.floor, at)
	return f.valueLocked(id, at)
}

func (f *fake) valueLocked(id string, at hlc.Timestamp) (value string, found bool) {
	for _, v := range f.versions[id] {
		if v.at.LessEq(at) {
			value, found = v.value, !v.deleted
		}
	}
	return value, found
}

// sweep resolves every lock, as those do who would meet it.
func (f *fake) sweep() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, l := range f.locks {
		f.settledLocked(k, l, nil, hlc.Timestamp{})
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
