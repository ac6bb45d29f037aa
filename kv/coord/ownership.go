package coord

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv"
)

const (
	// MinOwnTTL is the shortest time to live of an ownership.
	MinOwnTTL = 2 * time.Second

	// nonceSize is the size of the part of a value that identifies the acquisition. The owner's name
	// follows.
	nonceSize = 16
)

// Ownership is a key of a keyspace that names the owner of something, with a time to live. It needs
// no session and no other service: the key is written by compare-and-set, and the owner writes it
// again and again until the owner releases it.
//
// Its guarantee: at any time the key has one value, so a transaction that checks the ownership
// (Check) commits only while the ownership lasts. This is exact.
//
// Held guarantees less, because the servers' clocks decide whether a value has expired. Held ends
// when a period has passed on this machine's monotonic clock since the last confirmed renewal was
// sent. The period is the time to live minus the maximum difference between two of the servers'
// clocks. If the clocks are further apart, another owner may have begun earlier. Requests that were
// sent before Held ended may arrive later, unless they check the ownership.
type Ownership struct {
	keyspace *kv.Keyspace
	key      []byte
	owner    string
	ttl      time.Duration
	offset   time.Duration
	value    []byte
	since    kv.Timestamp
	clock    hlc.Monotonic

	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	// writing is held during calls that write the key.
	writing sync.Mutex

	mu struct {
		sync.Mutex
		version  kv.Timestamp
		deadline int64
		expiry   *time.Timer
	}
}

// OwnOption is an option of Own.
type OwnOption func(*ownConfig)

type ownConfig struct{ ttl, offset time.Duration }

// OwnTTL sets the time for which the ownership lasts without a renewal, at least MinOwnTTL. The
// default is DefaultTTL. The ownership is renewed every third of that time.
func OwnTTL(d time.Duration) OwnOption { return func(c *ownConfig) { c.ttl = d } }

// OwnClockOffset sets the largest difference between the clocks of two servers. The default is the
// servers' default, kv.DefaultMaxClockOffset.
func OwnClockOffset(d time.Duration) OwnOption { return func(c *ownConfig) { c.offset = d } }

// Own makes owner the owner of a key that has no owner, and keeps the ownership until Release, or
// until it is lost. Own does not wait: if there is an owner, even one of the same name, it fails
// with ErrOwned, and the error names the owner and the end of the ownership. After
// kv.ErrOutcomeUnknown the key may be owned for one time to live although no client holds it.
func Own(ctx context.Context, ks *kv.Keyspace, key []byte, owner string,
	options ...OwnOption) (*Ownership, error) {
	const op = "own"
	cfg := ownConfig{ttl: DefaultTTL, offset: kv.DefaultMaxClockOffset}
	for _, o := range options {
		o(&cfg)
	}
	if cfg.ttl < MinOwnTTL || cfg.ttl > kv.MaxTTL || cfg.offset < 0 || cfg.offset > cfg.ttl/3 {
		return nil, invalid(op, string(key), fmt.Sprintf("a time to live of %s with clocks that are "+
			"%s apart: give %s at least, and three times as much as the clocks are apart", cfg.ttl,
			cfg.offset, MinOwnTTL))
	}
	o := &Ownership{keyspace: ks, key: bytes.Clone(key), owner: owner, ttl: cfg.ttl,
		offset: cfg.offset, clock: hlc.SystemMonotonic(), value: make([]byte, nonceSize)}
	rand.Read(o.value) // never fails
	o.value = append(o.value, owner...)
	sent := o.clock()
	swap, err := ks.CompareAndSwap(ctx, key, kv.ExpectAbsent(), kv.Set(o.value, kv.TTL(cfg.ttl)))
	switch {
	case err != nil:
		return nil, fail(op, string(key), err)
	case !swap.Swapped:
		return nil, &Error{Op: op, Name: string(key), Message: ownedBy(swap.Current),
			wraps: []error{ErrOwned}}
	}
	o.since = swap.Version
	o.ctx, o.cancel = context.WithCancelCause(context.WithValue(context.Background(), belonging{}, o))
	o.mu.expiry = time.AfterFunc(time.Hour, func() { o.Err() })
	o.confirm(sent, swap.Version)
	o.running.Go(o.keep)
	return o, nil
}

func ownedBy(pair kv.Pair) string {
	if len(pair.Value) < nonceSize {
		return "the key has a value that is none of an owner"
	}
	if pair.Expires.IsZero() {
		return fmt.Sprintf("%q owns it", pair.Value[nonceSize:])
	}
	return fmt.Sprintf("%q owns it until %s, or for longer if it renews it", pair.Value[nonceSize:],
		pair.Expires.Format(time.RFC3339Nano))
}

// Held returns a context that ends when the ownership is no longer certain. context.Cause returns
// the reason. The comment of Ownership says what Held guarantees.
func (o *Ownership) Held() context.Context { return o.ctx }

// Since returns the version of the key with which the ownership began. It is higher than all
// versions of earlier owners, so it can serve as a fencing number.
func (o *Ownership) Since() kv.Timestamp { return o.since }

