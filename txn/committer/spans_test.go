package committer

import (
	"context"
	"fmt"
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// A decision names spans from the first to the last key of each partition that the table shows when
// it is asked for, whatever the table showed before.
func TestADecisionNamesSpans(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		s.splitBefore = "*kvpb.Request_Prepare"
		x := begin(t, ctx, c)
		if _, err := x.Commit(ctx, []Write{put(k2("a4"), "1"), put(k2("a2"), "1"), put(k2("a1"), "1"),
			put(k2("a5"), "1"), put(k1("x"), "1")}, Reads{}, false); err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, p := range s.participants {
			got[fmt.Sprintf("%d/%d %s-%s", p.Keyspace, p.GetHash(), p.Key, p.Last)] = true
			if p.Hash == nil {
				t.Errorf("%v names a partition by one key", p)
			}
		}
		// Keyspace 2 is cut at a3 and a6 by now.
		for _, want := range []string{"2/0 a1-a2", "2/0 a4-a5",
			fmt.Sprintf("1/%d x-", keys.HashPartition([]byte("x"), 4))} {
			if !got[want] || len(got) != 3 {
				t.Errorf("%v, without %s", got, want)
			}
		}
	})
}

// A table that changes while keys are looked up leaves none of them out.
func TestATableThatChangesLeavesNoKeyOut(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		looked := 0
		s.hide = func(Key) error {
			if looked++; looked%3 == 0 {
				s.generation++
			}
			return nil
		}
		var all []Key
		for i := range 100 {
			all = append(all, k2(fmt.Sprintf("a%d", i*37%100)), k1(fmt.Sprint(i)))
		}
		places, err := c.placesOf(ctx, all)
		if err != nil {
			t.Fatal(err)
		}
		spans := participantsOf(places)
	keys:
		for _, k := range all {
			for _, p := range spans {
				if p.Keyspace == k.Keyspace && p.Span().Contains(k.Key) && (k.Keyspace == 2 ||
					p.Hash == keys.HashPartition(k.Key, 4)) {
					continue keys
				}
			}
			t.Errorf("%v is in no span", k)
		}
	})
}

// Locks whose partition has split, or been merged, since they were acquired are ended in all that
// has become of it, without anything that meets them.
func TestLocksAreEndedWhereTheyAreByNow(t *testing.T) {
	for _, commits := range []bool{true, false} {
		bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
			x := begin(t, ctx, c)
			// One partition holds a2 and a4, until it is cut at a3.
			if _, err := x.Lock(ctx, hlc.Timestamp{}, false, k2("a2"), k2("a4")); err != nil {
				t.Fatal(err)
			}
			s.splitBefore = "*kvpb.Request_Resolve"
			if commits {
				if _, err := x.Commit(ctx, []Write{put(k2("a4"), "1"), put(k1("x"), "1")}, Reads{},
					false); err != nil {
					t.Fatal(err)
				}
			} else {
				x.Abort()
			}
			if n := s.locksLeft(c); n != 0 || s.splitBefore != "" {
				t.Errorf("%d locks are left", n)
			}
		})
	}
}

// Spans that are held are ended where they lie by now, too.
func TestHeldSpansAreEndedWhereTheyAreByNow(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		x := begin(t, ctx, c)
		x.AnchorAt(k1("x"))
		span := Span{2, AllPartitions, keys.Span{Start: []byte("a2"), End: []byte("a5")}}
		places, err := s.Overlapping(ctx, span)
		if err != nil || len(places) != 1 {
			t.Fatal(places, err)
		}
		x.held.add(places[0], keys.Span{Start: []byte("a2"), End: []byte("a2x")})
		x.held.add(places[0], keys.Span{Start: []byte("a4"), End: []byte("a5")})
		for _, key := range []string{"a2", "a4"} { // which is where the transaction has something
			s.data[2].Locks[key] = lockOf(x)
		}
		s.splitBefore = "*kvpb.Request_Resolve"
		x.Abort()
		if n := s.locksLeft(c); n != 0 {
			t.Errorf("%d locks are left", n)
		}
	})
}

// What a transaction that commits in one phase has held is ended in all partitions but the one that
// has committed it, as that is by then.
func TestOnePhaseEndsWhatItHeldElsewhere(t *testing.T) {
	for _, splits := range []bool{false, true} {
		bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
			x := begin(t, ctx, c)
			places, err := s.Overlapping(ctx, Span{2, AllPartitions, keys.Point([]byte("a2"))})
			if err != nil {
				t.Fatal(err)
			}
			x.AnchorAt(k2("a2"))
			x.held.add(places[0], keys.Span{Start: []byte("a2"), End: []byte("a5")})
			want := 0
			if splits {
				s.splitBefore = "*kvpb.Request_Prepare"
				want = 3 // one for what was, and those for what it is by now
			}
			if _, err := x.Commit(ctx, []Write{put(k2("a2"), "1")}, Reads{}, false); err != nil {
				t.Fatal(err)
			}
			s.locksLeft(c)
			if n := s.sent()["*kvpb.Request_Resolve"]; n != want {
				t.Errorf("%d requests, want %d", n, want)
			}
		})
	}
}

// Keys that take more room than a decision has are named by wider spans, and no key is left out.
func TestLongKeysAreNamedByWiderSpans(t *testing.T) {
	var places []written
	for i := range 3000 {
		first := append([]byte(fmt.Sprintf("%05d", i)), make([]byte, 4000)...)
		places = append(places, written{Place{Keyspace: 2, Partition: keys.PartitionID(i),
			Generation: 1, Hash: AllPartitions}, first, append(first[:len(first):len(first)], 1)})
	}
	spans := participantsOf(places)
	if len(spans) >= len(places) || !txn.ParticipantsFit(spans) {
		t.Errorf("%d spans", len(spans))
	}
	for _, w := range places {
		found := false
		for i := range spans {
			found = found || spans[i].Span().Contains(w.first) && spans[i].Span().Contains(w.last)
		}
		if !found {
			t.Fatalf("%.5s is in no span", w.first)
		}
	}
	if n := len(aborted(places)); n != len(spans) {
		t.Errorf("an abort names %d", n)
	}
}

// The partitions of one hash number are told apart by their spans.
func TestHashPartitionsHaveSpans(t *testing.T) {
	place := func(id keys.PartitionID, hash int, start, end string) Place {
		return Place{Keyspace: 1, Partition: id, Generation: 2, Hash: hash,
			Span: keys.Span{Start: []byte(start), End: []byte(end)}}
	}
	was := place(1, 3, "", "")
	c := chunk{place: was, mutations: []*kvpb.Mutation{{Key: []byte("a")}, {Key: []byte("k")}}}
	r := readChunk{place: was, set: kvpb.ReadSet{Keys: [][]byte{[]byte("a")},
		Spans: []*kvpb.KeySpan{{Start: []byte("b"), End: []byte("k")}}}}
	h := held{place: was, span: keys.Span{Start: []byte("a"), End: []byte("k")}}
	for _, p := range []struct {
		place             Place
		chunk, read, held bool
	}{
		{place(2, 3, "", "m"), true, true, true},
		{place(2, 3, "", "k"), false, true, true},
		{place(2, 3, "", "b"), false, false, false},
		{place(2, 3, "m", ""), false, false, false},
		{place(2, 4, "", ""), false, false, false},
	} {
		if c.fits(p.place) != p.chunk || r.fits(p.place) != p.read || h.fits(p.place) != p.held {
			t.Errorf("%s of number %d: %t, %t, %t", p.place.Span, p.place.Hash, c.fits(p.place),
				r.fits(p.place), h.fits(p.place))
		}
	}
}
