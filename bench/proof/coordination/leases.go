package coordination

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
)

// Leases grants leases, renews them for a while, and stops. An acknowledged renewal holds for the
// time to live from the moment when it was sent, whatever happens to the servers. After the last
// renewal the keys go, all at one revision: in calm within the time to live and Slack, and after a
// storm when a leader has led for that long.
type Leases struct {
	Parallel int
	Pause    time.Duration
	// Slack is how long a lease may exist after its time to live.
	Slack time.Duration
}

// Name implements Workload.
func (*Leases) Name() string { return "etcd-leases" }

// Clients implements Workload.
func (l *Leases) Clients() int { return l.Parallel }

// Setup implements Workload.
func (l *Leases) Setup(ctx context.Context, run *driver.Run) error {
	return available(ctx, run, l.Name())
}

// heldLease is a lease as its client knows it.
type heldLease struct {
	id     clientv3.LeaseID
	prefix string
	// until is the time until which the lease must exist. told is the time of the last answer after
	// which the lease may exist for another time to live.
	until, told time.Time
	// maybe: a later renewal was sent and not answered.
	maybe bool
}

// Drive implements Workload.
func (l *Leases) Drive(ctx context.Context, run *driver.Run, number int, _ *driver.Client,
	random *rand.Rand) {
	client, err := connect(ctx, run, l.Name())
	if err != nil {
		run.Violation("%s: connecting: %v", l.Name(), err)
		return
	}
	defer client.hangUp()
	for n := 0; run.Rest(ctx, random, l.Pause); n++ {
		h := &heldLease{prefix: fmt.Sprintf("%s/%d/%d/", l.Name(), number, n)}
		if !l.grant(ctx, run, client, h, random) {
			continue
		}
		renewals := random.IntN(6)
		for i := 0; i < renewals && pause(ctx, time.Duration(random.Int64N(int64(ttl*4/5)))); i++ {
			l.look(ctx, run, client, h)
			if !l.renew(ctx, run, client, h) {
				break
			}
		}
		if random.IntN(4) == 0 {
			l.revoke(ctx, run, client, h)
			continue
		}
		l.outlive(ctx, run, client, h)
	}
}

// stood notes an answer to a request, sent at a time, that the lease has its whole time to live.
func (h *heldLease) stood(sent time.Time, granted int64) {
	h.until, h.told, h.maybe = sent.Add(time.Duration(granted)*time.Second-drift), time.Now(), false
}

// grant grants a lease and puts two keys with it.
func (l *Leases) grant(ctx context.Context, run *driver.Run, client connected, h *heldLease,
	random *rand.Rand) bool {
	ctx, cancel := driver.Patience(ctx, random)
	defer cancel()
	var sent time.Time
	err := client.Do(ctx, "lease grant", func(ctx context.Context) error {
		sent = time.Now()
		r, err := client.SDK().Grant(ctx, int64(ttl/time.Second))
		if err == nil {
			h.id = r.ID
			h.stood(sent, r.TTL)
		}
		return err
	})
	run.Count("lease grant", err)
	if err != nil {
		return false
	}
	missing := false
	err = client.Do(ctx, "lease put", func(ctx context.Context) error {
		_, err := client.SDK().Txn(ctx).Then(
			clientv3.OpPut(h.prefix+"a", h.prefix, clientv3.WithLease(h.id)),
			clientv3.OpPut(h.prefix+"b", h.prefix, clientv3.WithLease(h.id))).Commit()
		if missing = errors.Is(err, rpctypes.ErrLeaseNotFound); missing {
			return nil
		}
		return err
	})
	run.Count("lease put", err)
	if missing {
		l.gone(run, h, "a put was refused because the lease is gone")
	}
	return err == nil && !missing
}

// gone is called when an answer says that the lease is gone. It checks that this is not too early.
func (l *Leases) gone(run *driver.Run, h *heldLease, what string) {
	if early := time.Until(h.until); early > 0 {
		run.Violation("%s: lease %x ended too early: %s, %v before the end of its time to live",
			l.Name(), int64(h.id), what, early)
	}
}

