package job

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/spread"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// units has all unfinished units written, and returns the descriptions of all units.
func (r *run) units(ctx context.Context, plan *manifest.Plan) ([]manifest.Done, error) {
	done := make([]manifest.Done, len(plan.Units))
	finished := make([]bool, len(plan.Units))
	for object, err := range r.Target.List(ctx, manifest.UnitsPrefix(plan.Head.ID)) {
		if err != nil {
			return nil, err
		}
		n, ok := manifest.UnitOf(plan.Head.ID, object.Name)
		if !ok || n >= len(plan.Units) {
			continue
		}
		d, err := r.unit(ctx, plan, n)
		if err != nil {
			return nil, err
		}
		done[n], finished[n] = *d, true
		r.count(d)
	}
	var rest []int
	for n := range plan.Units {
		if !finished[n] {
			rest = append(rest, n)
		}
	}
	near, err := r.near(ctx, plan)
	if err != nil {
		return nil, err
	}
	keyspaces := make(map[uint32]*manifest.Keyspace)
	for i := range plan.Keyspaces {
		keyspaces[plan.Keyspaces[i].ID] = &plan.Keyspaces[i]
	}
	r.tell("write the keyspaces")
	return done, spread.Run(ctx, spread.Config{Nodes: r.Cluster.Nodes, PerNode: r.PerNode,
		Attempts: r.Attempts, RetryPause: r.RetryPause,
		Near:  func(n int) []keys.NodeID { return near[n] },
		Final: final,
		Do: func(ctx context.Context, node keys.NodeID, n int) error {
			d, err := r.write(ctx, plan, keyspaces[plan.Units[n].Keyspace], node, n)
			if err == nil {
				done[n] = *d
			}
			return err
		},
		Done: func(n int) error {
			r.count(&done[n])
			r.tell("")
			return nil
		},
		Failed: func(node keys.NodeID, _ int, err error) {
			r.progress.Failures++
			r.progress.LastFail = fmt.Sprintf("node %d: %v", node, err)
			r.tell("")
		},
	}, rest)
}

// ownError is an error of the job itself, and not of a node.
type ownError struct{ error }

func (e ownError) Unwrap() error { return e.error }

// final reports whether an error makes an attempt at another node useless.
func final(err error) bool {
	var own ownError
	return errors.As(err, &own) || errors.Is(err, ErrTooOld) || errors.Is(err, ErrGone) ||
		errors.Is(err, target.ErrRefused) || errors.Is(err, target.ErrFull)
}

// write has a node write a unit, and records the finished unit.
func (r *run) write(ctx context.Context, plan *manifest.Plan, ks *manifest.Keyspace,
	node keys.NodeID, n int) (*manifest.Done, error) {
	d, err := r.Cluster.Export(ctx, node, &Task{Plan: &plan.Head, Keyspace: ks, Number: n,
		Unit: plan.Units[n]})
	if err != nil {
		return nil, err
	}
	if d.Unit != n {
		return nil, fmt.Errorf("node %d answered with unit %d instead of %d", node, d.Unit, n)
	}
	if d, err = r.finish(ctx, plan, d); err != nil {
		return nil, ownError{err}
	}
	return d, nil
}

// count adds a finished unit to the progress.
func (r *run) count(d *manifest.Done) {
	r.progress.Done++
	r.progress.Totals.Add(d)
}

// unit reads the description of a finished unit.
func (r *run) unit(ctx context.Context, plan *manifest.Plan, n int) (*manifest.Done, error) {
	name := manifest.UnitName(plan.Head.ID, n)
	sealed, err := r.Target.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	data, err := archive.Unseal(sealed, unitKind, r.spec.Identity)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	d, err := manifest.DecodeDone(data)
	if err == nil && d.Unit != n {
		err = fmt.Errorf("it is the unit %d", d.Unit)
	}
	if err == nil {
		err = plan.CheckDone(d)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

// finish records a finished unit. If another Run has recorded the unit before, finish returns that
// record.
func (r *run) finish(ctx context.Context, plan *manifest.Plan,
	d *manifest.Done) (*manifest.Done, error) {
	if err := plan.CheckDone(d); err != nil {
		return nil, err
	}
	data, err := manifest.Encode(d)
	if err != nil {
		return nil, err
	}
	sealed, _, err := archive.Seal(unitKind, data, r.own())
	if err != nil {
		return nil, err
	}
	err = r.Target.Create(ctx, manifest.UnitName(plan.Head.ID, d.Unit), sealed)
	if errors.Is(err, target.ErrExists) {
		return r.unit(ctx, plan, d.Unit)
	}
	return d, err
}

// near returns, for each unit, the nodes that have replicas of its rows now.
func (r *run) near(ctx context.Context, plan *manifest.Plan) ([][]keys.NodeID, error) {
	d, err := r.Cluster.Describe(ctx)
	if err != nil {
		return nil, err
	}
	partitions := make(map[uint32][]manifest.Partition)
	for i := range d.Keyspaces {
		partitions[d.Keyspaces[i].ID] = d.Keyspaces[i].Partitions
	}
	near := make([][]keys.NodeID, len(plan.Units))
	for n := range plan.Units {
		near[n] = manifest.Near(partitions[plan.Units[n].Keyspace], plan.Units[n].Span())
	}
	return near, nil
}
