package coordination

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
)

// Watches runs watchers that follow the changes of writers, from any revision, over any member that
// etcd's client connects to, while history is compacted. Each watcher receives every change once,
// in order, with all changes of one revision together. It receives no change at or below the
// revision of a progress notification that came before. The received changes are compared with the
// writes, with each other, and with reads of old revisions. The keys change every Age.
type Watches struct {
	Writers, Watchers, Keys int
	Age, Pause              time.Duration
	// Kept is how long history is kept before the workload compacts it.
	Kept time.Duration

	windows driver.Windows[*watchWindow]

	mu struct {
		sync.Mutex
		// marks has revisions, with the times at which they were the newest.
		marks []mark
		// compacting is the highest revision to which a compaction was requested.
		compacting int64
	}
}

type mark struct {
	at       time.Time
	revision int64
}

// Name implements Workload.
func (*Watches) Name() string { return "etcd-watches" }

// Clients implements Workload.
func (w *Watches) Clients() int { return w.Writers + w.Watchers }

// Setup implements Workload.
func (w *Watches) Setup(ctx context.Context, run *driver.Run) error {
	w.windows.Age = w.Age
	w.windows.Fresh = func(number int64) *watchWindow {
		return newWatchWindow(fmt.Sprintf("%s/%d/", w.Name(), number))
	}
	return available(ctx, run, w.Name())
}

// Drive implements Workload. The first clients write.
func (w *Watches) Drive(ctx context.Context, run *driver.Run, number int, _ *driver.Client,
	random *rand.Rand) {
	client, err := connect(ctx, run, w.Name())
	if err != nil {
		run.Violation("%s: connecting: %v", w.Name(), err)
		return
	}
	defer client.hangUp()
	for n := 0; run.Rest(ctx, random, w.Pause); n++ {
		if number >= w.Writers {
			w.watch(ctx, run, client, random)
			continue
		}
		if !w.windows.CloseDue(ctx, run, func(ctx context.Context, x *watchWindow) error {
			return w.close(ctx, run, client, x, random)
		}) {
			continue
		}
		x := w.windows.Enter(run.Elapsed())
		attempt, cancel := driver.Patience(ctx, random)
		if number == 0 && random.IntN(50) == 0 {
			run.Count("etcd compact", w.compact(attempt, client))
		} else {
			w.write(attempt, run, client, x.State, fmt.Sprintf("%d.%d", number, n), random)
		}
		cancel()
		w.windows.Leave(x)
	}
}

// write does a transaction of up to three puts, or of a delete and perhaps a put.
func (w *Watches) write(ctx context.Context, run *driver.Run, client connected, x *watchWindow,
	value string, random *rand.Rand) {
	var ops []clientv3.Op
	var changes []change
	perm := random.Perm(w.Keys)
	for i := range 1 + random.IntN(3) {
		key := x.prefix + string(rune('a'+perm[i%w.Keys]))
		c := change{key: key, value: fmt.Sprintf("%s.%d", value, i)}
		if i == 0 && random.IntN(3) == 0 {
			c = change{key: key, deleted: true}
			ops = append(ops, clientv3.OpDelete(key))
		} else {
			ops = append(ops, clientv3.OpPut(key, c.value))
		}
		changes = append(changes, c)
	}
	x.trying(changes, w.newest())
	var r *clientv3.TxnResponse
	err := client.Do(ctx, "etcd write", func(ctx context.Context) (err error) {
		r, err = client.SDK().Txn(ctx).Then(ops...).Commit()
		return err
	})
	run.Count("etcd write", err)
	if err != nil {
		x.failed(changes, driver.EtcdUnknown(err))
		return
	}
	if d := r.Responses[0].GetResponseDeleteRange(); d != nil && d.Deleted == 0 {
		changes = changes[1:] // there was nothing to delete
	}
	x.wrote(r.Header.Revision, changes)
	w.note(r.Header.Revision)
}

// maxMarks bounds the number of marks.
const maxMarks = 256

func (w *Watches) note(revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.marks = append(w.mu.marks, mark{time.Now(), revision})
	if len(w.mu.marks) > maxMarks {
		w.mu.marks = w.mu.marks[maxMarks/2:]
	}
}

// newest returns the highest revision that is known to have been reached.
func (w *Watches) newest() (revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.mu.marks {
		revision = max(revision, m.revision)
	}
	return revision
}

// compact compacts history to the newest revision that has been kept for Kept.
func (w *Watches) compact(ctx context.Context, client connected) error {
	w.mu.Lock()
	to := int64(0)
	for _, m := range w.mu.marks {
		if time.Since(m.at) >= w.Kept {
			to = m.revision
		}
	}
	if to <= w.mu.compacting {
		w.mu.Unlock()
		return nil
	}
	w.mu.compacting = to
	w.mu.Unlock()
	return client.Do(ctx, "etcd compact", func(ctx context.Context) error {
		_, err := client.SDK().Compact(ctx, to)
		if errors.Is(err, rpctypes.ErrCompacted) {
			return nil // compacted by an earlier attempt
		}
		return err
	})
}

// compacted returns the highest revision to which history may have been compacted by now.
func (w *Watches) compacted() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.compacting
}

