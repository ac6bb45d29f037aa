package store

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/apply"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/execute"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/invariants"
)

// Applied implements group.StateMachine.
func (s *Store) Applied() (index, term uint64) { return s.machine.Applied() }

// Apply implements group.StateMachine. All changes of the entries, and the applied index, are one
// batch.
func (s *Store) Apply(entries []group.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	last := entries[len(entries)-1]
	a, err := s.apply(last.Term, func(a *apply.Application) error {
		for _, e := range entries {
			if err := a.Entry(e); err != nil {
				return fmt.Errorf("entry %d of the log of %s: %w", e.Index, s.config.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.publish(&a.Effects, last.Term)
	return nil
}

// apply commits all changes of f, or none. term is the term of the applied index.
func (s *Store) apply(
	term uint64, f func(*apply.Application) error,
) (a *apply.Application, err error) {
	s.beginFilling()
	batch := s.config.State.NewIndexedBatch()
	defer batch.Close()
	defer func() {
		if err != nil {
			s.blocks.Reset(s.Revision())
			s.newest.Reset()
		}
	}()
	if a, err = s.machine.Begin(batch, s.hub.WantsPrevious()); err != nil {
		return nil, err
	}
	defer a.Close()
	if err := f(a); err != nil {
		return nil, err
	}
	if err := a.Finish(term); err != nil {
		return nil, err
	}
	if err := s.config.State.Commit(batch); err != nil {
		return nil, fmt.Errorf("commit entries up to %d of the log of %s: %w", a.Index, s.config.Name,
			err)
	}
	s.machine.Committed(a, term)
	return a, nil
}

// Recover replaces the members, applies ops, raises the revision, and drops the history, durably
// and in one step. Tools call it on the state of a stopped member that has applied all of its log.
// A state without applied entries then has applied index 1, at term 1: its content comes from no
// entry, so no member may replay the log from the first entry.
func (s *Store) Recover(next *storepb.Members, ops ...*storepb.Op) error {
	if err := command.ValidateMembers(next); err != nil {
		return err
	}
	_, term := s.Applied()
	a, err := s.apply(max(term, 1), func(a *apply.Application) error {
		return a.Recover(next, ops, time.Now())
	})
	if err != nil {
		return err
	}
	s.blocks.Reset(a.Meta.Revision)
	s.newest.Reset()
	s.members.replace(next)
	s.revision.Store(a.Meta.Revision)
	s.compacted.Store(a.Meta.Compacted)
	return s.config.State.Flush()
}

// publish makes an application visible: to the lessor, to readers, to watchers, and last to the
// callers that wait for the outcomes.
func (s *Store) publish(a *apply.Effects, term uint64) {
	if a.Members != nil {
		s.members.replace(a.Members)
	}
	if a.Authority != nil {
		s.authority.replace(a.Authority)
	}
	if a.Alarms != nil {
		s.alarms.Store(a.Alarms)
	}
	if a.ForgetLeases {
		s.lessor.Replace(a.Leases, a.Attached)
	} else {
		s.lessor.Changed(a.Leases, a.Attached)
	}
	if a.Replaced || a.ForgetLeases {
		s.blocks.Reset(a.Meta.Revision)
	}
	known := s.visible(a, term)
	if a.Replaced {
		s.hub.Reset(a.Meta.Revision)
	} else {
		s.hub.Publish(a.Events, a.Meta.Revision)
	}
	s.Settle(known)
	s.Wake()
}

// visible makes an application the newest state. It returns the commands whose outcome is now
// known.
func (s *Store) visible(a *apply.Effects, term uint64) []execute.Known {
	if invariants.Enabled && !a.Replaced {
		invariants.Check(s.revision.Load() <= a.Meta.Revision &&
			s.compacted.Load() <= a.Meta.Compacted,
			"%s: revision %d, compacted %d, follows revision %d, compacted %d", s.config.Name,
			a.Meta.Revision, a.Meta.Compacted, s.revision.Load(), s.compacted.Load())
	}
	s.revision.Store(a.Meta.Revision)
	s.compacted.Store(a.Meta.Compacted)
	if a.Meta.CompactionRest != nil {
		s.Compactor.Left(a.Meta) // Compactor.Applied reports the end
	}
	imports := tables.Importing(a.Meta)
	importChanged := s.importing.Swap(imports) != imports
	s.Advance(a.Index)
	now := s.EntriesApplied(term, a.Answers)
	switch {
	case now.Changed, importChanged:
		s.Serve(now.Serving && !imports)
	case len(a.Leases) > 0:
		s.Keeper.Look()
	}
	if now.Changed {
		s.Compactor.Look()
	}
	s.Gate.Applied(a.Meta.Bytes, now.Reserved, a.Freed)
	s.Compactor.Applied(a.Meta)
	return now.Known
}

// LeadershipChanged implements group.StateMachine.
func (s *Store) LeadershipChanged(l group.Leadership) {
	serving := s.SetLeadership(l)
	s.Serve(serving && !s.importing.Load())
	s.Compactor.Look()
}

// execution adapts the Store to execute.Machine, for the execution of commands.
type execution struct{ *Store }

// Prepare implements execute.Machine.
func (e execution) Prepare(ctx context.Context, c *storepb.Command) (*storepb.Command, error) {
	err := e.Check(ctx, c)
	if compact := c.GetCompact(); compact != nil && err == nil {
		return e.Compactor.Prepare(ctx, c, compact)
	}
	return c, err
}

// evaluation adapts the Store to apply.Store, for the evaluation of commands.
type evaluation struct{ *Store }

// Evaluated implements apply.Store.
func (e evaluation) Evaluated(c *storepb.Command, r *storepb.Result) { e.metrics.applied(c, r) }
