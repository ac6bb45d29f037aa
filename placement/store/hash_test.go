package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// The sum of the history is the same on all members, also on one that was filled by a snapshot, and
// tells states apart.
func TestHash(t *testing.T) {
	c := newCore(t, 3, nil)
	defer c.close()
	c.elect(c.members[0])
	s := c.members[0].store
	random := rand.New(rand.NewPCG(1, 2))
	do(t, s, Grant(9, 60_000))
	sums := map[uint64]Hash{}
	for range 200 {
		key := fmt.Appendf(nil, "k%d", random.IntN(20))
		switch random.IntN(10) {
		case 0:
			do(t, s, writes(Delete(key)))
		case 1:
			do(t, s, writes(PutLeased(key, nil, 9)))
		case 2:
			if to := s.Revision() - random.Uint64N(10); to > s.Compacted() && to <= s.Revision() {
				do(t, s, Compact(to))
			}
		default:
			do(t, s, writes(Put(key, fmt.Append(nil, random.IntN(100)))))
		}
		h, err := s.Hash(t.Context(), 0)
		if err != nil || h.Revision != s.Revision() || h.Newest != s.Revision() ||
			h.Compacted != s.Compacted() {
			t.Fatalf("%+v, %v", h, err)
		}
		if before, ok := sums[h.Revision]; ok && before.Compacted == h.Compacted && before != h {
			t.Fatalf("revision %d had sum %x, has %x", h.Revision, before.Sum, h.Sum)
		}
		sums[h.Revision] = h
	}
	if first, last := sums[2], sums[s.Revision()]; first.Sum == last.Sum {
		t.Error("different states have the same sum")
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
	c.members[1].catchUp()
	filled := c.members[2].store
	staged, err := filled.StageSnapshot(t.Context(), snap.Index(), snap.Term(), &data)
	if err == nil {
		err = staged.Install()
	}
	if err != nil {
		t.Fatal(err)
	}
	for revision := s.Compacted(); revision <= s.Revision(); revision++ {
		want, err := s.Hash(t.Context(), revision)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range []*Store{c.members[1].store, filled} {
			if got, err := other.Hash(t.Context(), revision); err != nil || got != want {
				t.Errorf("revision %d: %+v and %+v, %v", revision, want, got, err)
			}
		}
	}
	all, _, err := s.HashAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []*Store{c.members[1].store, filled} {
		if got, revision, err := other.HashAll(t.Context()); err != nil || got != all ||
			revision != s.Revision() {
			t.Errorf("all: %x and %x at revision %d, %v", all, got, revision, err)
		}
	}
	if _, err := s.Hash(t.Context(), s.Revision()+1); !errors.Is(err, command.ErrFutureRevision) {
		t.Error(err)
	}
	if _, err := s.Hash(t.Context(), s.Compacted()-1); !errors.Is(err, command.ErrCompacted) {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 2 * tables.InterruptEvery {
		put(t, s, fmt.Sprint("many", i), "")
	}
	if _, err := s.Hash(ended, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("of a caller that is gone: %v", err)
	}
	if _, err := s.DiskBytes(); err != nil {
		t.Error(err)
	}
}

// The sums of an empty store, and of one in which no version is left, are not 0, and those of all
// members.
func TestHashOfNothing(t *testing.T) {
	c := newCore(t, 2, nil)
	defer c.close()
	c.elect(c.members[0])
	s := c.members[0].store
	same := func(when string) {
		t.Helper()
		c.members[1].catchUp()
		want, err := s.Hash(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.members[1].store.Hash(t.Context(), 0)
		if err != nil || want.Sum == 0 || got != want {
			t.Errorf("%s: %+v and %+v, %v", when, want, got, err)
		}
		all, _, err := s.HashAll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		other, _, err := c.members[1].store.HashAll(t.Context())
		if err != nil || all == 0 || all != other {
			t.Errorf("%s, everything: %x and %x, %v", when, all, other, err)
		}
	}
	same("at first")
	put(t, s, "a", "1")
	do(t, s, writes(Delete([]byte("a"))))
	put(t, s, "b", "1")
	do(t, s, writes(Delete([]byte("b"))))
	same("with deletions")
	put(t, s, "c", "1")
	do(t, s, Compact(s.Revision()))
	if before, err := s.Hash(t.Context(), s.Revision()); err != nil ||
		before.Sum == tables.SumOfNothing {
		t.Errorf("with a key: %+v, %v", before, err)
	}
	same("with one key")
}
