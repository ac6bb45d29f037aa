package etcdapi

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/watches"
)

// bothWatch is a stream of watches to a real etcd, and one to ours.
type bothWatch struct {
	b          *both
	etcd, ours *rawWatch
	// open are the watches that have not been cancelled by the client, and from where they began.
	open map[int64]int64
}

func newBothWatch(t testing.TB) (*both, *bothWatch) {
	etcd := reference.Test(t, reference.Options{Args: []string{"--unsafe-no-fsync"}})
	b := &both{t: t, etcd: connect(t, etcd.Endpoints()[0]),
		ours: connect(t, serveWatch(t, nil).address), revision: 1}
	return b, &bothWatch{b: b, etcd: newRawWatch(t, b.etcd, false),
		ours: newRawWatch(t, b.ours, false), open: map[int64]int64{}}
}

// same fails the test if responses to a request differ.
func (w *bothWatch) same(request string, want, got *pb.WatchResponse) {
	w.b.t.Helper()
	if want, got = comparable(want), comparable(got); !proto.Equal(want, got) {
		w.b.t.Fatalf("%s at revision %d, compacted %d\netcd: %v\nours: %v", request, w.b.revision,
			w.b.compacted, want, got)
	}
}

func comparable(r *pb.WatchResponse) *pb.WatchResponse {
	r = proto.Clone(r).(*pb.WatchResponse)
	normalize(nil, r)
	return r
}

func (w *bothWatch) create(r *pb.WatchCreateRequest) {
	w.b.t.Helper()
	want, got := w.etcd.create(r), w.ours.create(r)
	w.same(describe(r), want, got)
	if !want.Canceled {
		w.open[want.WatchId] = r.StartRevision
	}
}

func (w *bothWatch) cancel(id int64) {
	w.b.t.Helper()
	w.same(fmt.Sprint("cancel ", id), w.etcd.cancelled(id), w.ours.cancelled(id))
	delete(w.open, id)
}

// story is what happened to one watch, as lines: an event each, and the responses that end it.
func story(all []*pb.WatchResponse, id int64) (lines []string) {
	for _, r := range all {
		switch {
		case r.WatchId != id:
		case r.Created:
			lines = append(lines, "created") // the id may be taken again
		case r.Canceled:
			lines = append(lines, fmt.Sprintf("cancelled %d %q", r.CompactRevision, r.CancelReason))
		}
		if r.WatchId != id {
			continue
		}
		for _, e := range r.Events {
			lines = append(lines, describe(e))
		}
	}
	return lines
}

// settle waits until each watch has come to the same on both sides. It fails when that does not
// happen for long.
func (w *bothWatch) settle() {
	w.b.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		all := [2][]*pb.WatchResponse{}
		for i, side := range []*rawWatch{w.etcd, w.ours} {
			all[i] = side.wait(func([]*pb.WatchResponse) bool { return true })
		}
		ids := map[int64]bool{}
		for _, side := range all {
			for _, r := range side {
				ids[r.WatchId] = true
			}
		}
		differs := ""
		for id := range ids {
			want, got := story(all[0], id), story(all[1], id)
			if id != watches.NoID && !slices.Equal(want, got) {
				differs = fmt.Sprintf("watch %d, created at %d: etcd has %d lines, ours %d", id, w.open[id],
					len(want), len(got))
				i := 0
				for i < min(len(want), len(got)) && want[i] == got[i] {
					i++
				}
				differs += fmt.Sprintf("; from line %d on\netcd: %q\nours: %q", i, want[i:], got[i:])
			}
		}
		if differs == "" {
			return
		}
		select {
		case <-w.etcd.more:
		case <-w.ours.more:
		case <-deadline:
			w.b.t.Fatal(differs)
		}
	}
}

