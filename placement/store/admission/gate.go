package admission

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/execute"
	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/space"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// Store are the methods of the store that a Gate needs. The Gate calls them without locks.
type Store interface {
	// ReadState runs f on the newest state of the database.
	ReadState(f func(*tables.Reader) error) error
	Alarms() []*storepb.Alarm
	Members() *storepb.Members
	Leadership() (execute.Leadership, <-chan struct{})
	Confirm(ctx context.Context) error
	DoOwn(ctx context.Context, c *storepb.Command) (*storepb.Result, error)
}

// Gate decides which commands may be proposed. Its methods may be called from any goroutine.
type Gate struct {
	name       string
	maxTouched int
	store      Store
	lessor     *lease.Lessor
	// space has the size of the store and its quota; alarmOf is Quota.Member.
	space   space.Ledger
	alarmOf atomic.Uint64
	// membersKnow is the last argument of MembersKnow; level opens the gates of formats; nil opens
	// all.
	membersKnow atomic.Uint32
	level       *release.Active
}

// New returns a Gate without a quota, of a store with that name. maxTouched bounds the keys that
// the ranges of one command may read, compare or delete together, and the keys of a lease.
func New(name string, store Store, lessor *lease.Lessor, maxTouched int) *Gate {
	return &Gate{name: name, maxTouched: maxTouched, store: store, lessor: lessor}
}

// Check refuses a command that must not be proposed.
func (g *Gate) Check(ctx context.Context, c *storepb.Command) error {
	if err := command.Validate(c); err != nil {
		return err
	}
	if err := g.checkFormat(c); err != nil {
		return err
	}
	if err := g.checkAlarms(ctx, c); err != nil {
		return err
	}
	switch op := c.Op.(type) {
	case *storepb.Command_Txn:
		return g.CheckWork(op.Txn)
	case *storepb.Command_ChangeMembers:
		return g.checkMembers(op.ChangeMembers)
	}
	return nil
}

// checkAlarms refuses on the leader a command that would be refused when it is applied. Another
// member may have acknowledged the end of an alarm that this member has not applied yet, so
// checkAlarms first waits until it is up to date.
func (g *Gate) checkAlarms(ctx context.Context, c *storepb.Command) error {
	if command.Alarmed(g.store.Alarms(), c) == storepb.Code_OK {
		return nil
	}
	if err := g.store.Confirm(ctx); err != nil {
		return err
	}
	return command.ErrorOf(&storepb.Result{Code: command.Alarmed(g.store.Alarms(), c)})
}

// checkMembers refuses a change of members that would be refused when applied, or would leave this
// leader without a vote.
func (g *Gate) checkMembers(c *storepb.ChangeMembers) error {
	now := g.store.Members()
	if now.GetVersion() != c.GetVersion() {
		return fmt.Errorf("%w: they are at version %d", command.ErrMembersChanged, now.GetVersion())
	}
	change, err := command.StepOfMembers(now, c.GetNext())
	if err != nil {
		return fmt.Errorf("%w: %w", command.ErrInvalid, err)
	}
	l, _ := g.store.Leadership()
	if to := command.ConfigurationOf(c.Next); change && l.IsLeader && !to.Electable(l.Leader) {
		return fmt.Errorf("%w: member %s leads, and would not be a voter at the end of it: it has to "+
			"hand over before", command.ErrInvalid, l.Leader)
	}
	return nil
}
