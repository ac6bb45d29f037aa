package keeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/execute"
	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// KeepAlive gives a lease a full term from now and returns the term. Only the leader can, and it
// first makes sure that it still leads. A lease that ran out cannot be renewed: ErrLeaseNotFound.
func (k *Keeper) KeepAlive(ctx context.Context, id int64) (time.Duration, error) {
	terms, err := k.KeepAliveAll(ctx, []int64{id})
	return onlyTerm(id, terms, err)
}

func onlyTerm(id int64, terms []time.Duration, err error) (time.Duration, error) {
	switch {
	case err != nil:
		return 0, err
	case terms[0] == 0:
		return 0, fmt.Errorf("%w: lease %d", command.ErrLeaseNotFound, id)
	}
	return terms[0], nil
}

// KeepAliveAll is KeepAlive of several leases. The term of one that cannot be renewed is 0.
//
// Another member may have applied a grant, or the end of a lease, and acknowledged it, before this
// one. So the renewal goes through three steps:
//
//  1. This member applies all that was acknowledged before the call.
//  2. The deadlines of the leases that exist then are moved.
//  3. This member shows that it led when they were moved.
//
// INVARIANT: whether a lease exists is decided after step 1. A lease whose end was acknowledged
// before the call is not renewed, and one whose grant was is.
// INVARIANT: leadership is shown after the deadlines were moved. A process that stood still before
// may have been replaced, and leases have ended elsewhere.
func (k *Keeper) KeepAliveAll(ctx context.Context, ids []int64) ([]time.Duration, error) {
	led, _ := k.core.Leadership()
	if !led.Serving {
		return nil, &command.NotLeaderError{Leader: led.Leader, Term: led.Term}
	}
	if err := k.core.Confirm(ctx); err != nil {
		return nil, err
	}
	if err := k.core.Importing(); err != nil {
		return nil, err
	}
	terms := make([]time.Duration, len(ids))
	if err := k.moveDeadlines(ctx, ids, terms); err != nil {
		return nil, err
	}
	if _, err := k.core.Committed(ctx); err != nil {
		return nil, err
	}
	if l, _ := k.core.Leadership(); !l.Serving || l.Term != led.Term {
		return nil, &command.NotLeaderError{Leader: l.Leader, Term: l.Term}
	}
	return terms, nil
}

// moveDeadlines moves the deadlines of the leases that this member knows, and fills in their terms,
// once the log has a note for none of them any more.
func (k *Keeper) moveDeadlines(ctx context.Context, ids []int64, terms []time.Duration) error {
	noted, err := k.renew(ids, terms)
	for len(noted) > 0 && err == nil {
		k.awaitNotes()
		for most := range slices.Chunk(noted, lease.MaxNotes) {
			if _, err := k.core.DoOwn(ctx, checkpoint(most...)); err != nil {
				return err
			}
		}
		noted, err = k.renew(ids, terms)
	}
	return err
}

// renew is Lessor.Renew.
func (k *Keeper) renew(
	ids []int64, terms []time.Duration,
) (noted []*storepb.LeaseCheckpoint_Lease, err error) {
	noted, err = k.lessor.Renew(ids, terms)
	if errors.Is(err, lease.ErrNotCounting) {
		err = &command.NotLeaderError{}
	}
	return noted, err
}

// awaitNotes returns when all notes so far are proposed.
func (k *Keeper) awaitNotes() {
	k.noting.Lock()
	defer k.noting.Unlock()
}

// checkpoint is a command that says how long leases have left.
func checkpoint(leases ...*storepb.LeaseCheckpoint_Lease) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_LeaseCheckpoint{
		LeaseCheckpoint: &storepb.LeaseCheckpoint{Leases: leases}}}
}

// LeaseInfo says how a lease stands. How much is left only the leader knows; elsewhere it is the
// full term.
type LeaseInfo struct {
	ID   int64
	Term time.Duration
	Left time.Duration
	// Keys are those that end with it.
	Keys [][]byte
}

