package workloads

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv"
)

// ledger has all writes of values to one key. Old versions can be read, so an audit finds every
// write again, even if later writes have overwritten it:
//
//   - an acknowledged write is there, at the acknowledged version;
//   - a write of unknown outcome is there once, or not at all; a refused write is not there;
//   - there is no value that no client wrote, and no value twice (values are written once);
//   - a compare-and-swap comes directly after the value that it expected.
//
// Other clients may delete the key. A client does not learn the version of a deletion, so the audit
// does not check deletions themselves.
type ledger struct {
	mu struct {
		sync.Mutex
		writes map[string]*entry // by value
	}
}

type entry struct {
	outcome  outcome
	version  kv.Timestamp // of acknowledged writes
	swap     bool
	expected *string // of a compare-and-swap; nil is absence
}

type outcome uint8

const (
	pending outcome = iota // or unknown: the audit does not distinguish them
	acknowledged
	refused
)

// begin notes a write before it is sent. expected is the expected value of a compare-and-swap; nil:
// the key is expected to be absent.
func (l *ledger) begin(value string, swap bool, expected *string) *entry {
	e := &entry{swap: swap, expected: expected}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.writes == nil {
		l.mu.writes = make(map[string]*entry)
	}
	l.mu.writes[value] = e
	return e
}

// ended notes the end of a write. version is zero if the write was not acknowledged.
func (l *ledger) ended(e *entry, version kv.Timestamp, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case driver.Unknown(err):
	case version.IsZero():
		e.outcome = refused
	default:
		e.outcome, e.version = acknowledged, version
	}
}

// found checks one version that a read of the past returned.
func (l *ledger) found(p kv.Pair) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.mu.writes[string(p.Value)]
	switch {
	case e == nil:
		return fmt.Errorf("%.40q of %v was written by no client", p.Value, p.Version)
	case e.outcome == refused:
		return fmt.Errorf("%.40q of %v is there, and its write was refused", p.Value, p.Version)
	case e.outcome == acknowledged && e.version != p.Version:
		return fmt.Errorf("%.40q is there with version %v, and was written once, with version %v",
			p.Value, p.Version, e.version)
	}
	// A second copy of a write of unknown outcome has another version.
	e.outcome, e.version = acknowledged, p.Version
	return nil
}

// predecessor checks the version directly below a version. present says whether there is one.
func (l *ledger) predecessor(of kv.Pair, below kv.Pair, present bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.mu.writes[string(of.Value)]
	if e == nil || !e.swap {
		return nil
	}
	if present != (e.expected != nil) || present && *e.expected != string(below.Value) {
		return fmt.Errorf("%.40q of %v was swapped in for %s, and comes after %s", of.Value,
			of.Version,
			describe(e.expected != nil, value(e.expected)), describe(present, string(below.Value)))
	}
	return nil
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func describe(present bool, value string) string {
	if !present {
		return "nothing"
	}
	return fmt.Sprintf("%.40q", value)
}

// acked returns the acknowledged writes as pairs, the newest first.
func (l *ledger) acked() []kv.Pair {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []kv.Pair
	for value, e := range l.mu.writes {
		if e.outcome == acknowledged {
			all = append(all, kv.Pair{Value: []byte(value), Version: e.version})
		}
	}
	slices.SortFunc(all, func(a, b kv.Pair) int { return b.Version.Compare(a.Version) })
	return all
}

// audit reads every version of the key, when no client writes it any more. It returns an error of a
// read. Violations go to report.
func (l *ledger) audit(ctx context.Context, ks *driver.Keyspace, key []byte,
	report func(error)) error {
	// tops has the pairs at which the audit starts: the latest one, and every version that must be
	// there. From each of them the audit reads downwards to the next top, or to a deletion.
	known := l.acked()
	at := func(ts kv.Timestamp) (kv.Pair, bool, error) {
		pair, err := ks.GetAt(ctx, key, ts)
		if errors.Is(err, kv.ErrNotFound) {
			return kv.Pair{}, false, nil
		}
		return pair, err == nil, err
	}
	follow := func(pair kv.Pair, until kv.Timestamp) error {
		for {
			if err := l.found(pair); err != nil {
				report(err)
			}
			below, present, err := at(pair.Version.Prev())
			if err != nil {
				return err
			}
			if err := l.predecessor(pair, below, present); err != nil {
				report(err)
			}
			if !present || below.Version.LessEq(until) {
				return nil
			}
			pair = below
		}
	}
	newest, err := ks.Get(ctx, key)
	switch {
	case errors.Is(err, kv.ErrNotFound):
	case err != nil:
		return err
	default:
		var until kv.Timestamp
		if len(known) > 0 {
			until = known[0].Version
		}
		if until.Less(newest.Version) {
			if err := follow(newest, until); err != nil {
				return err
			}
		}
	}
	for i, write := range known {
		pair, present, err := at(write.Version)
		if err != nil {
			return err
		}
		if !present || pair.Version != write.Version || string(pair.Value) != string(write.Value) {
			report(fmt.Errorf("the acknowledged write of %.40q with version %v is lost: at that "+
				"moment the key holds %s of %v",
				write.Value, write.Version, describe(present, string(pair.Value)), pair.Version))
			continue
		}
		var until kv.Timestamp
		if i+1 < len(known) {
			until = known[i+1].Version
		}
		if err := follow(pair, until); err != nil {
			return err
		}
	}
	return nil
}
