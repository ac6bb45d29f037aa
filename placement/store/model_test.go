package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
)

// model is the store as simply as it can be: a copy of all keys for every revision.
type model struct {
	revision, compacted uint64
	states              map[uint64]map[string]*storepb.KeyValue
	events              []*storepb.KeyValue // version 0: deleted
	leases              map[int64]bool
}

func newModel() *model {
	return &model{revision: 1, states: map[uint64]map[string]*storepb.KeyValue{1: {}},
		leases: map[int64]bool{}}
}

func inRange(key string, start, end []byte) bool {
	switch {
	case len(end) == 0:
		return key == string(start)
	case bytes.Equal(end, []byte{0}):
		return key >= string(start)
	}
	return key >= string(start) && key < string(end)
}

func sortedKeys(state map[string]*storepb.KeyValue) []string {
	names := slices.Collect(maps.Keys(state))
	sort.Strings(names)
	return names
}

func clone(kv *storepb.KeyValue) *storepb.KeyValue {
	if kv == nil {
		return nil
	}
	return proto.Clone(kv).(*storepb.KeyValue)
}

func (m *model) compare(c *storepb.Compare) bool {
	one := func(kv *storepb.KeyValue, exists bool) bool {
		var order int
		number := func(n int64) {
			switch {
			case n < c.Number:
				order = -1
			case n > c.Number:
				order = 1
			}
		}
		switch c.Target {
		case storepb.Compare_VALUE:
			if !exists {
				return false
			}
			order = bytes.Compare(kv.Value, c.Value)
		case storepb.Compare_VERSION:
			number(int64(kv.Version))
		case storepb.Compare_CREATE:
			number(int64(kv.CreateRevision))
		case storepb.Compare_MOD:
			number(int64(kv.ModRevision))
		case storepb.Compare_LEASE:
			number(kv.Lease)
		}
		return map[storepb.Compare_Relation]bool{
			storepb.Compare_EQUAL: order == 0, storepb.Compare_NOT_EQUAL: order != 0,
			storepb.Compare_LESS: order < 0, storepb.Compare_GREATER: order > 0,
		}[c.Relation]
	}
	state := m.states[m.revision]
	if len(c.RangeEnd) == 0 {
		kv, exists := state[string(c.Key)]
		if !exists {
			kv = &storepb.KeyValue{}
		}
		return one(kv, exists)
	}
	none := true
	for key, kv := range state {
		if inRange(key, c.Key, c.RangeEnd) {
			if none = false; !one(kv, true) {
				return false
			}
		}
	}
	return !none || one(&storepb.KeyValue{}, false)
}

// plan lists the operations of the branches that hold, as a tree.
func (m *model) choose(t *storepb.Txn) (bool, []*storepb.Op) {
	for _, c := range t.Compare {
		if !m.compare(c) {
			return false, t.Failure
		}
	}
	return true, t.Success
}

// refuses says with which code a transaction is refused.
func (m *model) refuses(t *storepb.Txn) storepb.Code {
	_, ops := m.choose(t)
	for _, op := range ops {
		switch op := op.Op.(type) {
		case *storepb.Op_Txn:
			if code := m.refuses(op.Txn); code != storepb.Code_OK {
				return code
			}
		case *storepb.Op_Range:
			switch r := op.Range.Revision; {
			case r > m.revision:
				return storepb.Code_FUTURE_REVISION
			case r != 0 && r < m.compacted:
				return storepb.Code_COMPACTED
			}
		case *storepb.Op_Put:
			if op.Put.Lease != 0 && !m.leases[op.Put.Lease] {
				return storepb.Code_LEASE_NOT_FOUND
			}
			if (op.Put.IgnoreLease || op.Put.IgnoreValue) &&
				m.states[m.revision][string(op.Put.Key)] == nil {
				return storepb.Code_KEY_NOT_FOUND
			}
		}
	}
	return storepb.Code_OK
}

