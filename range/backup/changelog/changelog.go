package changelog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/job"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/spread"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Spec describes a log. It does not change during the life of the log.
type Spec struct {
	ID, Schedule string
	// Includes reports whether a keyspace belongs to the log. nil includes all keyspaces.
	Includes func(name string) bool
	// Recipients can read the log. If there are none, the log is not encrypted. Identity is a secret
	// of the writer, which is set if the log is encrypted: the writer needs it to read the
	// descriptions of rounds again.
	Recipients archive.Recipients
	Identity   archive.Identities
	// Keep limits how long the cluster keeps history that the log has not read yet.
	Keep time.Duration
}

// Cluster has the operations of a cluster that a log needs. Its methods may be called from several
// goroutines.
type Cluster interface {
	// Moment, Describe and Nodes do the same as the methods of job.Cluster.
	Moment(context.Context) (hlc.Timestamp, job.Coordination, error)
	Describe(context.Context) (*job.Description, error)
	Nodes(context.Context) ([]keys.NodeID, error)
	// Keep asks the cluster to keep the history of a keyspace since a moment, for at most the time
	// `keep`. The request is stored under an id and replaces an earlier request with that id.
	Keep(ctx context.Context, keyspace, id string, from hlc.Timestamp, keep time.Duration) error
	// WriteChanges asks a node to write pieces with the changes of some spans.
	WriteChanges(ctx context.Context, node keys.NodeID, task *Task) ([]manifest.Piece, error)
}

// Task is the part of a round that one node writes.
type Task struct {
	Log       string
	After, At hlc.Timestamp
	Spans     []Span
}

// Span is a span of rows of a keyspace.
type Span struct {
	Keyspace *manifest.Keyspace
	Rows     keys.Span
}

// Config has the dependencies of a Writer. Cluster, Target, Random and Now must be set.
type Config struct {
	Cluster Cluster
	Target  target.Target
	Random  func() uint64
	Now     func() time.Time
	// RetryPause is spread.Config.RetryPause. Zero means the default of package spread.
	RetryPause time.Duration
	// Failed is called when an attempt of a node has failed and will be repeated. It may be nil.
	Failed func(node keys.NodeID, err error)
}

// State describes the end of a log.
type State struct {
	At hlc.Timestamp
	// Round is the After of the last round. It is zero if the log has no round yet.
	Round hlc.Timestamp
	// Keyspaces are the ids of the keyspaces in the log.
	Keyspaces map[uint32]bool
	// Revision and Digest are the fields of the last round (manifest.Round).
	Revision int64
	Digest   string
	// kept has, for each keyspace, the moment since which the cluster keeps the history.
	kept map[uint32]hlc.Timestamp
}

// Writer writes rounds. It is for one goroutine.
type Writer struct {
	spec   Spec
	config Config
	state  State
}

// keepAgain is how far the log may advance before the Writer moves the start of the kept history
// forward. Each such move costs one write to the core for each keyspace.
const keepAgain = time.Minute

// maxSpans limits the number of spans in a task. maxSpanBytes limits the total size of their
// bounds.
const maxSpans, maxSpanBytes = 4096, 1 << 20

func newWriter(spec Spec, config Config) *Writer {
	if config.Failed == nil {
		config.Failed = func(keys.NodeID, error) {}
	}
	return &Writer{spec: spec, config: config, state: State{Keyspaces: make(map[uint32]bool),
		kept: make(map[uint32]hlc.Timestamp)}}
}

// State returns the end of the log. The Writer owns the returned value.
func (w *Writer) State() *State { return &w.state }

// Open opens a log, or creates it if it does not exist. last is the After of a round that the log
// has, such as State.Round of an earlier Writer. Zero is allowed, but makes Open slower.
func Open(ctx context.Context, spec Spec, config Config, last hlc.Timestamp) (*Writer, error) {
	w := newWriter(spec, config)
	c := catalog.New(config.Target, spec.Identity)
	head, err := c.LogHead(ctx, spec.ID)
	if errors.Is(err, target.ErrNotFound) {
		if head, err = w.begin(ctx); errors.Is(err, target.ErrExists) {
			head, err = c.LogHead(ctx, spec.ID) // another leader has created it
		}
	}
	if err != nil {
		return nil, err
	}
	w.state.At, w.state.Revision = head.From.Timestamp, head.Revision
	for _, id := range head.Keyspaces {
		w.state.Keyspaces[id] = true
	}
	at := head.From.Timestamp
	if at.Less(last) {
		at = last
	}
	for {
		r, err := c.Round(ctx, spec.ID, at)
		if errors.Is(err, target.ErrNotFound) && at == w.state.At {
			return w, nil
		}
		if err != nil {
			return nil, err
		}
		w.follow(r)
		at = r.At.Timestamp
	}
}

