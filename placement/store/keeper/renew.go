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
// makes sure that it still leads. An expired lease cannot be renewed: ErrLeaseNotFound.
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

// KeepAliveAll is KeepAlive for several leases. A lease that cannot be renewed has term 0.
//
// Another member may have applied and acknowledged a grant, or the end of a lease, before this
// member. So the renewal takes three steps:
//
//  1. This member applies all that was acknowledged before the call.
//  2. The deadlines of the leases that exist then are moved.
//  3. This member shows that it led when they were moved.
//
// INVARIANT: whether a lease exists is decided after step 1. A lease whose end was acknowledged
// before the call is not renewed; a lease whose grant was acknowledged is. INVARIANT: leadership is
// shown after the deadlines were moved. A process that was paused before step 2 may have been
// succeeded as leader, and leases may have ended there.
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
// once the log has no checkpoint of these leases any more.
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

// renew calls Lessor.Renew.
func (k *Keeper) renew(
	ids []int64, terms []time.Duration,
) (noted []*storepb.LeaseCheckpoint_Lease, err error) {
	noted, err = k.lessor.Renew(ids, terms)
	if errors.Is(err, lease.ErrNotCounting) {
		err = &command.NotLeaderError{}
	}
	return noted, err
}

// awaitNotes returns when all checkpoints computed so far are proposed.
func (k *Keeper) awaitNotes() {
	k.noting.Lock()
	defer k.noting.Unlock()
}

// checkpoint is a command that records the remaining times of leases.
func checkpoint(leases ...*storepb.LeaseCheckpoint_Lease) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_LeaseCheckpoint{
		LeaseCheckpoint: &storepb.LeaseCheckpoint{Leases: leases}}}
}

// LeaseInfo is the state of a lease. Only the leader knows the remaining time; other members give
// the full term.
type LeaseInfo struct {
	ID   int64
	Term time.Duration
	Left time.Duration
	// Keys are the keys attached to the lease.
	Keys [][]byte
}

// Lease returns the state of a lease as this member knows it.
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

// RenewAll is KeepAliveAll on any member. It waits for a leader until ctx ends. Renewals that
// arrive at a member while a request is running share the next request.
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

// TimeToLive is Lease on any member, with the leader's remaining time. It waits for a leader until
// ctx ends.
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

// ServeTimeToLive is the leader's side of Peers.TimeToLive: it returns the remaining time of a
// lease. It knows all leases whose grant was acknowledged, by any member, before the call.
func (k *Keeper) ServeTimeToLive(ctx context.Context, id int64) (time.Duration, error) {
	// A leader that has been succeeded, and does not know it yet, must not answer.
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
