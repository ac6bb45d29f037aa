package restores

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/range/backup/target"
)

// Restores is the workload. Its exported fields are set before Setup, and not changed afterwards.
type Restores struct {
	// Target is the URL of the target that the servers use. Open opens the same target for this
	// process; nil: the target is opened by its URL.
	Target string
	Open   func(context.Context) (target.Target, error)
	// Pause is the longest time between two operations. TracePause is the longest time between two
	// writes of the trace.
	Pause, TracePause time.Duration

	// versions maps the numbers of acknowledged rows of the trace to their versions, for the last
	// keptVersions rows.
	versions sync.Map
}

// Name is the name of the workload, and of its keyspace.
const Name = "restores"

const (
	// restoredPrefix is the prefix of the names of restored keyspaces.
	restoredPrefix = "restored-"
	// traceKey is the key of the coordination store that is written after each row.
	traceKey = Name + "/step"
	// traceRows is the number of rows of the trace.
	traceRows = 40
	// keptVersions is the number of rows whose versions are kept for reports.
	keptVersions = 10_000
	// attemptPatience is the deadline of one call. After the deadline the call is repeated.
	attemptPatience = 5 * time.Second
)

// The numbers of the clients.
const (
	operator = iota
	tracer
	clients
)

// Name implements Workload.
func (*Restores) Name() string { return Name }

// Clients implements Workload.
func (*Restores) Clients() int { return clients }

// Setup implements Workload.
func (r *Restores) Setup(ctx context.Context, run *driver.Run) error {
	return run.CreateKeyspace(ctx, Name, kv.Range(traceRow(traceRows/2)))
}

func traceRow(n int) []byte { return fmt.Appendf(nil, "row-%03d", n%traceRows) }

// Drive implements Workload.
func (r *Restores) Drive(ctx context.Context, run *driver.Run, number int, client *driver.Client,
	random *rand.Rand) {
	if number == tracer {
		r.trace(ctx, run, client, random)
		return
	}
	sdk, err := run.Open(ctx)
	for err != nil && ctx.Err() == nil && pause(ctx, time.Second) {
		sdk, err = run.Open(ctx)
	}
	if err != nil {
		return // the run is over
	}
	defer sdk.Close()
	s := &session{Restores: r, run: run, client: client, sdk: sdk, admin: admin.New(sdk),
		random: random}
	for run.Keep(ctx, random, r.Pause) {
		s.operate(ctx)
	}
}

// trace writes rows one after the other. After the acknowledgement of each row it writes the row's
// number to the coordination store. A backup whose coordination store has a number must have the
// row of that number, or a later row.
func (r *Restores) trace(ctx context.Context, run *driver.Run, client *driver.Client,
	random *rand.Rand) {
	ks := client.Keyspace(Name)
	etcd, hangUp, err := run.ConnectEtcd(ctx, Name)
	if err == nil {
		defer hangUp()
	}
	for n := 1; run.Keep(ctx, random, r.TracePause); n++ {
		err := limited(ctx, 2*attemptPatience, func(ctx context.Context) (err error) {
			ended := client.Report(ctx, "put")
			defer func() { ended(err) }()
			at, err := ks.SDK().Put(ctx, traceRow(n), fmt.Appendf(nil, "%d %d", n, random.Uint64()),
				traceTTL(n)...)
			if err == nil {
				r.versions.Store(n, at)
				r.versions.Delete(n - keptVersions)
			}
			return err
		})
		run.Count("trace put", err)
		if err != nil {
			continue
		}
		if n%7 == 0 {
			_ = limited(ctx, 2*attemptPatience, func(ctx context.Context) error {
				_, err := ks.Delete(ctx, traceRow(n+traceRows/2))
				return err
			})
		}
		if etcd != nil {
			_ = limited(ctx, 2*attemptPatience, func(ctx context.Context) error {
				return etcd.Do(ctx, "etcd put", func(ctx context.Context) error {
					_, err := etcd.SDK().Put(ctx, traceKey, fmt.Sprint(n))
					return err
				})
			})
		}
	}
}

// traceTTL gives some rows an expiry: soon, or long after the run.
func traceTTL(n int) []kv.WriteOption {
	switch {
	case n%11 == 0:
		return []kv.WriteOption{kv.TTL(20 * time.Second)}
	case n%5 == 0:
		return []kv.WriteOption{kv.TTL(6 * time.Hour)}
	}
	return nil
}

// Check implements Workload. It removes what interrupted operations have left, and carries out one
// more operation while nothing else runs. Then nothing may be left.
func (r *Restores) Check(ctx context.Context, run *driver.Run, client *driver.Client) error {
	sdk, err := run.Open(ctx)
	if err != nil {
		return err
	}
	defer sdk.Close()
	s := &session{Restores: r, run: run, client: client, sdk: sdk, admin: admin.New(sdk),
		random: rand.New(rand.NewPCG(1, 1))}
	if err := s.clean(ctx); err != nil {
		return fmt.Errorf("removing what operations have left: %w", err)
	}
	o := &operation{session: s, kind: chain, backups: 2}
	if err := errors.Join(o.do(ctx), s.clean(ctx)); err != nil {
		return err
	}
	return s.nothingIsLeft(ctx)
}

// limited makes a call with a deadline.
func limited(ctx context.Context, patience time.Duration, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return call(ctx)
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
