package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// A transaction over hash and range keyspaces against a map: what it reads is what it found and has
// written, whatever was rolled back; and what it commits is all that is there afterwards.
func TestTxnBesideModel(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.AddKeyspace("hash", 5)
		c.AddKeyspace("range", 0, "k3", "k6")
		c.PageRows = 3
		client := c.open()
		defer client.Close()
		ctx := t.Context()
		spaces := []*Keyspace{client.Keyspace("hash"), client.Keyspace("range")}
		rapid.Check(undated{t}, func(t *rapid.T) {
			start, versions := []map[string]string{{}, {}}, []map[string]Timestamp{{}, {}}
			for i, ks := range spaces {
				if _, err := ks.DeleteRange(ctx, All()); err != nil {
					t.Fatal(err)
				}
				for _, k := range rapid.SliceOfN(rapid.IntRange(0, 9), 0, 6).Draw(t, "start") {
					key := fmt.Sprintf("k%d", k)
					start[i][key] = "old" + key
					var err error
					if versions[i][key], err = ks.Put(ctx, []byte(key), []byte("old"+key)); err != nil {
						t.Fatal(err)
					}
				}
			}
			var want []map[string]string
			at, err := client.Update(ctx, func(tx *Txn) error {
				want = []map[string]string{maps.Clone(start[0]), maps.Clone(start[1])}
				return steps(t, ctx, tx, spaces, want, versions)
			})
			if err != nil {
				t.Fatal(err)
			}
			for i, ks := range spaces {
				got := make(map[string]string)
				for p, err := range ks.Scan(ctx) {
					if err != nil {
						t.Fatal(err)
					}
					got[string(p.Key)] = string(p.Value)
					if start[i][string(p.Key)] != string(p.Value) && p.Version != at {
						t.Fatalf("%s has the version %s, not %s", p.Key, p.Version, at)
					}
				}
				if !maps.Equal(got, want[i]) {
					t.Fatalf("%s: %v, want %v", ks.Name(), got, want[i])
				}
			}
			// Snapshots and transactions that do not write find it so.
			check := func(s *Snapshot) error {
				snapshotIs(t, ctx, s, spaces, want)
				return nil
			}
			if err := client.View(ctx, check); err != nil {
				t.Fatal(err)
			}
			if !at.IsZero() {
				_ = check(client.SnapshotAt(hlc.Max(at, client.Timestamp())))
			}
		})
	})
}

// snapshotIs compares all that a snapshot can read with a model.
func snapshotIs(t *rapid.T, ctx context.Context, s *Snapshot, spaces []*Keyspace,
	model []map[string]string) {
	for i, ks := range spaces {
		from, to := []byte("k2"), []byte("k7")
		var want, got []string
		for _, k := range slices.Sorted(maps.Keys(model[i])) {
			if k >= string(from) && k < string(to) {
				want = append(want, k+"="+model[i][k])
			}
		}
		if n, err := s.Count(ctx, ks, From(from), To(to)); err != nil || int(n) != len(want) {
			t.Fatalf("%s: count %d, %v; want %v", ks.Name(), n, err, want)
		}
		slices.Reverse(want)
		want = want[:min(3, len(want))]
		for p, err := range s.Scan(ctx, ks, From(from), To(to), Reverse(), Limit(3)) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(p.Key)+"="+string(p.Value))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: scan in reverse %v, want %v", ks.Name(), got, want)
		}
		pairs, err := s.BatchGet(ctx, ks, [][]byte{[]byte("k1"), []byte("k5")})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pairs {
			if value, there := model[i][string(p.Key)]; p.Exists() != there || string(p.Value) != value {
				t.Fatalf("%s: batch get %v, want %q", ks.Name(), p, value)
			}
		}
	}
}

