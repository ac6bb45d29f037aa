package etcdapi

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/watches"
)

// A revision is whole in one response, however large it is, or in fragments for a client that takes
// these.
func TestWatchFragments(t *testing.T) {
	const most = 100_000
	s := serveWatch(t, func(_ *Config, c *watches.Config) { c.ResponseBytes = most })
	e := connect(t, s.address)
	w := newRawWatch(t, e, false)
	value := strings.Repeat("v", 9000)
	for id, fragment := range map[int64]bool{1: false, 2: true} {
		w.create(&pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l"), WatchId: id,
			Fragment: fragment, PrevKv: true})
	}
	var puts []clientv3.Op
	for i := range 50 {
		puts = append(puts, clientv3.OpPut(fmt.Sprintf("k%02d", i), value))
	}
	must[*clientv3.TxnResponse](t)(s.Txn(t.Context()).Then(puts...).Commit())
	for range 3 {
		must[*clientv3.PutResponse](t)(s.Put(t.Context(), "k00", value))
	}
	must[*clientv3.DeleteResponse](t)(s.Delete(t.Context(), "k", clientv3.WithPrefix()))
	counts := func(all []*pb.WatchResponse) map[int64]int {
		n := map[int64]int{}
		for _, r := range all {
			n[r.WatchId] += len(r.Events)
		}
		return n
	}
	all := w.wait(func(all []*pb.WatchResponse) bool {
		n := counts(all)
		return n[1] >= 103 && n[2] >= 103
	})
	fragments, open := 0, int64(0)
	for _, r := range all {
		if open != 0 && r.WatchId != open {
			t.Errorf("a response of watch %d between the fragments of watch %d", r.WatchId, open)
		}
		open = 0
		if r.Fragment {
			fragments++
			open = r.WatchId
		}
		if n := len(r.Events); n > 0 && r.WatchId == 1 {
			switch first, last := r.Events[0].Kv.ModRevision, r.Events[n-1].Kv.ModRevision; {
			case first == 2 && n != 50, first == 6 && n != 50, last > r.Header.Revision:
				t.Errorf("a response has %d events of revisions %d to %d, its header says %d", n, first,
					last, r.Header.Revision)
			}
		}
		if size := len(r.Events) * 9000; r.WatchId == 2 && size > most {
			t.Errorf("a fragment has %d bytes", size)
		}
	}
	if fragments < 8 {
		t.Errorf("%d fragments", fragments)
	}
	if n := counts(all); n[1] != 103 || n[2] != 103 {
		t.Errorf("%v events, want 103", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if lines := take(t, s.Watch(ctx, "k", clientv3.WithPrefix(), clientv3.WithRev(2),
		clientv3.WithFragment()), 103); len(lines) != 103 {
		t.Errorf("etcd's client got %d events of fragments", len(lines))
	}
}

// A revision with more events than the store has in memory at once is whole all the same.
func TestWatchHugeRevision(t *testing.T) {
	s := serveWatch(t, nil)
	const many = 9000
	for from := 0; from < many; from += 100 {
		var puts []clientv3.Op
		for i := range 100 {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("k%05d", from+i), "v"))
		}
		must[*clientv3.TxnResponse](t)(s.Txn(t.Context()).Then(puts...).Commit())
	}
	w := newRawWatch(t, connect(t, s.address), false)
	for id := range int64(3) {
		w.create(&pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l"), WatchId: id + 1,
			PrevKv: true})
	}
	deleted := must[*clientv3.DeleteResponse](t)(s.Delete(t.Context(), "k", clientv3.WithPrefix()))
	if deleted.Deleted != many {
		t.Fatalf("%d keys deleted", deleted.Deleted)
	}
	w.create(&pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l"), WatchId: 4,
		StartRevision: deleted.Header.Revision})
	if r := w.progress(); r.Header.Revision != deleted.Header.Revision {
		t.Errorf("progress %v", r)
	}
	responses := 0
	for _, r := range w.wait(func([]*pb.WatchResponse) bool { return true }) {
		if r.Created || r.WatchId == watches.NoID {
			continue
		}
		if responses++; len(r.Events) != many || r.Fragment {
			t.Errorf("watch %d got %d of %d events of one revision", r.WatchId, len(r.Events), many)
		}
	}
	if responses != 4 {
		t.Errorf("%d responses before the progress", responses)
	}
}

// A revision that is too large for memory ends the watch, and says so.
func TestWatchTooLargeRevision(t *testing.T) {
	s := serveWatch(t, func(_ *Config, c *watches.Config) { c.MaxRevisionBytes = 10_000 })
	w := newRawWatch(t, connect(t, s.address), false)
	w.create(&pb.WatchCreateRequest{Key: []byte("k")})
	must[*clientv3.PutResponse](t)(s.Put(t.Context(), "k", strings.Repeat("v", 20_000)))
	all := w.wait(func(all []*pb.WatchResponse) bool { return len(all) == 2 })
	if r := all[1]; !r.Canceled ||
		!strings.Contains(r.CancelReason, "revision 2 has more than 10000 bytes") {
		t.Errorf("%v", r)
	}
	must[*clientv3.PutResponse](t)(s.Put(t.Context(), "k", "small"))
	if r := w.cancelled(0); r.CancelReason != "" {
		t.Errorf("%v", r)
	}
}

// A watch of bounds that no key can have is refused, and leaves the other watches alone.
func TestWatchTooLargeBounds(t *testing.T) {
	s := serveWatch(t, func(c *Config, _ *watches.Config) { c.MaxRequestBytes = 10_000 })
	w := newRawWatch(t, connect(t, s.address), false)
	w.create(&pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: bytes.Repeat([]byte("x"), 10_000)})
	all := w.wait(func(all []*pb.WatchResponse) bool { return len(all) == 1 })
	if r := all[0]; !r.Created || !r.Canceled ||
		!strings.Contains(r.CancelReason, "request is too large") {
		t.Errorf("%v", r)
	}
	w.create(&pb.WatchCreateRequest{Key: []byte("k")})
	w.wait(func(all []*pb.WatchResponse) bool { return len(all) == 2 && !all[1].Canceled })
}
