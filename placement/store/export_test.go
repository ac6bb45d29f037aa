package store

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// An export has every version that can be read, each once, and the numbers of changes ascend.
func TestExport(t *testing.T) {
	_, s := one(t, nil)
	do(t, s, Grant(5, 60_000))
	do(t, s, Grant(-5, 7_000))
	for i := range 60 {
		do(t, s, writes(PutLeased(fmt.Append(nil, "a", i%7), fmt.Append(nil, i), 5),
			Put(fmt.Append(nil, "b", i), nil), Delete(fmt.Append(nil, "b", i-3))))
	}
	do(t, s, Compact(40))
	e, err := s.Export()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	put(t, s, "later", "")
	if e.Revision != s.Revision()-1 || e.Compacted != 40 || e.Index == 0 || e.Term == 0 {
		t.Errorf("%+v", e)
	}
	leases, err := e.Leases()
	if err != nil || len(leases) != 2 || leases[0] != (ExportedLease{ID: 5, TTLMillis: 60_000}) ||
		leases[1].ID != -5 {
		t.Errorf("%v, %v", leases, err)
	}
	// What the changes up to a revision come to is what can be read at it.
	state, last := map[string]string{}, Change{}
	check := func(revision uint64) {
		at := map[string]string{}
		all, err := s.At(revision).Range(&storepb.Range{Key: []byte{0}, RangeEnd: []byte{0}})
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range all.Kvs {
			at[string(kv.Key)] = kv.String()
		}
		if len(at) != len(state) {
			t.Errorf("revision %d has %d keys, the export %d", revision, len(at), len(state))
		}
		for key, kv := range at {
			if state[key] != kv {
				t.Errorf("revision %d has %s, the export %q", revision, kv, state[key])
			}
		}
	}
	if err := e.Changes(t.Context(), func(c Change) error {
		switch {
		case !c.Numbered && (last.Numbered || c.KV.ModRevision >= e.Compacted):
			t.Errorf("%v after %v", c, last)
		case c.Numbered && last.Numbered && (c.KV.ModRevision < last.KV.ModRevision ||
			c.KV.ModRevision == last.KV.ModRevision && c.Number <= last.Number):
			t.Errorf("%v after %v", c, last)
		case c.Numbered && last.Numbered && c.KV.ModRevision > last.KV.ModRevision:
			check(last.KV.ModRevision)
		}
		last = c
		if c.KV.Version == 0 {
			delete(state, string(c.KV.Key))
		} else {
			state[string(c.KV.Key)] = c.KV.String()
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	check(e.Revision)
	stop := errors.New("stop")
	if err := e.Changes(t.Context(), func(Change) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Changes(ended, func(Change) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
