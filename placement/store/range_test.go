package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/placement/store/admission"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// naiveRange is a range as simply as it can be: everything is collected, filtered, ordered and cut,
// one after the other.
func naiveRange(m *model, q *storepb.Range, revision uint64) *storepb.RangeResult {
	var all []*storepb.KeyValue
	state := m.states[revision]
	for _, name := range sortedKeys(state) {
		if inRange(name, q.Key, q.RangeEnd) {
			all = append(all, clone(state[name]))
		}
	}
	result := &storepb.RangeResult{Count: uint64(len(all))}
	if q.CountOnly {
		return result
	}
	filtered := q.MinModRevision != 0 || q.MaxModRevision != 0 || q.MinCreateRevision != 0 ||
		q.MaxCreateRevision != 0
	all = slices.DeleteFunc(all, func(kv *storepb.KeyValue) bool {
		mod, create := int64(kv.ModRevision), int64(kv.CreateRevision)
		return q.MinModRevision != 0 && mod < q.MinModRevision ||
			q.MaxModRevision != 0 && mod > q.MaxModRevision ||
			q.MinCreateRevision != 0 && create < q.MinCreateRevision ||
			q.MaxCreateRevision != 0 && create > q.MaxCreateRevision
	})
	limit := int(q.Limit)
	if q.SortOrder == storepb.Range_NONE && !filtered && limit > 0 && len(all) > limit+1 {
		all = all[:limit+1]
	}
	slices.SortStableFunc(all, func(a, b *storepb.KeyValue) int {
		order := map[storepb.Range_SortTarget]int{
			storepb.Range_KEY:     bytes.Compare(a.Key, b.Key),
			storepb.Range_VALUE:   bytes.Compare(a.Value, b.Value),
			storepb.Range_VERSION: cmp.Compare(a.Version, b.Version),
			storepb.Range_CREATE:  cmp.Compare(a.CreateRevision, b.CreateRevision),
			storepb.Range_MOD:     cmp.Compare(a.ModRevision, b.ModRevision),
		}[q.SortTarget]
		if q.SortOrder == storepb.Range_DESCEND {
			return -order
		}
		return order
	})
	if limit > 0 && len(all) > limit {
		all, result.More = all[:limit], true
	}
	for _, kv := range all {
		if q.KeysOnly {
			kv.Value = nil
		}
	}
	result.Kvs = all
	return result
}

// Ranges with all options come to what is simply computed, read without the log and inside a
// transaction that writes.
func TestRangeOptions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCore(t, 1, nil)
		defer c.close()
		c.elect(c.members[0])
		s := c.members[0].store
		m := newModel()
		names := rapid.SliceOfN(rapid.StringMatching(`[a-d]{1,3}`), 1, 30).Draw(t, "names")
		for i, name := range names {
			ops := []*storepb.Op{Put([]byte(name), fmt.Append(nil, i%5))}
			if i%7 == 6 {
				ops = []*storepb.Op{Delete([]byte(names[i-1]))}
			}
			if i%4 == 1 {
				ops = append(ops, Put(fmt.Append(nil, name, "x"), nil))
			}
			result := do(t, s, writes(ops...))
			state := map[string]*storepb.KeyValue{}
			all, err := s.Stale().Range(&storepb.Range{Key: []byte{0}, RangeEnd: []byte{0}})
			if err != nil {
				t.Fatal(err)
			}
			for _, kv := range all.Kvs {
				state[string(kv.Key)] = kv
			}
			m.revision = result.Revision
			m.states[m.revision] = state
		}
		bound := rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(-1, int64(m.revision)+1))
		for range 20 {
			q := &storepb.Range{
				Key:       []byte(rapid.StringMatching(`[a-d]{1,2}`).Draw(t, "key")),
				RangeEnd:  []byte(rapid.SampledFrom([]string{"", "\x00", "b", "cx", "e"}).Draw(t, "end")),
				Revision:  rapid.Uint64Range(0, m.revision).Draw(t, "revision"),
				Limit:     rapid.Uint64Range(0, 8).Draw(t, "limit"),
				KeysOnly:  rapid.Bool().Draw(t, "keys only"),
				CountOnly: rapid.IntRange(0, 5).Draw(t, "count only") == 0, Count: true,
				SortOrder:      storepb.Range_SortOrder(rapid.IntRange(0, 2).Draw(t, "order")),
				SortTarget:     storepb.Range_SortTarget(rapid.IntRange(0, 4).Draw(t, "target")),
				MinModRevision: bound.Draw(t, "min mod"), MaxModRevision: bound.Draw(t, "max mod"),
				MinCreateRevision: bound.Draw(t, "min create"),
				MaxCreateRevision: bound.Draw(t, "max create"),
			}
			if q.Revision == 1 {
				q.Revision = 0
			}
			revision := q.Revision
			if revision == 0 {
				revision = m.revision
			}
			want := naiveRange(m, q, revision)
			op := &storepb.Op{Op: &storepb.Op_Range{Range: q}}
			read, err := s.ReadTxn(context.Background(), writes(op).GetTxn())
			if err != nil {
				t.Fatalf("%v: %v", q, err)
			}
			if got := read.Txn.Results[0].GetRange(); !proto.Equal(got, want) {
				t.Fatalf("%v\ngot:  %v\nwant: %v", q, got, want)
			}
			// The put that is with it is of a key that it cannot find.
			done := do(t, s, writes(Put([]byte("A"), nil), op))
			m.revision = done.Revision
			m.states[m.revision] = m.states[m.revision-1]
			if got := done.Txn.Results[1].GetRange(); !proto.Equal(got, want) {
				t.Fatalf("in a transaction, %v\ngot:  %v\nwant: %v", q, got, want)
			}
		}
	})
}

