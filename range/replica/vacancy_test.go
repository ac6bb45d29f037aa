package replica

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// scanAt is what a replica answers to a scan at a timestamp, as if it was placed before, page by
// page.
func scanAt(t *testing.T, m *member, c *kvpb.ScanRequest, at hlc.Timestamp) string {
	var rows strings.Builder
	for {
		q := &kvpb.Request{Generation: 1, Term: 1, Command: &kvpb.Request_Scan{Scan: c}}
		answers := make(chan *kvpb.Response, 1)
		m.replica.reads.ServePlaced(config.Pending{Client: 1, Request: q, Arrived: time.Now(),
			Reply: func(a *kvpb.Response) { answers <- kept(a) }}, m.replica.Descriptor(), at)
		answer := <-answers
		if answer.Error != nil {
			t.Errorf("refused: %v", answer.Error)
			return ""
		}
		page := answer.GetScan()
		for _, row := range rowsOf(page.GetRows()) {
			fmt.Fprintf(&rows, "%s@%s ", row.Key, row.Version)
		}
		switch {
		case !page.More:
			return rows.String()
		case c.Reverse:
			c.End = page.Resume
		default:
			c.Start = page.Resume
		}
	}
}

// plainScan is the same by the state alone.
func plainScan(t *testing.T, m *member, c *kvpb.ScanRequest, at hlc.Timestamp) string {
	d := m.replica.Descriptor()
	var rows strings.Builder
	_, err := mvcc.Scan(m.state, mvcc.ScanOptions{Span: request.InternalSpan(d, c.Start, c.End),
		At: at, Reverse: c.Reverse}, func(key []byte, v mvcc.Version) error {
		fmt.Fprintf(&rows, "%s@%s ", keys.UserKey(d, key), v.Timestamp)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows.String()
}

func vacantKey(i int) string { return fmt.Sprintf("k%02d", i) }

func deleteRangeOf(from, to string) *kvpb.Request {
	return &kvpb.Request{Command: &kvpb.Request_DeleteRange{
		DeleteRange: &kvpb.DeleteRangeRequest{Start: []byte(from), End: []byte(to)}}}
}

// Leaders and followers answer scans, now and in the past, as the state alone would have it, while
// keys are put, loaded, deleted and collected, snapshots are installed, and the partition splits.
func TestVacantSpansOfReplicas(t *testing.T) {
	used := 0
	for seed := range uint64(40) {
		s := newLoadTest(t, 2, seed%2 == 0)
		random := rand.New(rand.NewPCG(seed, 1))
		var times []hlc.Timestamp
		for range 150 {
			first, n := random.IntN(40), 1+random.IntN(12)
			switch random.IntN(10) {
			case 0, 1, 2:
				for i := range n {
					s.must(s.ask(putOf(vacantKey((first+i)%40), "value")))
				}
			case 3, 4:
				for i := range n {
					s.must(s.ask(deleteOf(vacantKey((first + i) % 40))))
				}
			case 5:
				s.must(s.ask(deleteRangeOf(vacantKey(first), vacantKey(first+n))))
			case 6:
				var pairs []string
				for i := range min(n, 40-first) {
					pairs = append(pairs, vacantKey(first+i), fmt.Sprint(random.IntN(100)))
				}
				s.must(s.ask(loadOf(pairs...)))
			case 7:
				if random.IntN(3) == 0 && s.members[1].replica.Leadership().Term == 0 {
					if err := transfer(s.members[0], s.members[1]); err != nil {
						t.Fatal(err)
					}
				}
			default:
				s.members[1].catchUp(random.IntN(4))
			}
			s.physical.Advance(time.Duration(random.IntN(1000)) * time.Millisecond)
			s.members[0].replica.m.Mu.Lock()
			times = append(times, s.members[0].replica.m.Mu.Applied.Highest)
			s.members[0].replica.m.Mu.Unlock()
			for _, m := range s.members {
				c := &kvpb.ScanRequest{Reverse: random.IntN(2) == 0, MaxRows: uint32(random.IntN(3)),
					MaxBytes: []uint32{0, 0, 1, 60}[random.IntN(4)]}
				if random.IntN(2) == 0 {
					a, b := random.IntN(40), random.IntN(40)
					c.Start, c.End = []byte(vacantKey(min(a, b))), []byte(vacantKey(max(a, b)+1))
				}
				m.replica.m.Mu.Lock()
				at := m.replica.m.Mu.Applied.Highest
				m.replica.m.Mu.Unlock()
				if random.IntN(3) == 0 {
					at = hlc.Min(at, times[random.IntN(len(times))])
				}
				used += len(m.replica.m.Vacant.Spans())
				want := plainScan(t, m, c, at)
				if got := scanAt(t, m, c, at); got != want {
					t.Fatalf("seed %d: replica %s at %s: %q, want %q", seed, m.id, at, got, want)
				}
			}
		}
		leader := s.members[0].replica
		left, right := splitAt(leader.Descriptor(), vacantKey(20), 200)
		if err := leader.Reshape().Split(context.Background(), left, right); err != nil {
			t.Fatal(err)
		}
		if known := leader.m.Vacant.Spans(); len(known) > 0 {
			t.Errorf("after a split %+v is remembered", known)
		}
		s.close()
		if n := s.members[0].node.vacant.Used() + s.members[1].node.vacant.Used(); n != 0 {
			t.Errorf("seed %d: %d bytes are taken when the replicas are closed", seed, n)
		}
	}
	if used < 1000 {
		t.Errorf("only %d vacant spans were there to be used", used)
	}
}

// A read at a timestamp finds the same all the time, while others write and delete in the same
// span, and what is deleted is remembered.
func TestVacantSpansWhileWriting(t *testing.T) {
	s := newSplitTest(t, 1)
	defer s.close()
	m := s.members[0]
	var at atomic.Pointer[moment]
	note := func() {
		m.replica.m.Mu.Lock()
		now := m.replica.m.Mu.Applied.Highest
		m.replica.m.Mu.Unlock()
		at.Store(&moment{now, plainScan(t, m, &kvpb.ScanRequest{}, now)})
	}
	note()
	var ended atomic.Bool
	var readers sync.WaitGroup
	for i := range 3 {
		readers.Go(func() {
			for !ended.Load() && !t.Failed() {
				now := at.Load()
				if got := scanAt(t, m, &kvpb.ScanRequest{MaxRows: uint32(i)}, now.at); got != now.rows {
					t.Errorf("at %s: %q, want %q", now.at, got, now.rows)
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		if t.Failed() {
			break
		}
		key := vacantKey(random.IntN(30))
		if random.IntN(4) == 0 {
			s.must(s.ask(putOf(key, "value")))
		} else {
			s.must(s.ask(deleteOf(key)))
		}
		note()
	}
	ended.Store(true)
	readers.Wait()
}

// moment is what there is at a timestamp.
type moment struct {
	at   hlc.Timestamp
	rows string
}
