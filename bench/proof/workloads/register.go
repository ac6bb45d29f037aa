package workloads

import (
	"context"
	"errors"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/history"
	"github.com/tidemarkdb/tidemark/kv"
)

// register is one key, with everything that is known of it. Each of its methods is a single
// operation, which is recorded in three places: in the history, which must be linearisable; in the
// ledger, which is audited when no client writes any more; and in the watermark, which shows a
// stale answer at once.
type register struct {
	run      *driver.Run
	key      string
	ledger   ledger
	newest   watermark
	workload string
}

// seen is the value of a key that one client saw last.
type seen struct {
	history.State
	version kv.Timestamp
}

func (r *register) violated(what string, err error) {
	if err != nil {
		r.run.Violation("%s: %s of %q: %v", r.workload, what, r.key, err)
	}
}

func (r *register) get(ctx context.Context, ks *driver.Keyspace, client int) (seen, error) {
	floor := r.newest.known()
	p := r.run.History.Begin(history.Operation{Client: client, Key: r.key})
	pair, err := ks.Get(ctx, []byte(r.key))
	r.run.Count("get", driver.IgnoreNotFound(err))
	switch {
	case err == nil:
		p.Got(history.Value(string(pair.Value)))
		r.violated("get", r.newest.read(floor, pair.Version))
		return seen{history.Value(string(pair.Value)), pair.Version}, nil
	case errors.Is(err, kv.ErrNotFound):
		p.Got(history.Absent)
		return seen{}, nil
	default:
		p.Unknown()
		return seen{}, err
	}
}

func (r *register) put(ctx context.Context, ks *driver.Keyspace, client int, value string) (
	kv.Timestamp, error) {
	floor := r.newest.known()
	e := r.ledger.begin(value, false, nil)
	p := r.run.History.Begin(history.Operation{Client: client, Key: r.key, Kind: history.Put,
		New: history.Value(value)})
	version, err := ks.Put(ctx, []byte(r.key), []byte(value))
	r.run.Count("put", err)
	r.ledger.ended(e, version, err)
	if err != nil {
		driver.Failed(p, err)
		return version, err
	}
	p.Put()
	r.violated("put", r.newest.wrote(floor, version))
	return version, nil
}

func (r *register) delete(ctx context.Context, ks *driver.Keyspace, client int) error {
	p := r.run.History.Begin(history.Operation{Client: client, Key: r.key, Kind: history.Delete})
	existed, err := ks.Delete(ctx, []byte(r.key))
	r.run.Count("delete", err)
	if err != nil {
		driver.Failed(p, err)
		return err
	}
	p.Deleted(existed)
	return nil
}

// swap compares the key with last, by version or by value, and replaces it by value, or deletes it
// if value is empty. It returns the value of the key afterwards, as far as the client knows.
func (r *register) swap(ctx context.Context, ks *driver.Keyspace, client int, last seen,
	byVersion bool, value string) seen {
	floor := r.newest.known()
	o := history.Operation{Client: client, Key: r.key, Kind: history.CompareAndSwap,
		Expected: last.State}
	expect, replacement := kv.ExpectAbsent(), kv.Delete()
	var expected *string
	if last.Present {
		expected = &last.Value
		if expect = kv.ExpectValue([]byte(last.Value)); byVersion && !last.version.IsZero() {
			expect = kv.ExpectVersion(last.version)
		}
	}
	var e *entry
	if value != "" {
		o.New, replacement = history.Value(value), kv.Set([]byte(value))
		e = r.ledger.begin(value, true, expected)
	}
	p := r.run.History.Begin(o)
	swap, err := ks.CompareAndSwap(ctx, []byte(r.key), expect, replacement)
	r.run.Count("compare-and-swap", err)
	if e != nil {
		r.ledger.ended(e, swap.Version, err)
	}
	switch {
	case err != nil:
		driver.Failed(p, err)
		return last
	case swap.Swapped:
		p.Swapped()
		r.violated("compare-and-swap", r.newest.wrote(floor, swap.Version))
		return seen{o.New, swap.Version}
	case swap.Current.Exists():
		found := history.Value(string(swap.Current.Value))
		p.NotSwapped(found)
		r.violated("compare-and-swap", r.newest.read(floor, swap.Current.Version))
		return seen{found, swap.Current.Version}
	default:
		p.NotSwapped(history.Absent)
		return seen{}
	}
}

// close reads the last value as a part of the history, and audits the versions. It is called when
// no client is in an operation.
func (r *register) close(ctx context.Context, ks *driver.Keyspace) error {
	if _, err := r.get(ctx, ks, -1); err != nil {
		return err
	}
	return r.ledger.audit(ctx, ks, []byte(r.key), func(err error) { r.violated("audit", err) })
}