// Large ranges are read, answers beyond the limit are refused, and a reading ends with its caller.
func TestLargeReads(t *testing.T) {
	_, s := one(t, nil)
	const keys = 2 * admission.DefaultMaxTouched
	for i := 0; i < keys; i += 1000 {
		var ops []*storepb.Op
		for j := range 1000 {
			ops = append(ops, Put(fmt.Appendf(nil, "k%06d", i+j), []byte("value")))
		}
		do(t, s, writes(ops...))
	}
	all := writes(&storepb.Op{Op: &storepb.Op_Range{
		Range: &storepb.Range{Key: []byte("k"), RangeEnd: []byte("l"), Count: true}}}).GetTxn()
	result, err := s.ReadTxn(t.Context(), all)
	if err != nil || len(result.Txn.Results[0].GetRange().Kvs) != keys {
		t.Fatalf("%d keys: %v", keys, err)
	}
	if _, err := s.Do(t.Context(), writes(all.Success...)); !errors.Is(err, command.ErrTooLarge) {
		t.Errorf("the same through the log: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.ReadTxn(ended, all); !errors.Is(err, context.Canceled) {
		t.Errorf("read of a caller that is gone: %v", err)
	}
	_, err = s.ReadTxn(t.Context(), writes(Put([]byte("k"), nil)).GetTxn())
	if !errors.Is(err, command.ErrInvalid) {
		t.Errorf("a put as a reading: %v", err)
	}
	err = s.ReadState(func(r *tables.Reader) error {
		_, err := r.RangeAt(all.Success[0].GetRange(), s.Revision(), tables.NewAllowance(1<<20))
		return err
	})
	if !errors.Is(err, command.ErrTooLarge) {
		t.Errorf("an answer of more than may be: %v", err)
	}
}

// What the first formats cannot say has one of its own, and what they can say keeps theirs.
func TestFormats(t *testing.T) {
	ranged := func(q *storepb.Range) *storepb.Command {
		return writes(&storepb.Op{Op: &storepb.Op_Range{Range: q}})
	}
	nested := func(c *storepb.Command) *storepb.Command {
		return writes(&storepb.Op{Op: &storepb.Op_Txn{Txn: c.GetTxn()}})
	}
	compared := If([]*storepb.Compare{{Key: []byte("a"), RangeEnd: []byte("b")}}, nil, nil)
	for _, c := range []struct {
		command *storepb.Command
		format  byte
	}{
		{ranged(&storepb.Range{Key: []byte("a"), Revision: 3, Limit: 1, KeysOnly: true}), 1},
		{ranged(&storepb.Range{Key: []byte("a"), SortOrder: storepb.Range_ASCEND}), 4},
		{ranged(&storepb.Range{Key: []byte("a"), SortTarget: storepb.Range_MOD}), 4},
		{ranged(&storepb.Range{Key: []byte("a"), MinModRevision: 1}), 4},
		{ranged(&storepb.Range{Key: []byte("a"), MaxModRevision: 1}), 4},
		{ranged(&storepb.Range{Key: []byte("a"), MinCreateRevision: 1}), 4},
		{nested(ranged(&storepb.Range{Key: []byte("a"), MaxCreateRevision: 1})), 4},
		{ranged(&storepb.Range{Key: []byte("a"), Revision: 1<<64 - 1}), 4},
		{Grant(1, 1), 1}, {Grant(-1, 1), 4}, {compared, 2}, {nested(compared), 2},
	} {
		data, err := command.Encode(c.command)
		if err != nil || data[0] != c.format {
			t.Errorf("%v has format %d, want %d: %v", c.command, data[0], c.format, err)
		}
	}
	// In a log of the first format a negative lease is refused, as it was by those that wrote it.
	c, s := one(t, nil)
	data, err := proto.Marshal(Grant(-1, 1000))
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.appendLocked(append([]byte{1}, data...))
	c.mu.Unlock()
	if _, err := s.Lease(-1); !errors.Is(err, command.ErrLeaseNotFound) {
		t.Errorf("a negative lease of format 1: %v", err)
	}
}

// Leases may have any id but 0; each has its own keys.
func TestLeaseIDs(t *testing.T) {
	_, s := one(t, nil)
	ids := []int64{1, -1, 1<<63 - 1, -1 << 63, -2}
	for _, id := range ids {
		do(t, s, Grant(id, 60_000))
		do(t, s, writes(PutLeased(fmt.Append(nil, id), nil, id)))
	}
	for _, id := range ids {
		info, err := s.Lease(id)
		if err != nil || len(info.Keys) != 1 || string(info.Keys[0]) != fmt.Sprint(id) {
			t.Errorf("lease %d: %q, %v", id, info.Keys, err)
		}
		do(t, s, Revoke(id))
		if get(t, s, fmt.Sprint(id)) != "-" {
			t.Errorf("the key of lease %d outlived it", id)
		}
	}
	if _, err := s.Do(t.Context(), Grant(0, 1)); !errors.Is(err, command.ErrInvalid) {
		t.Errorf("a lease without an id: %v", err)
	}
}

// A key may be as large as a command. It goes through tables, compaction, snapshots and watches.
func TestLargeKeys(t *testing.T) {
	c, s := one(t, nil)
	member := c.members[0]
	large := func(n int, last byte) []byte {
		return append(bytes.Repeat([]byte("k"), n), last)
	}
	keys := [][]byte{large(20_000, 'a'), large(1<<20, 'a'), large(1<<20, 'b'), large(3<<20, 0)}
	do(t, s, Grant(7, 60_000))
	for round := range 2 {
		for i, key := range keys {
			op := Put(key, fmt.Append(nil, round))
			if i == 1 {
				op = PutLeased(key, fmt.Append(nil, round), 7)
			}
			do(t, s, writes(op))
		}
	}
	check := func(s *Store, value string) {
		t.Helper()
		for i, key := range keys {
			if got := get(t, s, string(key)); got != value {
				t.Errorf("large key %d is %q, want %q", i, got, value)
			}
		}
		all, err := s.Stale().Range(&storepb.Range{Key: []byte{0}, RangeEnd: []byte{0}})
		if err != nil || len(all.Kvs) != len(keys) || !bytes.Equal(all.Kvs[1].Key, keys[1]) {
			t.Errorf("a range finds %d large keys, %v", len(all.GetKvs()), err)
		}
	}
	check(s, "1")
	member.close()
	member.open(nil)
	c.elect(member)
	s = member.store
	check(s, "1")
	do(t, s, Compact(s.Revision()))
	check(s, "1")
	w, err := s.Watch(nil, s.Compacted()-1)
	if err == nil {
		defer w.Close()
		if batch, err := w.Next(t.Context()); err != nil || len(batch.Events) == 0 {
			t.Errorf("watch of large keys: %d events, %v", len(batch.Events), err)
		}
	}
	snap, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	var data bytes.Buffer
	if err := snap.Write(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	other := newCore(t, 1, nil)
	defer other.close()
	staged, err := other.members[0].store.StageSnapshot(t.Context(), snap.Index(), snap.Term(), &data)
	if err != nil {
		t.Fatal(err)
	}
	if err := staged.Install(); err != nil {
		t.Fatal(err)
	}
	check(other.members[0].store, "1")
	do(t, s, Revoke(7))
	if get(t, s, string(keys[1])) != "-" {
		t.Error("a large key outlived its lease")
	}
}