// Lease describes a lease as this member knows it.
func (k *Keeper) Lease(id int64) (LeaseInfo, error) {
	info := LeaseInfo{ID: id}
	if err := k.core.Importing(); err != nil {
		return info, err
	}
	var ok bool
	if info.Term, info.Left, ok = k.lessor.Remaining(id); !ok {
		return info, fmt.Errorf("%w: lease %d", command.ErrLeaseNotFound, id)
	}
	if l, _ := k.core.Leadership(); !l.Serving {
		info.Left = info.Term
	}
	var err error
	info.Keys, err = k.core.AttachedKeys(id)
	return info, err
}

// Renew is KeepAlive on any member. It waits for a leader until ctx ends.
func (k *Keeper) Renew(ctx context.Context, id int64) (time.Duration, error) {
	terms, err := k.RenewAll(ctx, []int64{id})
	return onlyTerm(id, terms, err)
}

// RenewAll is KeepAliveAll on any member. It waits for a leader until ctx ends. What comes at a
// member meanwhile goes to the leader together.
func (k *Keeper) RenewAll(ctx context.Context, ids []int64) (terms []time.Duration, err error) {
	err = k.atLeader(ctx, func(l execute.Leadership) error {
		if l.IsLeader {
			terms, err = k.KeepAliveAll(ctx, ids)
		} else {
			terms, err = k.renewals.ask(ctx, ids)
		}
		return err
	})
	return terms, err
}

// TimeToLive is Lease on any member: the leader says what is left. It waits for a leader until ctx
// ends.
func (k *Keeper) TimeToLive(ctx context.Context, id int64) (info LeaseInfo, err error) {
	err = k.atLeader(ctx, func(l execute.Leadership) error {
		if err := k.core.Confirm(ctx); err != nil {
			return err
		}
		if info, err = k.Lease(id); err != nil || l.IsLeader {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, execute.AskTimeout)
		defer cancel()
		info.Left, err = k.peers.TimeToLive(limited, l.Leader, id)
		return err
	})
	return info, err
}

// ServeTimeToLive is the leader's side of Peers.TimeToLive: how much is left of a lease that was
// granted, and acknowledged by any member, before the call.
func (k *Keeper) ServeTimeToLive(ctx context.Context, id int64) (time.Duration, error) {
	// A leader that has been succeeded, and does not know it yet, cannot say.
	index, err := k.core.ServeIndex(ctx)
	if err != nil {
		return 0, err
	}
	if err := k.core.Reach(ctx, index); err != nil {
		return 0, err
	}
	if err := k.core.Importing(); err != nil {
		return 0, err
	}
	_, left, ok := k.lessor.Remaining(id)
	if l, _ := k.core.Leadership(); !l.Serving {
		return 0, &command.NotLeaderError{Leader: l.Leader, Term: l.Term}
	}
	if !ok {
		return 0, fmt.Errorf("%w: lease %d", command.ErrLeaseNotFound, id)
	}
	return left, nil
}

// atLeader calls the leader. It retries while the leader is unreachable or has lost its leadership.
func (k *Keeper) atLeader(ctx context.Context, ask func(execute.Leadership) error) error {
	for {
		if err := k.core.Importing(); err != nil {
			return err
		}
		l, _ := k.core.Leadership()
		err := error(&command.NotLeaderError{Leader: l.Leader, Term: l.Term})
		if l.Serving || l.Leader != 0 && !l.IsLeader && k.peers != nil {
			err = ask(l)
		}
		if err == nil || errors.Is(err, command.ErrLeaseNotFound) || errors.Is(err, command.ErrClosed) ||
			errors.Is(err, command.ErrImporting) || k.peers == nil {
			return err
		}
		if waitErr := k.core.AwaitLeadership(ctx, execute.LookAgain); waitErr != nil {
			return fmt.Errorf("%w: %w", waitErr, err)
		}
	}
}
