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

// Core is what a Keeper needs of the store: who leads, what is committed, how commands are done,
// and what is known of leases beside their terms. No lock is held when it is called, except
// Keeper.noting when commands are proposed.
type Core interface {
	Leadership() (execute.Leadership, <-chan struct{})
	AwaitLeadership(ctx context.Context, d time.Duration) error
	Confirm(ctx context.Context) error
	Committed(ctx context.Context) (uint64, error)
	ServeIndex(ctx context.Context) (uint64, error)
	Reach(ctx context.Context, index uint64) error
	DoOwn(ctx context.Context, c *storepb.Command) (*storepb.Result, error)
	ProposeAside(term uint64, commands ...*storepb.Command) (bool, error)
	// Importing is an error while an import is under way, in which no lease counts.
	Importing() error
	AttachedKeys(lease int64) ([][]byte, error)
}

// Peers reaches the member that leads. A NotLeaderError says that the member does not.
type Peers interface {
	// RenewAll has the leader renew leases: Keeper.KeepAliveAll.
	RenewAll(ctx context.Context, leader keys.ReplicaID, leases []int64) ([]time.Duration, error)
	// TimeToLive asks the leader how long a lease has left: Keeper.ServeTimeToLive.
	TimeToLive(ctx context.Context, leader keys.ReplicaID, lease int64) (time.Duration, error)
}

// Config is what a Keeper is made of. Peers may be nil: then only the leader renews.
type Config struct {
	Lessor *lease.Lessor
	Core   Core
	Peers  Peers
	Logger *slog.Logger
	// Expired counts the leases that ran out while this member led.
	Expired prometheus.Counter
}

// Keeper renews leases at any member, and ends those that ran out, on the leader. Its methods may
// be called from any goroutine.
type Keeper struct {
	config   Config
	lessor   *lease.Lessor
	core     Core
	peers    Peers
	wake     chan struct{} // for keep
	renewals renewals
	// noting is held while it is decided what leases have left, and proposed.
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

// Stop waits for what runs, after the calls of the Core have ended or end.
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

// Look makes the keeper look for what is due: leases have changed.
func (k *Keeper) Look() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// keep ends leases, on the leader. It is one goroutine, from New to Close, and waits for nothing
// but the time.
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

// keepOnce proposes what is due, and reports whether there is more.
//
// INVARIANT: a decision is proposed in the term in which it was made, and a note of what a lease
// has left is proposed before a renewal takes it back (noting).
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

// propose is Core.ProposeAside that logs why nothing was proposed.
func (k *Keeper) propose(term uint64, commands ...*storepb.Command) bool {
	proposed, err := k.core.ProposeAside(term, commands...)
	if err != nil {
		k.config.Logger.Warn("what the leader does about leases could not be proposed", "error", err)
	}
	return proposed
}
