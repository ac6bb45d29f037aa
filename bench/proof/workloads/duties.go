package workloads

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
)

// Duties looks for write skew. In each group at most one key may exist. A transaction that finds no
// key adds a key; a transaction that finds a key deletes the first key found. Half of the
// transactions read every key of the group. The others scan the group, so that keys which do not
// exist yet count as read too (phantoms). Under snapshot isolation, two transactions could both
// find no key and add different keys. Half of the
// transactions read the group again before they commit, and must find their own change.
type Duties struct {
	Groups, Size, Parallel int
	Pause                  time.Duration
	// Least is the shortest deadline of a transaction without hurry.
	Least time.Duration
	// Dwell is the longest rest, before its commit, of a transaction that adds a key. Most such
	// transactions rest, so that other commits come after their reads and before their own commit.
	// They send nothing while they rest, so that a node whose clock is behind does not learn of
	// later timestamps from them.
	Dwell time.Duration
}

// rush is how long most clients use the same group.
const rush = time.Second

// Name implements Transactions.
func (*Duties) Name() string { return "duties" }

// Clients implements Transactions.
func (d *Duties) Clients() int { return d.Parallel }

// Splits implements Transactions.
func (*Duties) Splits() []string { return []string{"duty00/2", "duty01/", "duty02/1"} }

// Setup implements Transactions.
func (*Duties) Setup(context.Context, *driver.Run, driver.Transactor) error { return nil }

func (d *Duties) prefix(group int) []byte { return fmt.Appendf(nil, "duty%02d/", group) }

func (d *Duties) key(group, i int) string { return fmt.Sprintf("%s%d", d.prefix(group), i) }

// onDuty returns the keys of a group that exist.
func (d *Duties) onDuty(ctx context.Context, tx driver.Tx, group int, scan bool) (keys []string,
	err error) {
	if scan {
		for pair, err := range tx.Scan(ctx, d.prefix(group)) {
			if err != nil {
				return nil, err
			}
			keys = append(keys, string(pair.Key))
		}
		return keys, nil
	}
	for i := range d.Size {
		_, err := tx.Get(ctx, []byte(d.key(group, i)))
		switch {
		case err == nil:
			keys = append(keys, d.key(group, i))
		case driver.IgnoreNotFound(err) != nil:
			return nil, err
		}
	}
	return keys, nil
}

// Drive implements Transactions.
func (d *Duties) Drive(ctx context.Context, run *driver.Run, number int, db driver.Transactor,
	random *rand.Rand) {
	for n := 0; run.Rest(ctx, random, d.Pause); n++ {
		attempt, cancel := driver.PatienceOf(ctx, random, d.Least)
		group, scan := random.IntN(d.Groups), random.IntN(2) == 0
		if random.IntN(4) > 0 {
			group = int(run.Elapsed()/rush) % d.Groups
		}
		if random.IntN(6) == 0 {
			run.Count("duties read", d.look(attempt, run, db, group, scan))
		} else {
			own := d.key(group, random.IntN(d.Size))
			again, dwell := random.IntN(2) == 0, time.Duration(0)
			if random.IntN(4) > 0 {
				dwell = time.Duration(random.Int64N(int64(d.Dwell) + 1))
			}
			var found []string
			at, err := db.Update(attempt, func(tx driver.Tx) (err error) {
				if found, err = d.onDuty(attempt, tx, group, scan); err != nil {
					return err
				}
				left := []string{own}
				if len(found) == 0 {
					err = tx.Put([]byte(own), fmt.Appendf(nil, "%d.%d", number, n))
				} else {
					left, err = found[1:], tx.Delete([]byte(found[0]))
				}
				if err == nil && again {
					err = d.lookAgain(attempt, run, tx, group, left)
				}
				if err == nil && len(found) == 0 {
					pause(attempt, dwell)
				}
				return err
			})
			run.Count("duty", err)
			if err == nil && len(found) > 1 {
				run.Violation("duties: %d of a group are on duty, a transaction that committed "+
					"at %v has found: %q", len(found), at, found)
			}
		}
		cancel()
	}
}

// lookAgain reads a group by a scan and by single reads, in the transaction that has just written
// to the group. It must find the transaction's own writes.
func (d *Duties) lookAgain(ctx context.Context, run *driver.Run, tx driver.Tx, group int,
	want []string) error {
	for _, scan := range []bool{true, false} {
		keys, err := d.onDuty(ctx, tx, group, scan)
		if err != nil {
			return err
		}
		if !slices.Equal(keys, want) {
			run.Violation("duties: a transaction has left %q on duty, and finds %q (scan: %v) "+
				"itself", want, keys, scan)
		}
	}
	return nil
}

func (d *Duties) look(ctx context.Context, run *driver.Run, db driver.Transactor, group int,
	scan bool) error {
	var keys []string
	at, err := db.View(ctx, func(tx driver.Tx) (err error) {
		keys, err = d.onDuty(ctx, tx, group, scan)
		return err
	})
	if err == nil && len(keys) > 1 {
		run.Violation("duties: at %v %d of a group are on duty: %q", at, len(keys), keys)
	}
	return err
}

// Check implements Transactions.
func (d *Duties) Check(ctx context.Context, run *driver.Run, db driver.Transactor) error {
	var errs []error
	for group := range d.Groups {
		errs = append(errs, d.look(ctx, run, db, group, true))
	}
	return errors.Join(errs...)
}