// look reads the keys of a lease: either both are there, or neither.
func (l *Leases) look(ctx context.Context, run *driver.Run, client connected,
	h *heldLease) (present, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*attemptTimeout)
	defer cancel()
	var r *clientv3.GetResponse
	err := client.Do(ctx, "lease look", func(ctx context.Context) (err error) {
		r, err = client.SDK().Get(ctx, h.prefix, clientv3.WithPrefix())
		return err
	})
	run.Count("lease look", err)
	switch {
	case err != nil:
		return false, false
	case len(r.Kvs) == 0:
		l.gone(run, h, fmt.Sprintf("its keys are not there at revision %d", r.Header.Revision))
	case len(r.Kvs) == 1:
		run.Violation("%s: of the two keys of lease %x one is there at revision %d, and they go at "+
			"one revision", l.Name(), int64(h.id), r.Header.Revision)
	}
	return len(r.Kvs) > 0, true
}

// renew sends a renewal. It returns false when the lease is gone.
func (l *Leases) renew(ctx context.Context, run *driver.Run, client connected, h *heldLease) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*attemptTimeout)
	defer cancel()
	gone := false
	err := client.Do(ctx, "lease renewal", func(ctx context.Context) error {
		sent := time.Now()
		r, err := client.SDK().KeepAliveOnce(ctx, h.id)
		if gone = errors.Is(err, rpctypes.ErrLeaseNotFound); gone {
			return nil
		}
		if err == nil {
			h.stood(sent, r.TTL)
		}
		return err
	})
	h.maybe = h.maybe || err != nil
	run.Count("lease renewal", err)
	if gone {
		l.gone(run, h, "a renewal found it gone")
	}
	return !gone
}

// revoke ends a lease. When the revocation is acknowledged, the keys of the lease are gone.
func (l *Leases) revoke(ctx context.Context, run *driver.Run, client connected, h *heldLease) {
	attempt, cancel := context.WithTimeout(ctx, 2*attemptTimeout)
	defer cancel()
	until := h.until
	h.until = time.Time{} // from now on the lease may be gone
	err := client.Do(attempt, "lease revoke", func(ctx context.Context) error {
		_, err := client.SDK().Revoke(ctx, h.id)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) && time.Until(until) <= 0 {
			return nil
		}
		return err
	})
	run.Count("lease revoke", err)
	if err != nil {
		return
	}
	if present, ok := l.look(ctx, run, client, h); ok && present {
		run.Violation("%s: lease %x was revoked, and its keys are there", l.Name(), int64(h.id))
	}
}

// outlive waits until a lease that is no longer renewed is gone.
func (l *Leases) outlive(ctx context.Context, run *driver.Run, client connected, h *heldLease) {
	const every = 300 * time.Millisecond
	for {
		if !pause(ctx, every) {
			return
		}
		began := time.Now()
		present, ok := l.look(ctx, run, client, h)
		if !ok || h.maybe {
			// A request without an answer may still arrive. After a while of calm, every such
			// request has arrived or was lost.
			if h.maybe && run.Weather.Calm(began.Add(-every)) {
				h.told, h.maybe = began, false
			}
			continue
		}
		if !present {
			return
		}
		// A new leader gives every lease its whole time to live. In calm there is no new leader.
		if late := began.Sub(h.told) - ttl - drift - l.Slack; late > 0 && run.Weather.Calm(h.told) {
			run.Violation("%s: lease %x stands for ever: its keys are there %v after the last renewal",
				l.Name(), int64(h.id), began.Sub(h.told))
			return
		} else if late > 0 && !run.Weather.Calm(h.told) {
			h.told = began // wait again; in the end the whole time will be in calm
		}
	}
}

// Check implements Workload: at the end no key is left.
func (l *Leases) Check(ctx context.Context, run *driver.Run, _ *driver.Client) error {
	client, err := connect(ctx, run, l.Name())
	if err != nil {
		return err
	}
	defer client.hangUp()
	for end := time.Now().Add(ttl + drift + l.Slack); ; {
		r, err := client.SDK().Get(ctx, l.Name()+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		if len(r.Kvs) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the keys of leases that no client renews are left, such as %s of %d",
				r.Kvs[0].Key, len(r.Kvs))
		}
		if !pause(ctx, 300*time.Millisecond) {
			return ctx.Err()
		}
	}
}