// steps does random things with a transaction and a model. A lock that an earlier transaction is
// just giving up is a conflict, which is returned. versions are those of what was there before,
// which is what begins with "old".
func steps(t *rapid.T, ctx context.Context, tx *Txn, spaces []*Keyspace, model []map[string]string,
	versions []map[string]Timestamp) error {
	type saved struct {
		point Savepoint
		state []map[string]string
	}
	var points []saved
	key := rapid.Custom(func(t *rapid.T) string {
		return fmt.Sprintf("k%d", rapid.IntRange(0, 9).Draw(t, "key"))
	})
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range rapid.IntRange(1, 25).Draw(t, "steps") {
		i := rapid.IntRange(0, 1).Draw(t, "keyspace")
		ks, k := spaces[i], key.Draw(t, "key")
		switch op := rapid.SampledFrom(
			[]string{"get", "lock", "batch", "put", "delete", "swap", "scan", "count", "clear",
				"save", "back"}).Draw(t, "op"); op {
		case "get", "lock":
			get := tx.Get
			if op == "lock" {
				get = tx.GetForUpdate
			}
			p, err := get(ctx, ks, []byte(k))
			if runAgain(err) {
				return err
			}
			value, there := model[i][k]
			if there != (err == nil) || (!there && !errors.Is(err, ErrNotFound)) ||
				string(p.Value) != value {
				t.Fatalf("get %s: %q, %v; want %q, %v", k, p.Value, err, value, there)
			}
		case "batch":
			all := [][]byte{[]byte(k), []byte("k0"), []byte("k9"), []byte("k5")}
			pairs, err := tx.BatchGet(ctx, ks, all)
			must(err)
			for j, p := range pairs {
				if value, there := model[i][string(all[j])]; p.Exists() != there ||
					string(p.Value) != value || !bytes.Equal(p.Key, all[j]) {
					t.Fatalf("batch get %s: %v", all[j], p)
				}
			}
		case "put":
			must(tx.Put(ks, []byte(k), []byte("new"+k)))
			model[i][k] = "new" + k
		case "delete":
			must(tx.Delete(ks, []byte(k)))
			delete(model[i], k)
		case "swap":
			// The later ones find what the first has written.
			for range rapid.IntRange(1, 3).Draw(t, "swaps") {
				if err := swapBesideModel(t, ctx, tx, ks, k, model[i], versions[i]); err != nil {
					return err
				}
			}
		case "scan", "count", "clear":
			from, to := k, key.Draw(t, "to")
			if to <= from {
				to = from + "x"
			}
			span := keys.Span{Start: []byte(from), End: []byte(to)}
			var want []string
			for k, v := range model[i] {
				if span.Contains([]byte(k)) {
					want = append(want, k+"="+v)
				}
			}
			slices.Sort(want)
			if op == "count" {
				n, err := tx.Count(ctx, ks, From(span.Start), To(span.End))
				must(err)
				if int(n) != len(want) {
					t.Fatalf("count %s: %d, want %v", span, n, want)
				}
				break
			}
			if op == "clear" {
				n, err := tx.DeleteRange(ctx, ks, From(span.Start), To(span.End))
				must(err)
				if int(n) != len(want) {
					t.Fatalf("delete range %s: %d, want %v", span, n, want)
				}
				maps.DeleteFunc(model[i], func(k, _ string) bool { return span.Contains([]byte(k)) })
				break
			}
			options := []ScanOption{From(span.Start), To(span.End)}
			if rapid.Bool().Draw(t, "reverse") {
				options = append(options, Reverse())
				slices.Reverse(want)
			}
			if n := rapid.IntRange(0, 3).Draw(t, "limit"); n > 0 {
				options = append(options, Limit(n))
				want = want[:min(n, len(want))]
			}
			var got []string
			for p, err := range tx.Scan(ctx, ks, options...) {
				must(err)
				got = append(got, string(p.Key)+"="+string(p.Value))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("scan %s: %v, want %v", span, got, want)
			}
		case "save":
			points = append(points, saved{tx.Savepoint(),
				[]map[string]string{maps.Clone(model[0]), maps.Clone(model[1])}})
		case "back":
			if len(points) == 0 {
				break
			}
			n := rapid.IntRange(0, len(points)-1).Draw(t, "savepoint")
			must(tx.RollbackTo(points[n].point))
			for _, later := range points[n+1:] {
				if tx.RollbackTo(later.point) == nil {
					t.Fatal("a later savepoint is still there")
				}
			}
			points = points[:n+1]
			model[0], model[1] = maps.Clone(points[n].state[0]), maps.Clone(points[n].state[1])
		}
	}
	return nil
}

// swapBesideModel swaps a key as a random expectation says, or finds that it is otherwise. It
// returns a conflict.
func swapBesideModel(t *rapid.T, ctx context.Context, tx *Txn, ks *Keyspace, k string,
	model map[string]string, versions map[string]Timestamp) error {
	value, there := model[k]
	var version Timestamp
	if there {
		if version = Uncommitted(); strings.HasPrefix(value, "old") {
			version = versions[k]
		}
	}
	type expectation struct {
		name   string
		expect Expectation
		holds  bool
	}
	ofVersion := func(name string, v Timestamp) expectation {
		return expectation{name, ExpectVersion(v), version == v}
	}
	all := []expectation{
		{"absence", ExpectAbsent(), !there},
		{"new value", ExpectValue([]byte("new" + k)), value == "new"+k},
		{"old value", ExpectValue([]byte("old" + k)), value == "old"+k},
		ofVersion("old version", hlc.Max(versions[k], Timestamp{Wall: 1})), // any, if there was none
		ofVersion("later version", versions[k].Next()),
		ofVersion("own version", Uncommitted()),
	}
	if rapid.Bool().Draw(t, "likely") {
		all = slices.DeleteFunc(all, func(e expectation) bool {
			return !e.holds && e.name != "old value"
		})
	}
	e := all[rapid.IntRange(0, len(all)-1).Draw(t, "expectation")]
	replacement, deletes := Set([]byte("swapped")), rapid.Bool().Draw(t, "deletes")
	if deletes {
		replacement = Delete()
	}
	swap, err := tx.CompareAndSwap(ctx, ks, []byte(k), e.expect, replacement)
	if runAgain(err) {
		return err
	}
	switch {
	case err != nil || swap.Swapped != e.holds:
		t.Fatalf("swap %s, expecting its %s, of %q at %s: %+v, %v", k, e.name, value, version,
			swap, err)
	case !e.holds:
		if c := swap.Current; string(c.Key) != k || c.Exists() != there ||
			string(c.Value) != value || c.Version != version {
			t.Fatalf("swap %s: it found %v, want %q at %s", k, c, value, version)
		}
	case swap.Version != Uncommitted() || swap.Current.Exists():
		t.Fatalf("swap %s: %+v", k, swap)
	case deletes:
		delete(model, k)
	default:
		model[k] = "swapped"
	}
	return nil
}