// begin creates the head of the log.
func (w *Writer) begin(ctx context.Context) (*manifest.LogHead, error) {
	at, coordination, err := w.config.Cluster.Moment(ctx)
	if err != nil {
		return nil, err
	}
	revision := int64(0)
	if coordination != nil {
		revision = coordination.Revision()
		coordination.Close()
	}
	d, err := w.describe(ctx)
	if err != nil {
		return nil, err
	}
	head := &manifest.LogHead{Format: manifest.Format, ID: w.spec.ID, Schedule: w.spec.Schedule,
		Cluster: d.Cluster, Version: d.Version, From: manifest.At(at), Began: w.config.Now().UTC(),
		Revision: revision, Recipients: len(w.spec.Recipients), Partial: w.spec.Includes != nil}
	for i := range d.Keyspaces {
		head.Keyspaces = append(head.Keyspaces, d.Keyspaces[i].ID)
		if err := w.keep(ctx, &d.Keyspaces[i].Keyspace, at); err != nil {
			return nil, err
		}
	}
	data, err := manifest.Encode(head)
	if err != nil {
		return nil, err
	}
	sealed, _, err := archive.Seal(manifest.LogHeadKind, data, archive.Options{})
	if err != nil {
		return nil, err
	}
	return head, w.config.Target.Create(ctx, manifest.LogHeadName(w.spec.ID), sealed)
}

// describe lists the keyspaces of the log.
func (w *Writer) describe(ctx context.Context) (*job.Description, error) {
	d, err := w.config.Cluster.Describe(ctx)
	if err != nil || w.spec.Includes == nil {
		return d, err
	}
	d.Keyspaces = slices.DeleteFunc(d.Keyspaces, func(ks job.Keyspace) bool {
		return !w.spec.Includes(ks.Name)
	})
	return d, nil
}

// keep asks the cluster to keep the history of a keyspace since a moment. It does nothing if the
// history is already kept since shortly before that moment.
func (w *Writer) keep(ctx context.Context, ks *manifest.Keyspace, from hlc.Timestamp) error {
	kept, known := w.state.kept[ks.ID]
	if known && from.Time().Sub(kept.Time()) < keepAgain {
		return nil
	}
	if err := w.config.Cluster.Keep(ctx, ks.Name, w.spec.ID, from, w.spec.Keep); err != nil {
		return fmt.Errorf("keeping the history of the keyspace %q: %w", ks.Name, err)
	}
	w.state.kept[ks.ID] = from
	return nil
}

// follow records a round as the last one.
func (w *Writer) follow(r *manifest.Round) {
	w.state.At, w.state.Round = r.At.Timestamp, r.After.Timestamp
	w.state.Revision, w.state.Digest = r.Revision, r.Digest
	clear(w.state.Keyspaces)
	for i := range r.Keyspaces {
		w.state.Keyspaces[r.Keyspaces[i].ID] = true
	}
}

// Round writes the next round. After an error another attempt may succeed. The exception is
// job.ErrTooOld: history that the log has not read was collected, and a new log must be started.
func (w *Writer) Round(ctx context.Context) (*manifest.Round, error) {
	at, coordination, err := w.config.Cluster.Moment(ctx)
	if err != nil {
		return nil, err
	}
	if coordination != nil {
		defer coordination.Close()
	}
	// A keyspace that was created after the moment is empty at the moment. The next round has all of
	// its versions.
	d, err := w.describe(ctx)
	if err != nil {
		return nil, err
	}
	r := &manifest.Round{Format: manifest.Format, Log: w.spec.ID, Cluster: d.Cluster,
		After: manifest.At(w.state.At), At: manifest.At(at)}
	for i := range d.Keyspaces {
		ks := d.Keyspaces[i].Keyspace
		if w.state.Keyspaces[ks.ID] {
			ks.After = r.After
		}
		r.Keyspaces = append(r.Keyspaces, ks)
	}
	if r.Pieces, err = w.pieces(ctx, r, d); err != nil {
		return nil, err
	}
	if err := w.coordination(ctx, r, coordination); err != nil {
		return nil, err
	}
	if r, err = w.create(ctx, r); err != nil {
		return nil, err
	}
	w.follow(r)
	for i := range r.Keyspaces {
		// A keyspace may have been dropped meanwhile. A history that is kept for too long does no harm.
		_ = w.keep(ctx, &r.Keyspaces[i], r.At.Timestamp)
	}
	return r, nil
}

