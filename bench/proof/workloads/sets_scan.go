package workloads

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv"
)

// span is a part of the keyspace.
type span struct {
	from, to string // to is excluded; empty: no limit
	prefix   string
}

func (p span) contains(key string) bool {
	return key >= p.from && (p.to == "" || key < p.to) && strings.HasPrefix(key, p.prefix)
}

func (p span) options() []kv.SpanOption {
	options := []kv.SpanOption{kv.All()}
	if p.from != "" {
		options = append(options, kv.From([]byte(p.from)))
	}
	if p.to != "" {
		options = append(options, kv.To([]byte(p.to)))
	}
	if p.prefix != "" {
		options = append(options, kv.Prefix([]byte(p.prefix)))
	}
	return options
}

// drawSpan draws the whole keyspace, a span from one place to another, or a span from one element
// to another.
func drawSpan(random *rand.Rand, sets []*set) span {
	place := func() string { return fmt.Sprintf("set%x", random.IntN(16)) }
	if random.IntN(2) == 0 && len(sets) > 0 {
		if kept := sets[random.IntN(len(sets))].sure(); len(kept) > 0 {
			place = func() string { return kept[random.IntN(len(kept))] }
		}
	}
	switch random.IntN(4) {
	case 0:
		return span{from: place()}
	case 1:
		return span{to: place()}
	case 2:
		from, to := place(), place()
		return span{from: min(from, to), to: max(from, to)}
	}
	return span{}
}

// sure returns the elements that are certainly there: added, and no removal has begun.
func (x *set) sure() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.over {
		return nil
	}
	return slices.Clone(x.mu.kept)
}

// standing has, for a scan that begins now, the elements that it must find and the elements that it
// must not find.
type standing struct {
	sure []string
	gone map[string]bool
}

func (x *set) standing() standing {
	now := standing{sure: x.sure(), gone: make(map[string]bool)}
	x.mu.Lock()
	defer x.mu.Unlock()
	for key, m := range x.mu.elements {
		if m == removed {
			now.gone[key] = true
		}
	}
	return now
}

// scan scans the sets in one of several ways, and checks the rows.
func (s *Sets) scan(ctx context.Context, run *driver.Run, client *driver.Client,
	ks *driver.Keyspace, random *rand.Rand) error {
	part, reverse := drawSpan(random, s.windows.List()), random.IntN(2) == 0
	if at := client.Timestamp(); !at.IsZero() && random.IntN(3) == 0 {
		return s.compare(ctx, run, ks, part, reverse, at, random)
	}
	before := make(map[*set]standing)
	for _, x := range s.windows.List() {
		before[x] = x.standing()
	}
	rows, err := s.rows(ctx, run, ks.Scan, part, reverse, random)
	if err != nil {
		return err
	}
	s.check(run, part, rows, before)
	return nil
}

// rows reads a span, and checks everything that needs no other knowledge than the rows.
func (s *Sets) rows(ctx context.Context, run *driver.Run, scan scanning, part span, reverse bool,
	random *rand.Rand) ([]kv.Pair, error) {
	var more []kv.ScanOption
	for _, o := range part.options() {
		more = append(more, o)
	}
	if reverse {
		more = append(more, kv.Reverse())
	}
	if random.IntN(3) > 0 {
		more = append(more, kv.PageSize(1+random.IntN(9)))
	}
	var rows []kv.Pair
	for pair, err := range scan(ctx, more...) {
		if err != nil {
			return nil, err
		}
		rows = append(rows, pair)
	}
	if reverse {
		slices.Reverse(rows)
	}
	for i, row := range rows {
		key := string(row.Key)
		if i > 0 && string(rows[i-1].Key) >= key {
			run.Violation("%s: a scan (reverse: %v) of %+v has %q beside %q", s.Keyspace, reverse,
				part, rows[i-1].Key, key)
		}
		if !part.contains(key) {
			run.Violation("%s: a scan of %+v has %q", s.Keyspace, part, key)
		}
		if string(s.value(key)) != string(row.Value) {
			run.Violation("%s: %q has the value %.80q, which was never its", s.Keyspace, key,
				row.Value)
		}
	}
	return rows, nil
}

