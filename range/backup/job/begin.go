package job

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// begin decides what the backup contains, and creates the plan.
func (r *run) begin(ctx context.Context) (*manifest.Plan, error) {
	head := manifest.Head{Format: manifest.Format, ID: r.spec.ID, Kind: r.spec.Kind,
		Parent: r.spec.Parent, Began: r.spec.Began.UTC(), Recipients: len(r.spec.Recipients),
		Schedule: r.spec.Schedule}
	parent, earlier, err := r.parent(ctx)
	if err != nil {
		return nil, err
	}
	r.tell("choose the moment")
	at, state, err := r.Cluster.Moment(ctx)
	if err != nil {
		return nil, err
	}
	if state != nil {
		defer state.Close()
	}
	head.At = manifest.At(at)
	r.progress.At = at
	r.tell("list the keyspaces")
	// A keyspace that is created after the moment is empty at the moment; a keyspace that was dropped
	// since then cannot be read.
	d, err := r.Cluster.Describe(ctx)
	if err != nil {
		return nil, err
	}
	head.Cluster, head.Version = d.Cluster, d.Version
	if parent != nil {
		if head.After = parent.At; parent.Cluster != d.Cluster {
			return nil, fmt.Errorf("%w: the backup %s is of the cluster %s, this one is %s: begin a chain "+
				"with a full backup", manifest.ErrBroken, parent.ID, parent.Cluster, d.Cluster)
		}
	}
	plan := &manifest.Plan{Head: head, Settings: d.Settings}
	for i := range d.Keyspaces {
		ks := &d.Keyspaces[i]
		if r.spec.Includes != nil && !r.spec.Includes(ks.Name) {
			plan.Head.Partial = true
			continue
		}
		one := ks.Keyspace
		one.Splits = manifest.Splits(ks.Partitions)
		if earlier[ks.ID] {
			one.After = head.After
		}
		if err := r.protect(ctx, &one, at); err != nil {
			return nil, err
		}
		units := manifest.Cut(keys.KeyspaceID(ks.ID), ks.Partitions, r.Limits)
		plan.Keyspaces = append(plan.Keyspaces, one)
		plan.Head.Keyspaces = append(plan.Head.Keyspaces, ks.ID)
		plan.Units = append(plan.Units, units...)
	}
	// The history must be protected before this copy, which may take longer than a GC window. The state
	// of the coordination store is fixed, however long the copy takes.
	r.tell("copy the coordination store")
	if plan.Coordination, err = r.coordination(ctx, state); err != nil {
		return nil, err
	}
	if err := plan.Check(); err != nil {
		return nil, err
	}
	return r.create(ctx, plan)
}

// create stores the plan. If another Run has stored a plan before, create returns that plan.
func (r *run) create(ctx context.Context, plan *manifest.Plan) (*manifest.Plan, error) {
	data, err := manifest.Encode(plan)
	if err != nil {
		return nil, err
	}
	sealed, _, err := archive.Seal(planKind, data, r.own())
	if err != nil {
		return nil, err
	}
	switch err := r.Target.Create(ctx, manifest.PlanName(r.spec.ID), sealed); {
	case errors.Is(err, target.ErrExists):
		return r.plan(ctx)
	case err != nil:
		return nil, err
	}
	return plan, nil
}

// protect asks the cluster to keep the history of a keyspace that the backup reads.
func (r *run) protect(ctx context.Context, ks *manifest.Keyspace, at hlc.Timestamp) error {
	from := at
	if !ks.After.IsZero() {
		from = ks.After.Timestamp
	}
	err := r.Cluster.Protect(ctx, ks.Name, r.spec.ID, from, r.spec.Keep)
	if errors.Is(err, ErrTooOld) && !ks.After.IsZero() {
		return fmt.Errorf("keyspace %q: %w: what was deleted since the backup %s is not known any more. "+
			"Make a full backup", ks.Name, err, r.spec.Parent)
	}
	if err != nil {
		return fmt.Errorf("keyspace %q: %w", ks.Name, err)
	}
	return nil
}

// parent reads the head of the backup that this backup continues. It returns the head and the ids
// of its keyspaces, or nil for a full backup.
func (r *run) parent(ctx context.Context) (*manifest.Head, map[uint32]bool, error) {
	if r.spec.Kind != manifest.Incremental {
		return nil, nil, nil
	}
	chain, err := catalog.New(r.Target, nil).Chain(ctx, r.spec.Parent)
	if err != nil {
		return nil, nil, fmt.Errorf("the backup to continue: %w", err)
	}
	head := chain[len(chain)-1]
	earlier := make(map[uint32]bool)
	for _, id := range head.Keyspaces {
		earlier[id] = true
	}
	return head, earlier, nil
}

// coordination copies the coordination store. It returns nil if there is none.
func (r *run) coordination(ctx context.Context, state Coordination) (*manifest.Blob, error) {
	if state == nil {
		return nil, nil
	}
	attempt := r.Random()
	b := BlobWriter{Target: r.Target, Recipients: r.spec.Recipients, Kind: manifest.CoordinationKind,
		Name: func(part int) string { return manifest.CoordinationName(r.spec.ID, attempt, part) }}
	if err := state.Copy(ctx, func(part []byte) error { return b.Write(ctx, part) }); err != nil {
		return nil, fmt.Errorf("copying the coordination store: %w", err)
	}
	blob, err := b.Finish(ctx)
	if err == nil {
		blob.Revision = state.Revision()
	}
	return blob, err
}