func (m *model) rangeOf(state map[string]*storepb.KeyValue, q *storepb.Range) *storepb.RangeResult {
	r := &storepb.RangeResult{}
	for _, key := range sortedKeys(state) {
		if !inRange(key, q.Key, q.RangeEnd) {
			continue
		}
		if q.CountOnly {
			r.Count++
			continue
		}
		if q.Limit > 0 && len(q.RangeEnd) > 0 && uint64(len(r.Kvs)) == q.Limit {
			r.More = true
			if !q.Count {
				break
			}
			r.Count++
			continue
		}
		kv := clone(state[key])
		if q.KeysOnly {
			kv.Value = nil
		}
		r.Kvs = append(r.Kvs, kv)
		r.Count++
	}
	return r
}

func (m *model) do(
	t *storepb.Txn, next map[string]*storepb.KeyValue, events *[]*storepb.KeyValue,
) *storepb.TxnResult {
	ok, ops := m.choose(t)
	result := &storepb.TxnResult{Succeeded: ok}
	for _, op := range ops {
		one := &storepb.OpResult{}
		switch op := op.Op.(type) {
		case *storepb.Op_Range:
			state := next
			if op.Range.Revision != 0 {
				state = m.states[op.Range.Revision]
			}
			one.Op = &storepb.OpResult_Range{Range: m.rangeOf(state, op.Range)}
		case *storepb.Op_Put:
			p := op.Put
			previous := next[string(p.Key)]
			kv := &storepb.KeyValue{Key: p.Key, Value: p.Value, Lease: p.Lease, Version: 1,
				CreateRevision: m.revision + 1, ModRevision: m.revision + 1}
			if previous != nil {
				kv.Version, kv.CreateRevision = previous.Version+1, previous.CreateRevision
				if p.IgnoreValue {
					kv.Value = previous.Value
				}
				if p.IgnoreLease {
					kv.Lease = previous.Lease
				}
			}
			next[string(p.Key)] = kv
			*events = append(*events, kv)
			put := &storepb.PutResult{}
			if p.Previous {
				put.Previous = clone(previous)
			}
			one.Op = &storepb.OpResult_Put{Put: put}
		case *storepb.Op_DeleteRange:
			d := &storepb.DeleteRangeResult{}
			for _, key := range sortedKeys(next) {
				if inRange(key, op.DeleteRange.Key, op.DeleteRange.RangeEnd) {
					d.Deleted++
					if op.DeleteRange.Previous {
						d.Previous = append(d.Previous, clone(next[key]))
					}
					delete(next, key)
					*events = append(*events, &storepb.KeyValue{Key: []byte(key),
						ModRevision: m.revision + 1})
				}
			}
			one.Op = &storepb.OpResult_DeleteRange{DeleteRange: d}
		case *storepb.Op_Txn:
			one.Op = &storepb.OpResult_Txn{Txn: m.do(op.Txn, next, events)}
		}
		result.Results = append(result.Results, one)
	}
	return result
}

func (m *model) finish(next map[string]*storepb.KeyValue, events []*storepb.KeyValue) {
	if len(events) > 0 {
		m.revision++
		m.states[m.revision] = next
		m.events = append(m.events, events...)
	}
}