// check compares rows with what is known now, and with what was known before the scan began.
func (s *Sets) check(run *driver.Run, part span, rows []kv.Pair, before map[*set]standing) {
	there := make(map[string]bool, len(rows))
	for _, row := range rows {
		there[string(row.Key)] = true
	}
	for x, was := range before {
		x.mu.Lock()
		over := x.mu.over
		for _, key := range was.sure {
			if part.contains(key) && !there[key] && !over && x.mu.elements[key] == added {
				run.Violation("%s: a scan of %+v with %d rows has no %q, which was added and "+
					"not removed", s.Keyspace, part, len(rows), key)
			}
		}
		for _, row := range rows {
			if !x.holds(string(row.Key)) {
				continue
			}
			if m, known := x.mu.elements[string(row.Key)]; !known || m == never {
				run.Violation("%s: a scan has %q, which was never added (refused: %v)", s.Keyspace,
					row.Key, known)
			}
			if was.gone[string(row.Key)] {
				run.Violation("%s: a scan has %q, which was removed before it began", s.Keyspace,
					row.Key)
			}
		}
		x.mu.Unlock()
	}
}

// holds says whether a key belongs to this set.
func (x *set) holds(key string) bool {
	return strings.HasPrefix(key[min(len("set0"), len(key)):], fmt.Sprintf("/%08d/", x.number))
}

// compare reads the same span at the same timestamp twice, in both directions, and counts its rows.
func (s *Sets) compare(ctx context.Context, run *driver.Run, ks *driver.Keyspace, part span,
	reverse bool, at kv.Timestamp, random *rand.Rand) error {
	first, err := s.rows(ctx, run, scanAt(ks, at), part, reverse, random)
	if err != nil {
		return err
	}
	second, err := s.rows(ctx, run, scanAt(ks, at), part, !reverse, random)
	if err != nil {
		return err
	}
	var options []kv.CountOption
	for _, o := range part.options() {
		options = append(options, o)
	}
	n, err := ks.CountAt(ctx, at, options...)
	if err != nil {
		return err
	}
	same := func(a, b kv.Pair) bool {
		return string(a.Key) == string(b.Key) && a.Version == b.Version
	}
	if !slices.EqualFunc(first, second, same) || n != uint64(len(first)) {
		run.Violation("%s: two scans of %+v at %v have %d and %d rows (or others), and Count "+
			"says %d",
			s.Keyspace, part, at, len(first), len(second), n)
	}
	return nil
}

// close checks a set that no client changes any more, and deletes it.
func (s *Sets) close(ctx context.Context, run *driver.Run, ks *driver.Keyspace, x *set) error {
	random := rand.New(rand.NewPCG(uint64(x.number), 0))
	x.mu.Lock()
	again := x.mu.over // an earlier attempt may have deleted some rows; then the number proves nothing
	x.mu.Unlock()
	var all []kv.Pair
	for place := range uint32(16) {
		rows, err := s.rows(ctx, run, ks.Scan, span{prefix: x.prefix(place)}, place%2 == 0, random)
		if err != nil {
			return err
		}
		all = append(all, rows...)
	}
	s.check(run, span{}, all, map[*set]standing{x: x.standing()})
	sure, perhaps := uint64(0), uint64(0)
	x.mu.Lock()
	x.mu.over = true
	for _, m := range x.mu.elements {
		switch m {
		case added:
			sure++
		case adding, removing:
			perhaps++
		}
	}
	x.mu.Unlock()
	var deleted uint64
	var errs []error
	for place := range uint32(16) {
		n, err := ks.DeleteRange(ctx, kv.Prefix([]byte(x.prefix(place))))
		deleted += n
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if !again && (deleted < sure || deleted > sure+perhaps) {
		run.Violation("%s: of %d to %d elements of set %d range deletions deleted %d", s.Keyspace,
			sure, sure+perhaps, x.number, deleted)
	}
	for place := range uint32(16) {
		rows, err := s.rows(ctx, run, ks.Scan, span{prefix: x.prefix(place)}, false, random)
		if err != nil {
			return err
		}
		x.mu.Lock()
		for _, row := range rows {
			// an addition of unknown outcome may take effect late
			if m := x.mu.elements[string(row.Key)]; m != adding {
				run.Violation("%s: %q was deleted by range, and is there", s.Keyspace, row.Key)
			}
		}
		x.mu.Unlock()
	}
	return nil
}

// Check implements Workload.
func (s *Sets) Check(ctx context.Context, run *driver.Run, client *driver.Client) error {
	ks := client.Keyspace(s.Keyspace)
	return s.windows.CloseAll(ctx, func(ctx context.Context,
		x *set) error {
		return s.close(ctx, run, ks, x)
	})
}

// scanning is Scan, or ScanAt with a timestamp.
type scanning = func(context.Context, ...kv.ScanOption) iter.Seq2[kv.Pair, error]

func scanAt(ks *driver.Keyspace, at kv.Timestamp) scanning {
	return func(ctx context.Context, options ...kv.ScanOption) iter.Seq2[kv.Pair, error] {
		return ks.ScanAt(ctx, at, options...)
	}
}
