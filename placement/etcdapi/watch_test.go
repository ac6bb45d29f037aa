package etcdapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/watches"
)

// take takes events of a client's watch until there are so many, each as a line.
func take(t *testing.T, events clientv3.WatchChan, n int) (lines []string) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for len(lines) < n {
		select {
		case r, ok := <-events:
			if !ok || r.Err() != nil {
				t.Fatalf("the watch has ended after %q: %v", lines, r.Err())
			}
			for _, e := range r.Events {
				line := fmt.Sprintf("%d %s %s=%s", e.Kv.ModRevision, e.Type, e.Kv.Key, e.Kv.Value)
				if e.PrevKv != nil {
					line += " before " + string(e.PrevKv.Value)
				}
				lines = append(lines, line)
			}
		case <-deadline:
			t.Fatalf("after %q nothing comes", lines)
		}
	}
	return lines
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// etcd's own client watches: prefixes, single keys and everything, from now on and from the past,
// with what was before, without puts or deletions.
func TestWatchClient(t *testing.T) {
	s := serveWatch(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	put := must[*clientv3.PutResponse](t)
	put(s.Put(ctx, "a/1", "x")) // 2
	prefix := s.Watch(ctx, "a/", clientv3.WithPrefix(), clientv3.WithPrevKV(),
		clientv3.WithCreatedNotify())
	if created := <-prefix; !created.Created || created.Header.Revision != 2 ||
		created.Header.MemberId != 0xe1 || created.Header.ClusterId != 0xc1 ||
		created.Header.RaftTerm == 0 {
		t.Errorf("created: %+v", created)
	}
	key := s.Watch(ctx, "a/1", clientv3.WithRev(2))
	all := s.Watch(ctx, "", clientv3.WithFromKey(), clientv3.WithRev(1), clientv3.WithFilterDelete())
	future := s.Watch(ctx, "a", clientv3.WithPrefix(), clientv3.WithRev(5), clientv3.WithFilterPut())
	put(s.Put(ctx, "a/1", "y"))                             // 3
	put(s.Put(ctx, "b", "z"))                               // 4
	must[*clientv3.DeleteResponse](t)(s.Delete(ctx, "a/1")) // 5
	must[*clientv3.TxnResponse](t)(s.Txn(ctx).Then(         // 6
		clientv3.OpPut("a/1", "1"), clientv3.OpPut("a/2", "2"), clientv3.OpPut("c", "3")).Commit())
	must[*clientv3.DeleteResponse](t)(s.Delete(ctx, "", clientv3.WithFromKey())) // 7
	expect(t, take(t, prefix, 6), "3 PUT a/1=y before x", "5 DELETE a/1= before y", "6 PUT a/1=1",
		"6 PUT a/2=2", "7 DELETE a/1= before 1", "7 DELETE a/2= before 2")
	expect(t, take(t, key, 5), "2 PUT a/1=x", "3 PUT a/1=y", "5 DELETE a/1=", "6 PUT a/1=1",
		"7 DELETE a/1=")
	expect(t, take(t, all, 6), "2 PUT a/1=x", "3 PUT a/1=y", "4 PUT b=z", "6 PUT a/1=1",
		"6 PUT a/2=2", "6 PUT c=3")
	expect(t, take(t, future, 3), "5 DELETE a/1=", "7 DELETE a/1=", "7 DELETE a/2=")
}

// A client is told its progress when it asks, and when it wants to be notified.
func TestWatchProgress(t *testing.T) {
	s := serveWatch(t, func(_ *Config, c *watches.Config) { c.ProgressInterval = time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	notified := s.Watch(ctx, "quiet", clientv3.WithProgressNotify())
	must[*clientv3.PutResponse](t)(s.Put(ctx, "other", "x")) // 2
	for r := range notified {
		if !r.IsProgressNotify() || r.Header.Revision > 2 {
			t.Fatalf("%+v", r)
		}
		if r.Header.Revision == 2 {
			break
		}
	}
	e := connect(t, s.address)
	raw := newRawWatch(t, e, false)
	raw.send(progressRequest()) // etcd does not answer that of a stream without watches
	if r := raw.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 1}); r.WatchId != 0 ||
		r.Header.Revision != 2 {
		t.Errorf("%v", r)
	}
	if r := raw.progress(); r.Header.Revision != 2 || len(r.Events) > 0 || r.Canceled {
		t.Errorf("%v", r)
	}
	for i := range 100 {
		put := must[*clientv3.PutResponse](t)(s.Put(ctx, "a", fmt.Sprint(i)))
		// Progress is told behind the events up to it.
		if r := raw.progress(); r.Header.Revision != put.Header.Revision {
			t.Fatalf("%v after a put of revision %d", r, put.Header.Revision)
		}
		raw.wait(func(all []*pb.WatchResponse) bool {
			end := last(all, 2)
			if len(end[0].Events) != 1 || string(end[0].Events[0].Kv.Value) != fmt.Sprint(i) {
				t.Fatalf("before the progress of put %d came %v", i, end[0])
			}
			return true
		})
	}
}

// What no client of etcd does by itself: ids, mistakes, cancellations, and compaction.
func TestWatchControl(t *testing.T) {
	s := serveWatch(t, nil)
	e := connect(t, s.address)
	for range 9 {
		must[*clientv3.PutResponse](t)(s.Put(t.Context(), "a", "x")) // up to 10
	}
	must[*clientv3.CompactResponse](t)(s.Compact(t.Context(), 7))
	w := newRawWatch(t, e, false)
	a := []byte("a")
	for _, c := range []struct {
		request *pb.WatchCreateRequest
		id      int64
		reason  string
	}{
		{&pb.WatchCreateRequest{Key: a}, 0, ""},
		{&pb.WatchCreateRequest{Key: a}, 1, ""},
		{&pb.WatchCreateRequest{Key: a, WatchId: 1}, -1,
			"mvcc: duplicate watch ID provided on the WatchStream"},
		{&pb.WatchCreateRequest{Key: a, WatchId: 2}, 2, ""},
		{&pb.WatchCreateRequest{Key: a}, 3, ""},
		{&pb.WatchCreateRequest{Key: a, RangeEnd: a}, -1, "mvcc: watcher range is empty"},
		{&pb.WatchCreateRequest{RangeEnd: []byte{0}, WatchId: 77}, 77, ""},
		{&pb.WatchCreateRequest{Key: a, StartRevision: -1}, -1,
			"etcdserver: mvcc: required revision has been compacted"},
		{&pb.WatchCreateRequest{Key: a, StartRevision: 7, WatchId: 100}, 100, ""},
		{&pb.WatchCreateRequest{Key: a, StartRevision: 6, WatchId: 101}, 101, ""},
	} {
		r := w.create(c.request)
		if r.WatchId != c.id || r.CancelReason != c.reason || r.Canceled != (c.reason != "") ||
			r.Header.Revision != 10 {
			t.Errorf("%v: %v", c.request, r)
		}
	}
	all := w.wait(func(all []*pb.WatchResponse) bool {
		seen := map[int64]bool{}
		for _, r := range all {
			seen[r.WatchId] = seen[r.WatchId] || !r.Created
		}
		return seen[100] && seen[101]
	})
	for _, r := range all {
		switch {
		case r.Created:
		case r.WatchId == 101:
			if !r.Canceled || r.CompactRevision != 7 || r.CancelReason != "" || len(r.Events) > 0 ||
				r.Header.Revision != 0 {
				t.Errorf("a watch from a revision that has been compacted: %v", r)
			}
		case r.WatchId == 100:
			if len(r.Events) != 4 || r.Events[0].Kv.ModRevision != 7 || r.Header.Revision != 10 {
				t.Errorf("a watch from where the history starts: %v", r)
			}
		}
	}
	for _, id := range []int64{101, 2, 0} {
		if r := w.cancelled(id); r.CompactRevision != 0 || r.CancelReason != "" || r.Created ||
			r.Header.Revision != 10 {
			t.Errorf("cancelled: %v", r)
		}
	}
	// One that is not there gets no answer; the next request does.
	w.send(cancelRequest(2))
	if r := w.create(&pb.WatchCreateRequest{Key: a, WatchId: 2}); r.WatchId != 2 {
		t.Errorf("an id that is free again: %v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := <-s.Watch(ctx, "a", clientv3.WithRev(3))
	if !errors.Is(r.Err(), rpctypes.ErrCompacted) || r.CompactRevision != 7 {
		t.Errorf("etcd's client, from a revision that has been compacted: %+v", r)
	}
}

// Streams that demand a leader end when there has been none for a while.
func TestWatchRequiresLeader(t *testing.T) {
	s := serveWatch(t, func(c *Config, _ *watches.Config) { c.LeaderGrace = 50 * time.Millisecond })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	demanding := s.Watch(clientv3.WithRequireLeader(ctx), "a", clientv3.WithCreatedNotify())
	patient := s.Watch(ctx, "a", clientv3.WithCreatedNotify())
	<-demanding
	<-patient
	s.lone.setLeads(t, false)
	if r := <-demanding; !errors.Is(r.Err(), rpctypes.ErrNoLeader) {
		t.Errorf("without a leader: %+v", r)
	}
	s.lone.setLeads(t, true)
	must[*clientv3.PutResponse](t)(s.Put(ctx, "a", "x"))
	expect(t, take(t, patient, 1), "2 PUT a=x")
}

// logSignal is a log of which a line is enough.
type logSignal chan string

func (l logSignal) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

// A client that reads nothing delays no other, and is ended in the end.
func TestWatchThatReadsNothing(t *testing.T) {
	logged := make(logSignal, 1)
	s := serveWatch(t, func(_ *Config, c *watches.Config) {
		c.StallTimeout, c.Logger = 300*time.Millisecond, slog.New(slog.NewTextHandler(logged, nil))
	})
	deaf := newRawWatch(t, connect(t, s.address), true)
	deaf.send(createRequest(&pb.WatchCreateRequest{Key: []byte("k")}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := s.Watch(ctx, "k", clientv3.WithCreatedNotify())
	<-events
	value := string(bytes.Repeat([]byte("v"), 10_000))
	for line := ""; line == ""; {
		must[*clientv3.PutResponse](t)(s.Put(ctx, "k", value))
		if n := len(take(t, events, 1)); n != 1 {
			t.Fatalf("%d events of one put", n)
		}
		select {
		case line = <-logged:
			if !strings.Contains(line, "client=127.0.0.1:") {
				t.Error(line)
			}
		default:
		}
	}
	// Now it reads: what was on the way, and then why nothing more comes.
	deaf.receiving.Go(deaf.receive)
	err := deaf.ended()
	if status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), "read nothing for 300ms") {
		t.Errorf("the stream ended with %v", err)
	}
}