func (m *model) apply(c *storepb.Command) *storepb.Result {
	result := &storepb.Result{}
	switch op := c.Op.(type) {
	case *storepb.Command_Txn:
		if result.Code = m.refuses(op.Txn); result.Code == storepb.Code_OK {
			next, events := maps.Clone(m.states[m.revision]), []*storepb.KeyValue(nil)
			result.Txn = m.do(op.Txn, next, &events)
			m.finish(next, events)
		}
	case *storepb.Command_Compact:
		switch to := op.Compact.Revision; {
		case to > m.revision:
			result.Code = storepb.Code_FUTURE_REVISION
		case to <= m.compacted:
			result.Code = storepb.Code_COMPACTED
		default:
			m.compacted = to
		}
	case *storepb.Command_LeaseGrant:
		result.Lease = op.LeaseGrant.Id
		if m.leases[op.LeaseGrant.Id] {
			result.Code, result.Lease = storepb.Code_LEASE_EXISTS, 0
		}
		m.leases[op.LeaseGrant.Id] = true
	case *storepb.Command_LeaseRevoke:
		if !m.leases[op.LeaseRevoke.Id] {
			result.Code = storepb.Code_LEASE_NOT_FOUND
			break
		}
		delete(m.leases, op.LeaseRevoke.Id)
		next, events := maps.Clone(m.states[m.revision]), []*storepb.KeyValue(nil)
		for _, key := range sortedKeys(next) {
			if next[key].Lease == op.LeaseRevoke.Id {
				delete(next, key)
				events = append(events, &storepb.KeyValue{Key: []byte(key), ModRevision: m.revision + 1})
			}
		}
		m.finish(next, events)
		result.Lease = op.LeaseRevoke.Id
	}
	result.Revision = m.revision
	return result
}

// Drawing commands.

var someKeys = []string{"a", "a\x00", "a\x00\xff", "ab", "b", "b\xff", "\xff", "\x00"}

func drawKey(t *rapid.T) []byte { return []byte(rapid.SampledFrom(someKeys).Draw(t, "key")) }

func drawRange(t *rapid.T) (key, end []byte) {
	key = drawKey(t)
	switch rapid.IntRange(0, 3).Draw(t, "range") {
	case 0:
		return key, nil
	case 1:
		return key, []byte{0}
	case 2:
		return PrefixRange(key)
	}
	return key, drawKey(t)
}

func drawOp(t *rapid.T, m *model, depth int) *storepb.Op {
	switch kind := rapid.IntRange(0, 7).Draw(t, "op"); {
	case kind == 0 && depth < 2:
		return &storepb.Op{Op: &storepb.Op_Txn{Txn: drawTxn(t, m, depth+1)}}
	case kind <= 2:
		q := &storepb.Range{
			Limit:     uint64(rapid.IntRange(0, 3).Draw(t, "limit")),
			KeysOnly:  rapid.Bool().Draw(t, "keys only"),
			CountOnly: rapid.IntRange(0, 4).Draw(t, "count only") == 0,
			Count:     rapid.Bool().Draw(t, "count"),
		}
		q.Key, q.RangeEnd = drawRange(t)
		if rapid.IntRange(0, 3).Draw(t, "at") == 0 {
			q.Revision = uint64(rapid.IntRange(1, int(m.revision)+1).Draw(t, "revision"))
		}
		return &storepb.Op{Op: &storepb.Op_Range{Range: q}}
	case kind <= 4:
		d := &storepb.DeleteRange{Previous: rapid.Bool().Draw(t, "previous")}
		d.Key, d.RangeEnd = drawRange(t)
		return &storepb.Op{Op: &storepb.Op_DeleteRange{DeleteRange: d}}
	}
	p := &storepb.Put{Key: drawKey(t), Previous: rapid.Bool().Draw(t, "previous")}
	if p.IgnoreValue = rapid.IntRange(0, 9).Draw(t, "ignore value") == 0; !p.IgnoreValue {
		p.Value = []byte(rapid.SampledFrom([]string{"", "1", "2", "\x00\xff"}).Draw(t, "value"))
	}
	if p.IgnoreLease = rapid.IntRange(0, 9).Draw(t, "ignore lease") == 0; !p.IgnoreLease {
		p.Lease = int64(rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3}).Draw(t, "lease"))
	}
	return &storepb.Op{Op: &storepb.Op_Put{Put: p}}
}

