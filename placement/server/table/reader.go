package table

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// pageRows limits the rows of one update. An update may have more rows if they changed at one
	// revision.
	pageRows = 512
	// checkInterval is the interval of two checks of a stream: whether this member is still in contact
	// with a leader, and whether the revision for a resumption has fallen far behind.
	checkInterval = 3 * time.Second
	progressLag   = 500
	leaderAbsent  = 2 // checks
)

// Source provides a table. Streams is a Source, and so is node.Node with its own copy.
type Source interface {
	// Subscribe calls emit with the whole table, in updates of which the last is Complete, and then
	// with changes. It ends when ctx ends or emit returns an error. An update with Reset starts the
	// table again from the beginning.
	Subscribe(ctx context.Context, emit func(*clusterpb.TableUpdate) error) error
	// SubscribeTo is Subscribe for a receiver that wants only the partitions and leaders of some
	// keyspaces: the keyspaces in first, and those that come from more. Followed names the keyspaces
	// that have been sent completely. If the table has at most `small` partitions, it may be sent as a
	// whole (FollowsAll).
	SubscribeTo(ctx context.Context, first []uint32, more <-chan []uint32, small int,
		emit func(*clusterpb.TableUpdate) error) error
}

// Streams streams the table from a member's store.
type Streams struct {
	// ctx ends when the member is closed.
	ctx   context.Context
	meta  *meta.Records
	store *store.Store
	open  prometheus.Gauge
	// Cut counts the streams that were ended because their receivers did not read.
	Cut prometheus.Counter
}

// New makes the Streams of a member.
func New(
	ctx context.Context, records *meta.Records, from *store.Store,
) *Streams {
	return &Streams{ctx: ctx, meta: records, store: from,
		open: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tidemark_placement_table_streams",
			Help: "Streams of the partition table from this member."}),
		Cut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_placement_table_streams_cut_total",
			Help: "Streams of the partition table to nodes that were cut off because the node did " +
				"not read."})}
}

// Collectors returns the metrics.
func (t *Streams) Collectors() []prometheus.Collector {
	return []prometheus.Collector{t.open, t.Cut}
}

// Subscribe implements Source from the applied state of this member's store.
func (t *Streams) Subscribe(
	ctx context.Context, emit func(*clusterpb.TableUpdate) error,
) error {
	return t.follow(ctx, 0, emit)
}

// SubscribeTo implements Source. It sends the whole table, because the store does not order changes
// by keyspace.
func (t *Streams) SubscribeTo(ctx context.Context, _ []uint32, _ <-chan []uint32, _ int,
	emit func(*clusterpb.TableUpdate) error) error {
	return t.Subscribe(ctx, func(u *clusterpb.TableUpdate) error {
		u.FollowsAll = u.Complete
		return emit(u)
	})
}

// Send sends the changes after a revision to a receiver, and ends the stream if the receiver
// stalls. Revision 0 means the whole table.
func (t *Streams) Send(
	ctx context.Context, after uint64, send func(*clusterpb.TableUpdate) error,
) error {
	return SendTo(ctx, t.Cut.Inc, send,
		func(ctx context.Context, send func(*clusterpb.TableUpdate) error) error {
			return t.follow(ctx, after, send)
		})
}

// follow continues after a revision. 0 means from the beginning.
func (t *Streams) follow(
	ctx context.Context, after uint64, emit func(*clusterpb.TableUpdate) error,
) error {
	t.open.Inc()
	defer t.open.Dec()
	r := &reader{from: t, after: after}
	defer r.end()
	for {
		u, err := r.Next(ctx)
		if err != nil {
			return err
		}
		if err := emit(u); err != nil {
			return err
		}
	}
}

// reader reads the table from the store. After a CompactedError it begins again, with Reset.
type reader struct {
	from *Streams
	// after is the last revision that Next has returned.
	after uint64
	began bool
	anew  bool
	// pages has the remaining updates of the first part.
	pages func() (*clusterpb.TableUpdate, error, bool)
	stop  func()
	watch *store.Watcher
	// leaderless counts the consecutive checks without a leader.
	leaderless int
}

func (r *reader) end() {
	if r.stop != nil {
		r.stop()
		r.stop, r.pages = nil, nil
	}
	if r.watch != nil {
		r.watch.Close()
		r.watch = nil
	}
}

