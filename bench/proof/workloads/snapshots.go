package workloads

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv"
)

// Snapshots writes one value to all keys of a group in a transaction. Every read of a group finds
// one value in all keys, and the same value twice in one transaction. A read at the commit
// timestamp of an update finds that update, and a read directly below does not find it yet. A
// repeated read at the timestamp of an earlier read finds the same. No read finds less than what
// was acknowledged before the read began.
type Snapshots struct {
	Groups, Size, Parallel int
	Pause                  time.Duration
	// Least is the shortest deadline of a transaction without hurry.
	Least time.Duration

	newest []watermark
	// commits has the timestamps of acknowledged values.
	commits memory
}

// Name implements Transactions.
func (*Snapshots) Name() string { return "snapshots" }

// Clients implements Transactions.
func (s *Snapshots) Clients() int { return s.Parallel }

// Splits implements Transactions.
func (*Snapshots) Splits() []string {
	return []string{"snapshot00/2", "snapshot01/",
		"snapshot02/3"}
}

// Setup implements Transactions.
func (s *Snapshots) Setup(context.Context, *driver.Run, driver.Transactor) error {
	s.newest = make([]watermark, s.Groups)
	return nil
}

func (s *Snapshots) prefix(group int) string { return fmt.Sprintf("snapshot%02d/", group) }

// values reads a group.
func (s *Snapshots) values(ctx context.Context, tx driver.Tx, group int, scan bool) ([]string,
	error) {
	values := make([]string, s.Size)
	if scan {
		for pair, err := range tx.Scan(ctx, []byte(s.prefix(group))) {
			if err != nil {
				return nil, err
			}
			var i int
			if _, err := fmt.Sscan(string(pair.Key[len(s.prefix(group)):]), &i); err != nil ||
				i < 0 || i >= s.Size {
				return nil, fmt.Errorf("a key that no client wrote: %q", pair.Key)
			}
			values[i] = string(pair.Value)
		}
		return values, nil
	}
	for i := range values {
		found, err := read(ctx, tx, fmt.Sprintf("%s%d", s.prefix(group), i))
		if err != nil {
			return nil, err
		}
		values[i] = found.value
	}
	return values, nil
}

// whole says whether all values are the same.
func whole(values []string) bool { return len(slices.Compact(slices.Clone(values))) == 1 }

// Drive implements Transactions.
func (s *Snapshots) Drive(ctx context.Context, run *driver.Run, number int, db driver.Transactor,
	random *rand.Rand) {
	type old struct {
		group int
		at    kv.Timestamp
		value string
	}
	var earlier []old
	keep := func(o old) {
		if earlier = append(earlier, o); len(earlier) > 16 {
			earlier = earlier[1:]
		}
	}
	for n := 0; run.Rest(ctx, random, s.Pause); n++ {
		attempt, cancel := driver.PatienceOf(ctx, random, s.Least)
		group, scan := random.IntN(s.Groups), random.IntN(2) == 0
		switch kind := random.IntN(3); {
		case kind == 0:
			value := fmt.Sprintf("%d.%d", number, n)
			at, err := s.write(attempt, run, db, group, value)
			run.Count("snapshot write", err)
			if !at.IsZero() {
				keep(old{group, at, value})
			}
		case kind == 1 && len(earlier) > 0:
			o := earlier[random.IntN(len(earlier))]
			run.Count("snapshot again", s.again(attempt, run, db, o.group, o.at, o.value, scan))
		default:
			at, value, err := s.look(attempt, run, db, group, scan)
			run.Count("snapshot", err)
			if err == nil {
				keep(old{group, at, value})
			}
		}
		cancel()
	}
}

// write writes a group, and reads it back. If the commit was acknowledged, write returns its
// timestamp, even together with an error.
func (s *Snapshots) write(ctx context.Context, run *driver.Run, db driver.Transactor, group int,
	value string) (kv.Timestamp, error) {
	floor := s.newest[group].known()
	at, err := db.Update(ctx, func(tx driver.Tx) error {
		for i := range s.Size {
			if err := tx.Put(fmt.Appendf(nil, "%s%d", s.prefix(group), i),
				[]byte(value)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return kv.Timestamp{}, err
	}
	if err := s.newest[group].wrote(floor, at); err != nil {
		run.Violation("snapshots: %v", err)
	}
	s.commits.remember(value, at)
	if err := s.again(ctx, run, db, group, at, value, true); err != nil {
		return at, err
	}
	var below []string
	if err := db.ViewAt(ctx, at.Prev(), func(tx driver.Tx) (err error) {
		below, err = s.values(ctx, tx, group, false)
		return err
	}); err != nil {
		return at, err
	}
	if !whole(below) || below[0] == value {
		run.Violation("snapshots: directly below the commit of %s at %v the group has %q", value,
			at, below)
	}
	return at, nil
}

// look reads a group twice in one transaction.
func (s *Snapshots) look(ctx context.Context, run *driver.Run, db driver.Transactor, group int,
	scan bool) (kv.Timestamp, string, error) {
	floor := s.newest[group].known()
	var first, second []string
	at, err := db.View(ctx, func(tx driver.Tx) (err error) {
		if first, err = s.values(ctx, tx, group, scan); err != nil {
			return err
		}
		second, err = s.values(ctx, tx, group, !scan)
		return err
	})
	if err != nil {
		return at, "", err
	}
	if !whole(first) || !slices.Equal(first, second) {
		run.Violation("snapshots: one transaction at %v saw %q and then %q", at, first, second)
	}
	if at.Less(floor) {
		run.Violation("snapshots: a transaction read as of %v, and a commit at %v was "+
			"acknowledged before it began", at, floor)
	}
	if version, known := s.commits.know(first[0]); known && version.Less(floor) {
		run.Violation("snapshots: a transaction read %s of %v, and a commit at %v was "+
			"acknowledged before it began", first[0], version, floor)
	}
	return at, first[0], nil
}

// again reads a group at a timestamp for which the value is known.
func (s *Snapshots) again(ctx context.Context, run *driver.Run, db driver.Transactor, group int,
	at kv.Timestamp, value string, scan bool) error {
	var values []string
	err := db.ViewAt(ctx, at, func(tx driver.Tx) (err error) {
		values, err = s.values(ctx, tx, group, scan)
		return err
	})
	if err == nil && (!whole(values) || values[0] != value) {
		run.Violation("snapshots: as of %v the group has %q in all keys, and %q was read", at,
			value, values)
	}
	return err
}

// Check implements Transactions.
func (s *Snapshots) Check(ctx context.Context, run *driver.Run, db driver.Transactor) error {
	var errs []error
	for group := range s.Groups {
		_, _, err := s.look(ctx, run, db, group, true)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