func drawTxn(t *rapid.T, m *model, depth int) *storepb.Txn {
	txn := &storepb.Txn{}
	for range rapid.IntRange(0, 2).Draw(t, "comparisons") {
		c := &storepb.Compare{
			Target:   storepb.Compare_Target(rapid.IntRange(0, 4).Draw(t, "target")),
			Relation: storepb.Compare_Relation(rapid.IntRange(0, 3).Draw(t, "relation")),
			Number:   int64(rapid.IntRange(0, int(m.revision)+1).Draw(t, "number")), Value: []byte("1"),
		}
		if rapid.Bool().Draw(t, "small") {
			c.Number = int64(rapid.IntRange(0, 2).Draw(t, "number"))
		}
		c.Key, c.RangeEnd = drawRange(t)
		txn.Compare = append(txn.Compare, c)
	}
	for range rapid.IntRange(0, 3).Draw(t, "success") {
		txn.Success = append(txn.Success, drawOp(t, m, depth))
	}
	for range rapid.IntRange(0, 2).Draw(t, "failure") {
		txn.Failure = append(txn.Failure, drawOp(t, m, depth))
	}
	return txn
}

func drawCommand(t *rapid.T, m *model) *storepb.Command {
	switch kind := rapid.IntRange(0, 19).Draw(t, "command"); {
	case kind == 0:
		return Compact(uint64(rapid.IntRange(0, int(m.revision)+1).Draw(t, "to")))
	case kind <= 2:
		return Grant(int64(rapid.IntRange(1, 3).Draw(t, "lease")), 1<<40)
	case kind <= 4:
		return Revoke(int64(rapid.IntRange(1, 3).Draw(t, "lease")))
	}
	return &storepb.Command{Op: &storepb.Command_Txn{Txn: drawTxn(t, m, 0)}}
}

// follower is a watcher and where it has got to.
type follower struct {
	w     *Watcher
	on    *member
	from  uint64
	start []byte
	got   []*storepb.KeyValue
	done  bool
}

// read takes everything that its member has.
func (f *follower) read(t *rapid.T, m *model) {
	for !f.done && f.w.Progress() < f.on.store.Revision() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		batch, err := f.w.Next(ctx)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			continue
		case errors.Is(err, command.ErrCompacted):
			if n := f.next(); n >= m.compacted && n > f.from {
				t.Fatalf("a watcher that waits for revision %d was told that it is compacted; "+
					"compacted is %d", n, m.compacted)
			}
			f.done = true
		case err != nil:
			t.Fatal(err)
		}
		for _, e := range batch.Events {
			f.got = append(f.got, e.KV)
			if e.KV.ModRevision < f.from+1 {
				t.Fatalf("a watcher from %d got an event of %d", f.from, e.KV.ModRevision)
			}
			if before := m.states[e.KV.ModRevision-1]; e.Previous != nil && before != nil &&
				!proto.Equal(before[string(e.KV.Key)], e.Previous) {
				t.Fatalf("before %v there was %v, the event says %v", e.KV,
					before[string(e.KV.Key)], e.Previous)
			}
		}
	}
}

func (f *follower) next() uint64 { return f.w.Progress() + 1 }

// check compares what a watcher got with what happened.
func (f *follower) check(t *rapid.T, m *model) {
	var want []*storepb.KeyValue
	for _, kv := range m.events {
		if kv.ModRevision > f.from && bytes.HasPrefix(kv.Key, f.start) &&
			(!f.done || kv.ModRevision < f.next()) {
			want = append(want, kv)
		}
	}
	if len(want) != len(f.got) {
		t.Fatalf("a watcher of %q from %d (compacted %v) got %d events, want %d", f.start, f.from,
			f.done, len(f.got), len(want))
	}
	for i, kv := range want {
		if !proto.Equal(kv, f.got[i]) {
			t.Fatalf("event %d of a watcher of %q: %v, want %v", i, f.start, f.got[i], kv)
		}
	}
}

