package committer

import (
	"context"
	"fmt"
	"testing"
	"time"
)

func TestLargeTransactionsTravelInChunks(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		var writes []Write
		for i := range 3500 {
			writes = append(writes, put(k2(fmt.Sprintf("a0%05d", i)), "v"))
		}
		writes = append(writes, put(k2("a00big"), string(make([]byte, 3<<20))),
			put(k2("a00other"), string(make([]byte, 3<<20))))
		at, err := begin(t, ctx, c).Commit(ctx, writes, Reads{}, false)
		if err != nil {
			t.Fatal(err)
		}
		if n := s.locksLeft(c); n != 0 || len(s.newest()) != len(writes) {
			t.Errorf("%d locks, %d keys", n, len(s.newest()))
		}
		for k, v := range s.newest() {
			if v.At != at {
				t.Fatalf("%s lies at %s, not %s", k, v.At, at)
			}
		}
		if n := s.sent()["*kvpb.Request_Prepare"]; n != (3500+fewKeys-1)/fewKeys+2 {
			t.Errorf("%d requests", n)
		}
	})
}

// However large a transaction is, little of it is on its way at a time.
func TestLargeTransactionsGoSlowly(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		var writes []Write
		for i := range 20_000 {
			writes = append(writes, put(k1(fmt.Sprintf("a%05d", i)), string(make([]byte, 640))))
		}
		writes = append(writes, put(k1("big"), string(make([]byte, 5<<20))))
		if _, err := begin(t, ctx, c).Commit(ctx, writes[:3000], Reads{}, false); err != nil {
			t.Fatal(err)
		}
		if n := s.locksLeft(c); n != 0 || s.mostBytes > maxBytes || s.mostBytes < maxBytes/2 {
			t.Errorf("%d locks; up to %d bytes were on their way", n, s.mostBytes)
		}
		s.mostBytes, s.mostResolves = 0, 0
		if _, err := begin(t, ctx, c).Commit(ctx, writes[:len(writes)-1], Reads{}, false); err != nil {
			t.Fatal(err)
		}
		if n := s.locksLeft(c); n != 0 || s.mostBytes > hasteParallel*fewBytes ||
			s.mostBytes < fewBytes {
			t.Errorf("%d locks; up to %d bytes of a large transaction were on their way", n, s.mostBytes)
		}
		if s.mostResolves != fewParallel {
			t.Errorf("up to %d partitions were asked at a time to resolve locks", s.mostResolves)
		}
		if _, err := begin(t, ctx, c).Commit(ctx, writes[len(writes)-500:], Reads{},
			false); err != nil {
			t.Fatal(err)
		}
		if n := s.locksLeft(c); n != 0 || s.mostBytes > 5<<20+100 {
			t.Errorf("%d locks; up to %d bytes were on their way", n, s.mostBytes)
		}
	})
}

// A large transaction pauses while the nodes say that others use them, unless it has no time to.
func TestLargeTransactionsMakeWay(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		var writes []Write
		for i := range 40_000 {
			writes = append(writes, put(k1(fmt.Sprintf("a%05d", i)), "v"))
		}
		commit := func(ctx context.Context, loaded bool, n int) time.Duration {
			s.loaded = loaded
			began := time.Now()
			if _, err := begin(t, ctx, c).Commit(ctx, writes[:n], Reads{}, false); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		calm := commit(ctx, false, len(writes))
		if loaded := commit(ctx, true, len(writes)); loaded < 4*calm {
			t.Errorf("it took %s beside others, %s alone", loaded, calm)
		}
		hurried, cancel := context.WithTimeout(ctx, calm+calm/4)
		defer cancel()
		commit(hurried, true, len(writes))
		s.wanted = true
		if wanted := commit(ctx, true, len(writes)); wanted > 2*calm {
			t.Errorf("it took %s while others waited for its locks, %s alone", wanted, calm)
		}
		s.wanted, s.wantedLater = false, true
		if wanted := commit(ctx, true, len(writes)); wanted > 2*calm+2*heartbeatInterval {
			t.Errorf("it took %s while others waited for locks that it had acquired before, %s alone",
				wanted, calm)
		}
		s.wantedLater = false
		if small, other := commit(ctx, false, 3000), commit(ctx, true, 3000); other > 2*small {
			t.Errorf("a small one took %s beside others, %s alone", other, small)
		}
	})
}