// create stores the description of a round. If another leader has stored a description of the round
// before, create returns that description.
func (w *Writer) create(ctx context.Context, r *manifest.Round) (*manifest.Round, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	data, err := manifest.Encode(r)
	if err != nil {
		return nil, err
	}
	options := archive.Options{Recipients: slices.Clone(w.spec.Recipients)}
	if len(options.Recipients) > 0 {
		options.Recipients = append(options.Recipients, w.spec.Identity.Recipients()...)
	}
	sealed, _, err := archive.Seal(manifest.RoundKind, data, options)
	if err != nil {
		return nil, err
	}
	err = w.config.Target.Create(ctx, manifest.RoundName(r.Log, r.After.Timestamp), sealed)
	if errors.Is(err, target.ErrExists) {
		return catalog.New(w.config.Target, w.spec.Identity).Round(ctx, r.Log, r.After.Timestamp)
	}
	return r, err
}

// pieces has the nodes write the pieces of a round, and returns the pieces.
func (w *Writer) pieces(ctx context.Context, r *manifest.Round,
	d *job.Description) ([]manifest.Piece, error) {
	alive, err := w.config.Cluster.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	tasks := share(r, d, alive)
	units := make([]int, len(tasks))
	for n := range units {
		units[n] = n
	}
	var mu sync.Mutex
	var all []manifest.Piece
	err = spread.Run(ctx, spread.Config{Nodes: w.config.Cluster.Nodes,
		RetryPause: w.config.RetryPause,
		Near:       func(n int) []keys.NodeID { return []keys.NodeID{tasks[n].node} },
		Do: func(ctx context.Context, node keys.NodeID, n int) error {
			written, err := w.config.Cluster.WriteChanges(ctx, node, &tasks[n].Task)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				all = append(all, written...)
			}
			return err
		},
		Done:   func(int) error { return nil },
		Failed: func(node keys.NodeID, _ int, err error) { w.config.Failed(node, err) },
		Final: func(err error) bool {
			return errors.Is(err, job.ErrTooOld) || errors.Is(err, job.ErrGone) ||
				errors.Is(err, target.ErrRefused) || errors.Is(err, target.ErrFull)
		},
	}, units)
	slices.SortFunc(all, func(a, b manifest.Piece) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all, err
}

// shared is a task, and the node that will do it. size is the total size of the bounds of its
// spans.
type shared struct {
	Task
	node keys.NodeID
	size int
}

// share assigns each partition to one of the nodes that have a replica: the node with the fewest
// partitions so far.
func share(r *manifest.Round, d *job.Description, alive []keys.NodeID) (tasks []*shared) {
	of := make(map[keys.NodeID]*shared)
	count := make(map[keys.NodeID]int)
	for i := range d.Keyspaces {
		partitions := d.Keyspaces[i].Partitions
		for j := range partitions {
			rows := keys.Span{Start: partitions[j].Start}
			if j+1 < len(partitions) {
				rows.End = partitions[j+1].Start
			}
			var node keys.NodeID
			for _, n := range partitions[j].Nodes {
				if slices.Contains(alive, n) && (node == 0 || count[n] < count[node]) {
					node = n
				}
			}
			count[node]++
			t := of[node]
			if t == nil || len(t.Spans) == maxSpans || t.size > maxSpanBytes {
				t = &shared{node: node, Task: Task{Log: r.Log, After: r.After.Timestamp,
					At: r.At.Timestamp}}
				of[node] = t
				tasks = append(tasks, t)
			}
			t.size += len(rows.Start) + len(rows.End)
			t.Spans = append(t.Spans, Span{Keyspace: &r.Keyspaces[i], Rows: rows})
		}
	}
	return tasks
}
