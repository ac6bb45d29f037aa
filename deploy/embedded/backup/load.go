package backup

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/load"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/spread"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/backuppb"
)

// Load implements backuppb.WorkerServer.
func (w *Worker) Load(r *backuppb.LoadRequest, stream backuppb.Worker_LoadServer) error {
	if err := w.meant(r.GetCluster(), r.GetNode()); err != nil {
		return err
	}
	identities, err := identitiesOf(r.GetIdentities())
	for _, id := range []string{r.GetBackup(), r.GetLog()} {
		if bad := manifest.CheckID(id); bad != "" && (id == r.GetBackup() || id != "") {
			return status.Error(codes.InvalidArgument, bad)
		}
	}
	if err != nil {
		return failure(err)
	}
	ctx := stream.Context()
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
	case <-ctx.Done():
		return failure(ctx.Err())
	}
	store, err := w.config.Open(ctx, r.GetTarget())
	if err != nil {
		return failure(err)
	}
	defer store.Close()
	c := catalog.New(store, identities)
	point, err := w.point.get(ctx, c, r)
	if err != nil {
		return failure(err)
	}
	if int(r.GetUnit()) >= len(point.Units) {
		return status.Errorf(codes.InvalidArgument, "the backup %s has no unit %d", r.Backup, r.Unit)
	}
	unit := point.Units[r.GetUnit()]
	ks := point.KeyspaceOf(unit.Keyspace)
	sender, err := w.config.Sender()
	if err != nil {
		return failure(err)
	}
	id := keys.KeyspaceID(r.GetKeyspace())
	to, err := sender.AwaitKeyspace(ctx, id)
	if err != nil {
		return failure(err)
	}
	if to.Hashed() != ks.Hashed || to.Info.HashPartitions != ks.Hashes {
		return status.Errorf(codes.InvalidArgument, "the keyspace %q is not partitioned as the one in "+
			"the backup", r.GetKeyspaceName())
	}
	t := &loadTeller{stream: stream}
	_, err = load.Rows(ctx, load.Config{Sender: sender, Progress: t.tell, Pause: w.pause(w.restores)},
		load.Destination{ID: id, Name: r.GetKeyspaceName(), Hashed: ks.Hashed},
		c.Records(ctx, point, ks, unit.Span()))
	if err != nil {
		w.config.Logger.Warn("a unit of a backup was not restored", "backup", r.Backup, "unit", r.Unit,
			"keyspace", r.GetKeyspaceName(), "error", err)
		return failure(err)
	}
	return t.over()
}

// loadTeller reports the progress of a Load to its caller.
type loadTeller struct {
	mu     sync.Mutex
	stream backuppb.Worker_LoadServer
	sum    load.Loaded
	told   time.Time
}

// tell adds a block, and reports progress if a report is due.
func (t *loadTeller) tell(one load.Loaded) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Written += one.Written
	t.sum.Present += one.Present
	t.sum.Bytes += one.Bytes
	if time.Since(t.told) < tellEvery {
		return
	}
	t.told = time.Now()
	_ = t.stream.Send(t.answer(false)) // if the caller is gone, the context ends
}

// answer returns the counts since the last answer.
func (t *loadTeller) answer(over bool) *backuppb.LoadAnswer {
	a := &backuppb.LoadAnswer{Written: t.sum.Written, Present: t.sum.Present, Bytes: t.sum.Bytes,
		Over: over}
	t.sum = load.Loaded{}
	return a
}

// over reports the remaining counts.
func (t *loadTeller) over() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stream.Send(t.answer(true))
}

// saveEvery is the interval at which the record of loaded units is stored.
const saveEvery = 5 * time.Second

// load has the data nodes load all units that are not loaded.
func (r *restore) load(ctx context.Context) error {
	m := r.point
	var units []int
	r.mu.Lock()
	if want := (len(m.Units) + 7) / 8; len(r.loaded) != want {
		r.loaded = make([]byte, want)
	}
	for n := range m.Units {
		if r.chosen[m.Units[n].Keyspace] == nil {
			continue
		}
		r.told.Units++
		if r.loaded[n/8]&(1<<(n%8)) != 0 {
			r.told.UnitsDone++
			continue
		}
		units = append(units, n)
	}
	r.savedAt = time.Now()
	r.mu.Unlock()
	err := spread.Run(ctx, spread.Config{Nodes: r.Nodes, Do: r.loadUnit, Final: r.final,
		Done: func(n int) error {
			r.mu.Lock()
			r.told.UnitsDone++
			r.loaded[n/8] |= 1 << (n % 8)
			due := time.Since(r.savedAt) >= saveEvery
			if due {
				r.savedAt = time.Now()
			}
			loaded := slices.Clone(r.loaded)
			r.mu.Unlock()
			r.tell("")
			if due {
				return r.save(ctx, loaded)
			}
			return nil
		},
		Failed: func(node keys.NodeID, _ int, err error) {
			r.mu.Lock()
			r.told.Failures++
			r.told.LastFailure = fmt.Sprintf("node %d: %v", node, err)
			r.mu.Unlock()
			r.tell("")
		}}, units)
	if err != nil {
		return err
	}
	return r.save(ctx, r.loaded)
}

// final reports whether an error makes another node useless.
func (r *restore) final(err error) bool { return !r.Passing(err) }

// loadUnit has a node load a unit.
func (r *restore) loadUnit(ctx context.Context, node keys.NodeID, n int) error {
	worker, err := r.worker(node)
	if err != nil {
		return err
	}
	id := r.point.Units[n].Keyspace
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := worker.Load(ctx, &backuppb.LoadRequest{Cluster: r.config.Cluster(),
		Node: uint64(node), Target: r.backup.Target, Backup: r.backup.Restore.Backup,
		Unit: uint32(n), Identities: r.backup.Restore.Identities, Keyspace: r.ids[id],
		KeyspaceName: r.names[id], At: r.backup.Restore.At, Log: r.backup.Restore.Log})
	if err != nil {
		return err
	}
	for {
		answer, err := stream.Recv()
		if err != nil {
			return ofNode(err)
		}
		r.mu.Lock()
		r.told.Records += answer.GetWritten() + answer.GetPresent()
		r.told.Bytes += answer.GetBytes()
		r.mu.Unlock()
		r.tell("")
		if answer.GetOver() {
			return nil
		}
	}
}