// transfer brings a member up to date by a snapshot of another, and not by the log.
func transfer(t fataler, from, to *member) {
	t.Helper()
	s, err := from.store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var stream bytes.Buffer
	if err := s.Write(context.Background(), &stream); err != nil {
		t.Fatal(err)
	}
	staged, err := to.store.StageSnapshot(context.Background(), s.Index(), s.Term(), &stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := staged.Install(); err != nil {
		t.Fatal(err)
	}
}

// Whatever the commands: every answer, every read at every revision and every watcher's stream are
// as the model says, on two members that are byte by byte the same, of which one applies in batches
// and is brought up by snapshots.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCore(t, 2, nil)
		defer c.close()
		c.elect(c.members[0])
		m := newModel()
		var followers []*follower
		defer func() {
			for _, f := range followers {
				f.w.Close()
			}
		}()
		second := c.members[1]
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch action := rapid.IntRange(0, 19).Draw(t, "action"); {
			case action == 0:
				second.catchUp()
			case action == 1:
				if index, _ := second.store.Applied(); int(index) < len(c.log) {
					transfer(t, c.members[0], second)
				}
			case action == 2 && len(followers) < 6:
				from := uint64(rapid.IntRange(0, int(m.revision)+2).Draw(t, "from"))
				start := []byte(rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "prefix"))
				on := rapid.SampledFrom(c.members).Draw(t, "on")
				w, err := on.store.Watch(start, from)
				if err != nil {
					t.Fatal(err)
				}
				followers = append(followers, &follower{w: w, on: on, from: from, start: start})
			case action == 3 && len(followers) > 0:
				rapid.SampledFrom(followers).Draw(t, "follower").read(t, m)
			case action == 4:
				reopen(t, second)
				for _, f := range followers {
					if f.on == second {
						// Its member was started again: it goes on where it was.
						w, err := second.store.Watch(f.start, f.w.delivered)
						if err != nil {
							t.Fatal(err)
						}
						f.w.Close()
						f.w = w
					}
				}
			default:
				cmd := drawCommand(t, m)
				if command.Validate(cmd) != nil {
					if _, err := c.members[0].store.Do(context.Background(), cmd); err == nil {
						t.Fatal("a malformed command was done")
					}
					continue
				}
				got, _ := c.members[0].store.Do(context.Background(), cmd)
				want := m.apply(cmd)
				if got == nil {
					t.Fatalf("%v: no answer", cmd)
				}
				got.Message, got.Compacted, got.TtlMillis = "", 0, 0
				if !proto.Equal(got, want) {
					t.Fatalf("%v\ngot  %v\nwant %v", cmd, got, want)
				}
			}
		}
		second.catchUp()
		same(t, c.members[0].dump(), second.dump())
		for _, member := range c.members {
			checkBytes(t, member)
			for revision := uint64(1); revision <= m.revision; revision++ {
				q := &storepb.Range{Key: []byte{0}, RangeEnd: []byte{0}, Revision: revision}
				got, err := member.store.Stale().Range(q)
				if revision < m.compacted {
					if !errors.Is(err, command.ErrCompacted) {
						t.Fatalf("read at %d, compacted is %d: %v", revision, m.compacted, err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if want := m.rangeOf(m.states[revision], q); !proto.Equal(got, want) {
					t.Fatalf("at revision %d:\ngot  %v\nwant %v", revision, got, want)
				}
			}
		}
		for _, f := range followers {
			f.read(t, m)
			f.check(t, m)
		}
	})
}

// reopen starts a member anew on what its database has after a clean shutdown.
func reopen(t fataler, m *member) {
	m.close() // it waits for what the store proposes by itself, which takes the lock
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	m.open(nil)
	leader := group.Leadership{Term: m.core.term, Leader: m.core.leader.id,
		IsLeader: m.core.leader == m}
	m.store.LeadershipChanged(leader)
	if s, err := m.store.DurableApplied(); err != nil {
		t.Fatal(err)
	} else if index, _ := m.store.Applied(); s > index {
		t.Fatal(fmt.Sprintf("index %d is said to be durable, and %d is there", s, index))
	}
}