// Next waits for the next update and returns it.
func (r *reader) Next(ctx context.Context) (*clusterpb.TableUpdate, error) {
	for {
		u, err := r.next(ctx)
		if errors.Is(err, store.ErrCompacted) {
			r.end()
			r.after, r.began, r.anew = 0, false, true
			continue
		}
		if err != nil {
			return nil, r.from.meta.Status(err)
		}
		u.Cluster = r.from.meta.Cluster()
		return u, nil
	}
}

func (r *reader) next(ctx context.Context) (*clusterpb.TableUpdate, error) {
	if !r.began {
		if err := r.begin(); err != nil {
			return nil, err
		}
		if r.after != 0 {
			// The stream is resumed: the receiver has everything up to this revision.
			return &clusterpb.TableUpdate{Revision: r.after, Complete: true}, nil
		}
	}
	if r.pages != nil {
		u, err, ok := r.pages()
		if err != nil {
			return nil, err
		}
		if ok {
			u.Reset_ = r.anew
			r.anew = false
			return u, nil
		}
		r.stop()
		r.stop, r.pages = nil, nil
	}
	return r.change(ctx)
}

// begin opens the reader at a revision.
func (r *reader) begin() (err error) {
	after := r.after
	if after == 0 {
		view := r.from.store.Stale()
		nodes, err := meta.LoadNodes(view)
		if err != nil {
			return err
		}
		r.pages, r.stop = pages(view, nodes)
		after = view.Revision
	}
	r.watch, err = r.from.store.Watch([]byte(meta.TablePrefix), after)
	r.began = err == nil
	return err
}

// change waits for changes.
func (r *reader) change(ctx context.Context) (*clusterpb.TableUpdate, error) {
	for {
		limited, cancel := context.WithTimeout(ctx, checkInterval)
		batch, err := r.watch.Next(limited)
		cancel()
		if err == nil {
			batch, err = r.whole(ctx, batch)
		}
		switch {
		case err == nil:
			u, err := r.update(batch)
			if err == nil {
				r.after = u.Revision
			}
			if invariants.Enabled && err == nil && len(u.Partitions) > 0 && changed.Due(8) {
				r.from.checkInvariantTable()
			}
			return u, err
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		}
		if err := r.checkLeader(); err != nil {
			return nil, err
		}
		if now := r.watch.Progress(); now > r.after+progressLag {
			r.after = now
			return &clusterpb.TableUpdate{Revision: now}, nil
		}
	}
}

// whole adds the rest of a batch's last revision to the batch.
//
// INVARIANT: an update has all changes of a revision, or none of them. Receivers must see a merge
// and the removal of the merged partition together.
func (r *reader) whole(ctx context.Context, batch store.Batch) (store.Batch, error) {
	for n := len(batch.Events); n > 0 && batch.Events[n-1].KV.ModRevision > batch.Revision; {
		more, err := r.watch.Next(ctx)
		if err != nil {
			return batch, err
		}
		batch.Events, batch.Revision = append(batch.Events, more.Events...), more.Revision
		n = len(batch.Events)
	}
	return batch, nil
}

// changed counts the updates with partitions, so that checkInvariantTable runs only for some of
// them.
var changed invariants.Every

// checkInvariantTable checks that the table has no overlap, and no hole in an active keyspace.
func (t *Streams) checkInvariantTable() {
	view := t.store.Stale()
	keyspaces, err := meta.LoadKeyspaces(view)
	if err != nil {
		return // the revision was compacted meanwhile
	}
	active := map[uint32]bool{}
	for _, ks := range keyspaces {
		active[ks.Id] = ks.State == clusterpb.KeyspaceState_ACTIVE
	}
	var all []*clusterpb.Partition
	for kv, err := range view.All([]byte(meta.PartitionPrefix)) {
		if err != nil || len(all) > 16*invariants.Small {
			return
		}
		p, err := meta.DecodePartition(kv.Key, kv.Value)
		if err != nil {
			return
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *clusterpb.Partition) int {
		return cmp.Or(cmp.Compare(a.Keyspace, b.Keyspace), bytes.Compare(a.Start, b.Start))
	})
	for i := range all {
		if i == 0 || all[i-1].Keyspace != all[i].Keyspace {
			continue
		}
		a, b := all[i-1], all[i]
		order := bytes.Compare(a.End, b.Start)
		invariants.Check(len(a.End) > 0 && (order == 0 || order < 0 && !active[a.Keyspace]),
			"revision %d of the table: partition %s ends at %s, and partition %s begins at %s",
			view.Revision, keys.PartitionID(a.Id), keys.Pretty(a.End), keys.PartitionID(b.Id),
			keys.Pretty(b.Start))
	}
}