// watch follows a window for a while with a few watches, mostly over one stream, from drawn
// revisions.
func (w *Watches) watch(ctx context.Context, run *driver.Run, client connected,
	random *rand.Rand) {
	x := w.windows.Enter(run.Elapsed())
	defer w.windows.Leave(x)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+random.IntN(12))*time.Second)
	defer cancel()
	if random.IntN(2) == 0 {
		ctx = clientv3.WithRequireLeader(ctx)
	}
	var running sync.WaitGroup
	defer running.Wait()
	for range 1 + random.IntN(3) {
		s := &segment{prefix: x.State.prefix, from: x.State.revisionSince(random)}
		if s.from == 0 {
			return // nothing is known to be written yet
		}
		if random.IntN(4) == 0 {
			s.key = s.prefix + string(rune('a'+random.IntN(w.Keys)))
		}
		source := rand.New(rand.NewPCG(random.Uint64(), 1))
		running.Go(func() {
			w.follow(ctx, run, client, s, source, func() bool { return false })
			x.State.watched(s)
		})
	}
}

// progressEvery is the time between two progress requests of a watcher.
const progressEvery = 700 * time.Millisecond

// follow watches until the context ends, or enough returns true after a response.
func (w *Watches) follow(ctx context.Context, run *driver.Run, client connected, s *segment,
	random *rand.Rand, enough func() bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := []clientv3.OpOption{clientv3.WithRev(s.from), clientv3.WithPrevKV()}
	if s.key == "" {
		options = append(options, clientv3.WithPrefix())
	}
	if random.IntN(2) == 0 {
		options = append(options, clientv3.WithFragment())
	}
	if random.IntN(2) == 0 {
		options = append(options, clientv3.WithProgressNotify())
	}
	ended := client.Report(ctx, "etcd watch")
	answers := client.SDK().Watch(ctx, s.watched(), options...)
	ask := time.NewTicker(progressEvery)
	defer ask.Stop()
	for !enough() {
		select {
		case <-ask.C:
			_ = client.SDK().RequestProgress(ctx)
			continue
		case r, open := <-answers:
			if !open { // the context has ended; the closed channel may show that first
				ended(nil)
				run.Count("etcd watch", nil)
				return
			}
			compacted := w.compacted()
			if err := r.Err(); err != nil && r.CompactRevision > 0 {
				// Servers may compact history too, but not in runs of this length.
				if s.next() >= r.CompactRevision || r.CompactRevision > compacted {
					run.Violation("%s: a watch of %s from %d on ended because of a compaction to %d; it "+
						"was to be told revision %d next, and no client compacted beyond %d", w.Name(),
						s.watched(), s.from, r.CompactRevision, s.next(), compacted)
				}
				ended(nil)
				run.Count("etcd watch compacted", nil)
				return
			} else if err != nil {
				ended(err)
				run.Count("etcd watch", err)
				return
			}
			if why := s.take(r, compacted); why != "" {
				run.Violation("%s: a watch of %s from %d on: %s", w.Name(), s.watched(), s.from, why)
			}
		case <-ctx.Done():
			ended(nil)
			run.Count("etcd watch", nil)
			return
		}
	}
	ended(nil)
	run.Count("etcd watch", nil)
}

// close follows a window from its beginning to its end, reads it at some of its revisions, and
// checks everything that clients have learned of it.
func (w *Watches) close(ctx context.Context, run *driver.Run, client connected, x *watchWindow,
	random *rand.Rand) error {
	var end *clientv3.GetResponse
	err := client.Do(ctx, "etcd read", func(ctx context.Context) (err error) {
		end, err = client.SDK().Get(ctx, x.prefix, clientv3.WithPrefix())
		return err
	})
	if err != nil {
		return err
	}
	x.readAt(end.Header.Revision, end)
	first := x.first()
	if first == 0 {
		return nil // nothing is known to be written
	}
	whole := &segment{prefix: x.prefix, from: max(first, w.compacted()+1)}
	w.follow(ctx, run, client, whole, random, func() bool {
		return whole.next() > end.Header.Revision
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	x.watched(whole)
	for range 3 {
		revision := first + random.Int64N(end.Header.Revision-first+1)
		var r *clientv3.GetResponse
		compacted := false
		err := client.Do(ctx, "etcd old read", func(ctx context.Context) (err error) {
			r, err = client.SDK().Get(ctx, x.prefix, clientv3.WithPrefix(),
				clientv3.WithRev(revision))
			if errors.Is(err, rpctypes.ErrCompacted) {
				compacted, err = true, nil
			}
			return err
		})
		switch {
		case err != nil:
			return err
		case compacted && revision >= w.compacted():
			run.Violation("%s: revision %d is said to be compacted, and no client compacted beyond %d",
				w.Name(), revision, w.compacted())
		case !compacted:
			x.readAt(revision, r)
		}
	}
	for _, why := range x.check() {
		run.Violation("%s, keys %s: %s", w.Name(), x.prefix, why)
	}
	_, _ = client.SDK().Delete(ctx, x.prefix, clientv3.WithPrefix())
	return nil
}

// Check implements Workload.
func (w *Watches) Check(ctx context.Context, run *driver.Run, _ *driver.Client) error {
	client, err := connect(ctx, run, w.Name())
	if err != nil {
		return err
	}
	defer client.hangUp()
	random := rand.New(rand.NewPCG(1, 1))
	return w.windows.CloseAll(ctx, func(ctx context.Context, x *watchWindow) error {
		return w.close(ctx, run, client, x, random)
	})
}
