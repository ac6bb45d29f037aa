package coordination

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv/coord"
)

const (
	// attemptTimeout is the deadline of one request of a recipe.
	attemptTimeout = time.Second
	// ttl is the time to live of sessions and leases. The service grants at least two seconds.
	ttl = 3 * time.Second
	// drift is the largest error of a server's clock after one ttl.
	drift = ttl * 3 / 100
)

// connected is a client of the service for one call of Drive, with the recipes over it.
type connected struct {
	*driver.Etcd
	recipes *coord.Client
	hangUp  func()
}

// connect connects to the service. etcd's client connects by itself as soon as a server is there.
func connect(ctx context.Context, run *driver.Run, workload string,
	options ...coord.Option) (connected, error) {
	etcd, hangUp, err := run.ConnectEtcd(ctx, workload)
	if err != nil {
		return connected{}, err
	}
	began := time.Now()
	recipes := coord.New(etcd.SDK(), append(options, coord.Prefix(workload+"/"),
		coord.AttemptTimeout(attemptTimeout),
		coord.Monotonic(func() int64 { return int64(time.Since(began)) }))...)
	return connected{etcd, recipes, hangUp}, nil
}

// available returns an error if there is no service. Setup of a workload returns this error.
func available(ctx context.Context, run *driver.Run, workload string) error {
	c, err := connect(ctx, run, workload)
	if err != nil {
		return err
	}
	defer c.hangUp()
	for {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		_, err = c.SDK().Get(attempt, workload+"/")
		cancel()
		if err == nil || !pause(ctx, 100*time.Millisecond) {
			return err
		}
	}
}

// pause returns false when the context has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// plain returns a recipe's error without the details that differ each time, so that errors can be
// counted.
func plain(err error) error {
	var of *coord.Error
	if !errors.As(err, &of) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	for _, kind := range []coord.ErrorKind{coord.ErrSessionExpired, coord.ErrSessionUnconfirmed,
		coord.ErrSessionClosed, coord.ErrLost, coord.ErrReleased, coord.ErrLocked, coord.ErrFenced,
		coord.ErrOutcomeUnknown, coord.ErrClockAhead, coord.ErrClosed} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return err
}

// Standard returns the standard workloads of the coordination service.
func Standard() []driver.Workload {
	return []driver.Workload{
		&Txns{Parallel: 4, Keys: 3, Age: 15 * time.Second, Pause: 200 * time.Millisecond},
		&Watches{Writers: 2, Watchers: 2, Keys: 4, Age: 20 * time.Second,
			Pause: 300 * time.Millisecond, Kept: 8 * time.Second},
		&Leases{Parallel: 3, Pause: 300 * time.Millisecond, Slack: time.Second},
		&Locks{Parallel: 3, Pause: 300 * time.Millisecond},
		&Elections{Candidates: 3, Observers: 1, Pause: 300 * time.Millisecond},
		&Timers{Managers: 3, Period: 2 * time.Second, Pause: 500 * time.Millisecond},
	}
}