// checkLeader ends a stream if this member has been cut off from the core for a while. Otherwise
// the stream would be silent for ever.
func (r *reader) checkLeader() error {
	if r.from.ctx.Err() != nil {
		return status.Error(codes.Unavailable, "this member of the core is shutting down")
	}
	if l, _ := r.from.store.Leadership(); l.Leader != 0 {
		r.leaderless = 0
		return nil
	}
	if r.leaderless++; r.leaderless >= leaderAbsent {
		return status.Error(codes.Unavailable, "this member of the core has no leader; ask another")
	}
	return nil
}

// pages yields the whole content of a view, in updates of limited size. The last one is Complete.
func pages(
	view *store.View, nodes []*clusterpb.Node,
) (next func() (*clusterpb.TableUpdate, error, bool), stop func()) {
	return iter.Pull2(func(yield func(*clusterpb.TableUpdate, error) bool) {
		u := &clusterpb.TableUpdate{}
		rows := 0
		row := func() bool {
			if rows++; rows < pageRows {
				return true
			}
			full := u
			u, rows = &clusterpb.TableUpdate{}, 0
			return yield(full, nil)
		}
		for _, n := range nodes {
			u.Nodes = append(u.Nodes, n)
			if !row() {
				return
			}
		}
		for _, prefix := range []string{meta.KeyspacePrefix, meta.PartitionPrefix} {
			for kv, err := range view.All([]byte(prefix)) {
				if err == nil {
					err = add(u, kv.Key, kv.Value)
				}
				if err != nil {
					yield(nil, err)
					return
				}
				if !row() {
					return
				}
			}
		}
		u.Revision, u.Complete = view.Revision, true
		yield(u, nil)
	})
}

// add adds a keyspace or a partition to an update.
func add(u *clusterpb.TableUpdate, key, value []byte) error {
	if strings.HasPrefix(string(key), meta.KeyspacePrefix) {
		k := &clusterpb.Keyspace{}
		u.Keyspaces = append(u.Keyspaces, k)
		return proto.Unmarshal(value, k)
	}
	p, err := meta.DecodePartition(key, value)
	u.Partitions = append(u.Partitions, p)
	return err
}

// update converts events to an update. Of several changes of one row, the last counts.
func (r *reader) update(batch store.Batch) (*clusterpb.TableUpdate, error) {
	u := &clusterpb.TableUpdate{Revision: batch.Revision}
	last := map[string]int{}
	for i, e := range batch.Events {
		last[string(e.KV.Key)] = i
	}
	changed := map[uint64]bool{}
	for i, e := range batch.Events {
		key := string(e.KV.Key)
		if last[key] != i {
			continue
		}
		var err error
		switch {
		case strings.HasPrefix(key, meta.NodePrefix), strings.HasPrefix(key, meta.AlivePrefix):
			var id uint64
			id, err = meta.LastID(e.KV.Key, 16)
			changed[id] = true
		case strings.HasPrefix(key, meta.KeyspacePrefix):
			if !e.Deleted() {
				err = add(u, e.KV.Key, e.KV.Value)
				break
			}
			var id uint64
			id, err = meta.LastID(e.KV.Key, 8)
			u.RemovedKeyspaces = append(u.RemovedKeyspaces, uint32(id))
		case strings.HasPrefix(key, meta.PartitionPrefix):
			if !e.Deleted() {
				err = add(u, e.KV.Key, e.KV.Value)
				break
			}
			var id uint64
			id, err = meta.LastID(e.KV.Key, 16)
			u.RemovedPartitions = append(u.RemovedPartitions, id)
		}
		if err != nil {
			return nil, err
		}
	}
	// A node consists of two keys. So it is read in its present state, which is at least as new as the
	// events.
	view := r.from.store.Stale()
	for id := range changed {
		if err := addNode(u, view, keys.NodeID(id)); err != nil {
			return nil, err
		}
	}
	return u, nil
}

func addNode(u *clusterpb.TableUpdate, view *store.View, id keys.NodeID) error {
	n := &clusterpb.Node{}
	revision, err := meta.Load(view, meta.NodeKey(id), n)
	if err != nil {
		return err
	}
	if revision == 0 {
		u.RemovedNodes = append(u.RemovedNodes, uint64(id))
		return nil
	}
	alive, err := view.Get(meta.AliveKey(id))
	n.Alive = alive != nil
	u.Nodes = append(u.Nodes, n)
	return err
}