// progress asks both for the progress of all watches. etcd answers only if none of them lags at the
// moment, ended for a compaction, or begins later: these are cancelled before, and it is asked
// until it answers.
func (w *bothWatch) progress() {
	w.b.t.Helper()
	etcd := func() []*pb.WatchResponse {
		return w.etcd.wait(func([]*pb.WatchResponse) bool { return true })
	}
	answered := func(r *pb.WatchResponse) bool { return r.WatchId == watches.NoID && !r.Created }
	for id, from := range w.open {
		if from > w.b.revision {
			w.cancel(id)
		}
	}
	before := len(etcd())
	deadline := time.Now().Add(30 * time.Second)
	for !slices.ContainsFunc(etcd()[before:], answered) {
		if time.Now().After(deadline) {
			w.b.t.Fatalf("etcd tells no progress of %v at revision %d, compacted %d; the last are %v",
				w.open, w.b.revision, w.b.compacted, last(etcd(), 5))
		}
		ended := map[int64]bool{}
		for _, r := range etcd() {
			// An id may have been another watch's before.
			ended[r.WatchId] = !r.Created && (ended[r.WatchId] || r.CompactRevision != 0)
		}
		for id := range w.open {
			if ended[id] {
				w.cancel(id)
			}
		}
		if len(w.open) == 0 {
			return
		}
		w.etcd.send(progressRequest())
		select {
		case <-w.etcd.more:
		case <-time.After(100 * time.Millisecond):
		}
	}
	i := slices.IndexFunc(etcd()[before:], answered)
	w.same("progress", etcd()[before+i], w.ours.progress())
}

// Watches of a real etcd and of ours come to the same, field by field: of every kind, from now on,
// from the past, from what has been compacted and from the future, beside requests by chance.
func TestWatchLikeEtcd(t *testing.T) {
	b, w := newBothWatch(t)
	random := rand.New(rand.NewPCG(*likeEtcdSeed, 1))
	q := &requests{Rand: random, b: b}
	for range *likeEtcdRequests / 30 {
		for range random.IntN(4) {
			r := &pb.WatchCreateRequest{Key: q.key(), RangeEnd: q.end(), StartRevision: q.revision(),
				PrevKv: q.rarely(2), Fragment: q.rarely(3), ProgressNotify: q.rarely(5)}
			if q.rarely(3) {
				r.WatchId = random.Int64N(30)
			}
			if q.rarely(4) {
				r.StartRevision = b.compacted
			}
			if q.rarely(3) {
				r.Filters = append(r.Filters, pb.WatchCreateRequest_FilterType(random.IntN(2)))
			}
			w.create(r)
		}
		// Whether etcd still serves a watch from below a compaction that comes next is up to when it
		// looks after those that lag: they have caught up before.
		w.settle()
		w.progress()
		if q.rarely(2) {
			w.create(&pb.WatchCreateRequest{Key: q.key(), RangeEnd: q.end(), PrevKv: true,
				StartRevision: b.revision + 1 + random.Int64N(4)})
		}
		for range random.IntN(20) {
			request := q.next()
			if _, compacts := request.(*pb.CompactionRequest); compacts {
				// What etcd tells of what a key was before is up to when it sends the event: all events
				// have come before.
				w.settle()
				w.progress()
			}
			b.ask(request)
		}
		w.settle()
		w.progress()
		for _, id := range slices.Sorted(maps.Keys(w.open)) {
			if q.rarely(6) {
				w.cancel(id)
			}
		}
	}
	// A header is never below what its response has, nor below those before it.
	all := func([]*pb.WatchResponse) bool { return true }
	ours := w.ours.wait(all)
	for _, r := range ours {
		if n := len(r.Events); n > 0 && r.Header.Revision < r.Events[n-1].Kv.ModRevision {
			t.Errorf("the header says %d, and an event %d", r.Header.Revision,
				r.Events[n-1].Kv.ModRevision)
		}
	}
	t.Logf("seed %d: %d requests, revisions %d to %d, %d and %d responses", *likeEtcdSeed, b.done,
		b.compacted, b.revision, len(w.etcd.wait(all)), len(ours))
}