// Err returns nil while the key is owned. Unlike Held it reads the clock.
func (o *Ownership) Err() error {
	if err := context.Cause(o.ctx); err != nil {
		return err
	}
	o.mu.Lock()
	left := o.leftLocked()
	if left > 0 {
		o.mu.expiry.Reset(left)
	}
	o.mu.Unlock()
	if left == 0 {
		o.end(ErrLost, fmt.Sprintf("no renewal was confirmed within %s; others may own it by now",
			o.ttl))
	}
	return context.Cause(o.ctx)
}

// Check makes a transaction fail with ErrLost unless the key has this ownership at the read
// timestamp of the transaction. The transaction commits only if that is also so at its commit. The
// transaction must have begun after the ownership.
func (o *Ownership) Check(ctx context.Context, tx *kv.Txn) error {
	pair, err := tx.Get(ctx, o.keyspace, o.key)
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return err
	}
	if err == nil && bytes.Equal(pair.Value, o.value) {
		return nil
	}
	message := "it has expired"
	if err == nil {
		message = ownedBy(pair)
	}
	return &Error{Op: "check the ownership", Name: string(o.key), Message: message,
		wraps: []error{ErrLost}}
}

// Renew renews the ownership now. The ownership is also renewed automatically, every third of its
// time to live.
func (o *Ownership) Renew(ctx context.Context) error {
	return fail("renew", string(o.key), o.renew(ctx))
}

func (o *Ownership) renew(ctx context.Context) error {
	o.writing.Lock()
	defer o.writing.Unlock()
	if err := o.Err(); err != nil {
		return err
	}
	o.mu.Lock()
	version := o.mu.version
	o.mu.Unlock()
	sent := o.clock()
	swap, err := o.keyspace.CompareAndSwap(ctx, o.key, kv.ExpectVersion(version),
		kv.Set(o.value, kv.TTL(o.ttl)))
	switch {
	case err != nil:
		return err
	case swap.Swapped:
		o.confirm(sent, swap.Version)
		return nil
	case swap.Current.Exists() && bytes.Equal(swap.Current.Value, o.value):
		// An earlier renewal with an unknown outcome has succeeded. The time at which it was sent is not
		// known.
		o.mu.Lock()
		o.mu.version = swap.Current.Version
		o.mu.Unlock()
		return because("an earlier renewal came late; try again", kv.ErrOutcomeUnknown)
	case swap.Current.Exists():
		o.end(ErrLost, ownedBy(swap.Current))
	default:
		o.end(ErrLost, "it has expired, or was deleted")
	}
	return context.Cause(o.ctx)
}

// keep is the goroutine that renews the ownership until it ends.
func (o *Ownership) keep() {
	wait := o.ttl / 3
	for attempt := 0; ; {
		timer := time.NewTimer(wait)
		select {
		case <-o.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		ctx, cancel := context.WithTimeout(o.ctx, o.ttl/3)
		err := o.renew(ctx)
		cancel()
		if err == nil {
			wait, attempt = o.ttl/3, 0
		} else {
			wait = min(retryBase<<min(attempt, 10), o.ttl/10)
			attempt++
		}
	}
}

// Release ends the ownership. If the ownership was lost before, Release returns an error. ctx may
// be the context of Held, or a child of it.
func (o *Ownership) Release(ctx context.Context) error {
	const op = "release"
	ctx, done := outlive(ctx, belonging{}, o, o.ttl)
	defer done()
	before := o.Err()
	o.end(ErrReleased, "it was released")
	o.running.Wait()
	if before != nil {
		return fail(op, string(o.key), before)
	}
	o.writing.Lock()
	defer o.writing.Unlock()
	for {
		o.mu.Lock()
		version := o.mu.version
		o.mu.Unlock()
		swap, err := o.keyspace.CompareAndSwap(ctx, o.key, kv.ExpectVersion(version), kv.Delete())
		switch {
		case err != nil:
			return fail(op, string(o.key), err)
		case swap.Swapped:
			return nil
		case !swap.Current.Exists() || !bytes.Equal(swap.Current.Value, o.value):
			return &Error{Op: op, Name: string(o.key), Message: "it was lost before",
				wraps: []error{ErrLost}}
		}
		o.mu.Lock()
		o.mu.version = swap.Current.Version
		o.mu.Unlock()
	}
}

func (o *Ownership) confirm(sent int64, version kv.Timestamp) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.version = version
	o.mu.deadline = max(o.mu.deadline, sent+int64(o.ttl-o.offset-o.ttl/driftShare))
	o.mu.expiry.Reset(o.leftLocked())
}

func (o *Ownership) leftLocked() time.Duration {
	return time.Duration(max(0, o.mu.deadline-o.clock()))
}

func (o *Ownership) end(kind ErrorKind, message string) {
	o.cancel(&Error{Op: "own", Name: string(o.key), Message: message, wraps: []error{kind}})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.expiry.Stop()
}
