package keeper

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/placement/store/execute"
	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Core are the methods of the store that a Keeper needs: leadership, committed index, execution of
// commands, and the leases' data beside their terms. It is called without locks, except that
// Keeper.noting is held while commands are proposed.
type Core interface {
	Leadership() (execute.Leadership, <-chan struct{})
	AwaitLeadership(ctx context.Context, d time.Duration) error
	Confirm(ctx context.Context) error
	Committed(ctx context.Context) (uint64, error)
	ServeIndex(ctx context.Context) (uint64, error)
	Reach(ctx context.Context, index uint64) error
	DoOwn(ctx context.Context, c *storepb.Command) (*storepb.Result, error)
	ProposeAside(term uint64, commands ...*storepb.Command) (bool, error)
	// Importing returns an error while an import is running. Leases do not count down then.
	Importing() error
	AttachedKeys(lease int64) ([][]byte, error)
}

// Peers sends requests to the leading member. A NotLeaderError means that the member does not lead.
type Peers interface {
	// RenewAll asks the leader to renew leases (Keeper.KeepAliveAll).
	RenewAll(ctx context.Context, leader keys.ReplicaID, leases []int64) ([]time.Duration, error)
	// TimeToLive asks the leader for a lease's remaining time (Keeper.ServeTimeToLive).
	TimeToLive(ctx context.Context, leader keys.ReplicaID, lease int64) (time.Duration, error)
}

// Config configures a Keeper. With nil Peers only the leader renews.
type Config struct {
	Lessor *lease.Lessor
	Core   Core
	Peers  Peers
	Logger *slog.Logger
	// Expired counts the leases that expired while this member led.
	Expired prometheus.Counter
}

// Keeper renews leases at any member, and ends expired leases on the leader. Its methods may be
// called from any goroutine.
type Keeper struct {
	config   Config
	lessor   *lease.Lessor
	core     Core
	peers    Peers
	wake     chan struct{} // wakes keep
	renewals renewals
	// noting is held while the remaining times of leases are computed and proposed.
	noting  sync.Mutex
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// New starts a Keeper. The caller stops it.
func New(config Config) *Keeper {
	k := &Keeper{config: config, lessor: config.Lessor, core: config.Core, peers: config.Peers,
		wake: make(chan struct{}, 1)}
	k.renewals.keeper = k
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.running.Go(k.keep)
	return k
}

// Stop waits for the goroutines. The caller has ended the calls of the Core, or ends them.
func (k *Keeper) Stop() {
	k.renewals.close()
	k.cancel()
	k.running.Wait()
}

// Serve sets whether this member leads and counts leases down.
func (k *Keeper) Serve(serving bool) {
	k.lessor.Activate(serving)
	k.Look()
}

// Look wakes the keeper to look for due leases, since leases have changed.
func (k *Keeper) Look() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// keep ends leases, on the leader. One goroutine runs it, from New to Stop; it waits only for the
// clock.
func (k *Keeper) keep() {
	timer := time.NewTimer(lease.Tick)
	defer timer.Stop()
	tick := lease.Tick
	for {
		timer.Stop()
		if k.lessor.Counting() {
			timer.Reset(tick)
		}
		select {
		case <-k.ctx.Done():
			return
		case <-k.wake:
		case <-timer.C:
		}
		if tick = lease.Tick; k.keepOnce() {
			tick = lease.BusyTick
		}
	}
}

// keepOnce proposes the due commands, and reports whether there are more.
//
// INVARIANT: a decision is proposed in the term in which it was made, and a checkpoint of a lease
// is proposed before a renewal revokes it (noting).
func (k *Keeper) keepOnce() (more bool) {
	l, _ := k.core.Leadership()
	k.noting.Lock()
	defer k.noting.Unlock()
	due := k.lessor.Due()
	if due.Paused {
		k.config.Logger.Warn("the process was paused; leases get a full term, once until they "+
			"are renewed", "leases", k.lessor.Count())
	}
	var ends []*storepb.Command
	for _, id := range due.Ended {
		ends = append(ends, &storepb.Command{Op: &storepb.Command_LeaseRevoke{
			LeaseRevoke: &storepb.LeaseRevoke{Id: id, Expired: true}}})
	}
	if len(ends) > 0 && k.propose(l.Term, ends...) {
		for _, id := range due.Ended {
			k.config.Expired.Inc()
			k.config.Logger.Info("lease ran out", "lease", id)
		}
	}
	if len(due.Notes) > 0 {
		k.propose(l.Term, checkpoint(due.Notes...))
	}
	return due.More
}

// propose calls Core.ProposeAside, and logs why nothing was proposed.
func (k *Keeper) propose(term uint64, commands ...*storepb.Command) bool {
	proposed, err := k.core.ProposeAside(term, commands...)
	if err != nil {
		k.config.Logger.Warn("what the leader does about leases could not be proposed", "error", err)
	}
	return proposed
}
