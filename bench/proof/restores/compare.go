package restores

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/workloads"
	"github.com/tidemarkdb/tidemark/kv"
)

// expirySlack: a row that expires this soon is not compared. Clocks differ, and the row may have
// expired when it was loaded.
const expirySlack = 5 * time.Second

func byKey(a, b kv.Pair) int { return bytes.Compare(a.Key, b.Key) }

// rowsOf reads all rows.
func rowsOf(scan iter.Seq2[kv.Pair, error]) ([]kv.Pair, error) {
	rows := []kv.Pair{}
	for pair, err := range scan {
		if err != nil {
			return nil, err
		}
		rows = append(rows, pair)
	}
	return rows, nil
}

// compare compares a restored keyspace with its source at the moment.
func (o *operation) compare(ctx context.Context, name, as string, at kv.Timestamp) error {
	var got []kv.Pair
	if err := o.try(ctx, func(ctx context.Context) (err error) {
		got, err = rowsOf(o.sdk.Keyspace(as).Scan(ctx))
		return err
	}); err != nil {
		return err
	}
	slices.SortFunc(got, byKey)
	if err := workloads.CheckRows(name, got); err != nil {
		o.run.Violation("restores: %s, restored as of %v: %v", name, at, err)
	}
	want := o.sources[at][name]
	if want == nil {
		o.run.Count("not compared", errCollected)
		return nil
	}
	if all := differences(want, got, time.Now()); len(all) > 0 {
		o.run.Violation("restores: %s, restored as of %v, has %d rows, and its source had %d: %s", name,
			at, len(got), len(want), strings.Join(all, "; "))
	}
	o.run.Count("compared", nil)
	return nil
}

// mostDifferences is the number of differences that a report of a copy lists.
const mostDifferences = 10

// differences lists the differences between two lists of rows, both by ascending key. It ignores
// versions, and rows that have expired.
func differences(want, got []kv.Pair, now time.Time) (all []string) {
	tell := func(format string, args ...any) {
		if len(all) < mostDifferences {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	expired := func(p kv.Pair) bool {
		return !p.Expires.IsZero() && !p.Expires.After(now.Add(expirySlack))
	}
	for len(want) > 0 || len(got) > 0 {
		order := -1
		switch {
		case len(want) == 0:
			order = 1
		case len(got) > 0:
			order = byKey(want[0], got[0])
		}
		switch {
		case order < 0:
			if !expired(want[0]) {
				tell("%q is missing, which was of %v (%.40q)", want[0].Key, want[0].Version, want[0].Value)
			}
			want = want[1:]
			continue
		case order > 0:
			tell("%q is there with %.40q", got[0].Key, got[0].Value)
			got = got[1:]
			continue
		}
		w, g := want[0], got[0]
		want, got = want[1:], got[1:]
		if expired(w) {
			continue
		}
		if !bytes.Equal(w.Value, g.Value) {
			tell("%q is %.40q, and was %.40q, of %v", w.Key, g.Value, w.Value, w.Version)
		} else if !w.Expires.Equal(g.Expires) {
			tell("%q expires at %v, and was to expire at %v", w.Key, g.Expires, w.Expires)
		}
	}
	return all
}
