package workloads

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/isolation"
)

// Dependencies runs transactions over several keys. Some keys are lists that transactions append
// to, and some are registers that transactions write and read. The checker looks for cycles in the
// dependency graph of the transactions. Values are unique, so every read identifies the writers
// that it saw, and lists show the order of their writers. The checker finds every named anomaly
// that happens. The other transactional workloads are made so that a certain anomaly happens often.
//
// The keys change every Age. A window of transactions is checked when it is over.
type Dependencies struct {
	// Keys is the number of keys in use at a time. Even keys are lists.
	Keys     int
	Age      time.Duration
	Parallel int
	Pause    time.Duration
	// Least is the shortest deadline of a transaction without hurry.
	Least time.Duration
	// Claim is the isolation that the database promises.
	Claim isolation.Options

	windows driver.Windows[*dependencies]
}

// dependencies are the transactions of a window.
type dependencies struct {
	number   int64
	recorder *isolation.Recorder
}

// Name implements Transactions.
func (*Dependencies) Name() string { return "dependencies" }

// Clients implements Transactions.
func (d *Dependencies) Clients() int { return d.Parallel }

// Splits implements Transactions.
func (*Dependencies) Splits() []string {
	return []string{"dependency02", "dependency04", "dependency06"}
}

// Setup implements Transactions.
func (d *Dependencies) Setup(context.Context, *driver.Run, driver.Transactor) error {
	d.windows.Age = d.Age
	d.windows.Fresh = func(number int64) *dependencies {
		return &dependencies{number, isolation.NewRecorder()}
	}
	return nil
}

func (x *dependencies) key(i int) string { return fmt.Sprintf("dependency%02d/%08d", i, x.number) }

// Drive implements Transactions.
func (d *Dependencies) Drive(ctx context.Context, run *driver.Run, number int, db driver.Transactor,
	random *rand.Rand) {
	closing := func(ctx context.Context, x *dependencies) error { return d.close(ctx, run, x, db) }
	for n := 0; run.Rest(ctx, random, d.Pause); n++ {
		if !d.windows.CloseDue(ctx, run, closing) {
			continue
		}
		w := d.windows.Enter(run.Elapsed())
		attempt, cancel := driver.PatienceOf(ctx, random, d.Least)
		r := recorded{db, w.State.recorder, number}
		keys := random.Perm(d.Keys)[:1+random.IntN(min(4, d.Keys))]
		if random.IntN(3) == 0 {
			run.Count("dependency view", r.look(attempt, w.State, keys, false))
		} else {
			run.Count("dependency update", r.change(attempt, w.State, keys, random.Uint64(),
				fmt.Sprintf("%d.%d", number, n)))
		}
		cancel()
		d.windows.Leave(w)
	}
}

// change reads or writes each of the keys, as bits decide.
func (r recorded) change(ctx context.Context, x *dependencies, keys []int, bits uint64,
	name string) error {
	return r.update(ctx, func(tx driver.Tx, note isolation.Pending, attempt int) error {
		for n, i := range keys {
			key, value := x.key(i), fmt.Sprintf("%s.%d.%d", name, attempt, n)
			reads, writes := bits>>(2*n)&1 == 0, bits>>(2*n+1)&1 == 0
			list := i%2 == 0
			if reads || list {
				found, err := read(ctx, tx, key)
				if err != nil {
					return err
				}
				found.note(note, key, list)
				if list {
					value = strings.TrimPrefix(found.value+" "+value, " ")
				}
			}
			if !writes {
				continue
			}
			if list {
				note.Append(key, value[strings.LastIndex(value, " ")+1:])
			} else {
				note.Write(key, value)
			}
			if err := tx.Put([]byte(key), []byte(value)); err != nil {
				return err
			}
		}
		return nil
	})
}

// content is the value that a read found in a key.
type content struct {
	present bool
	value   string
}

func read(ctx context.Context, tx driver.Tx, key string) (content, error) {
	value, err := tx.Get(ctx, []byte(key))
	if err := driver.IgnoreNotFound(err); err != nil {
		return content{}, err
	}
	return content{err == nil, string(value)}, nil
}

func (c content) note(note isolation.Pending, key string, list bool) {
	switch {
	case list:
		note.ReadList(key, strings.Fields(c.value))
	case c.present:
		note.Read(key, c.value)
	default:
		note.ReadAbsent(key)
	}
}

// look reads the keys. last is set for the last look of all, when nothing else happens: it must
// find everything that was committed.
func (r recorded) look(ctx context.Context, x *dependencies, keys []int, last bool) error {
	found := make([]content, len(keys))
	return r.view(ctx, func(tx driver.Tx) (err error) {
		for n, i := range keys {
			if found[n], err = read(ctx, tx, x.key(i)); err != nil {
				return err
			}
		}
		return nil
	}, func(note isolation.Pending) {
		for n, i := range keys {
			found[n].note(note, x.key(i), i%2 == 0)
		}
		if last {
			note.Final()
		}
	})
}

// close reads all keys of a window for the last time, checks the transactions of the window, and
// deletes the keys.
func (d *Dependencies) close(ctx context.Context, run *driver.Run, x *dependencies,
	db driver.Transactor) error {
	all := make([]int, d.Keys)
	for i := range all {
		all[i] = i
	}
	if x.recorder != nil { // the window has not been checked yet
		if err := (recorded{db, x.recorder, -1}).look(ctx, x, all, true); err != nil {
			return err
		}
		report, err := isolation.Check(x.recorder.History(), d.Claim)
		if err = errors.Join(err, report.Err()); err != nil {
			run.Violation("dependencies: %v", err)
		}
		x.recorder = nil
	}
	_, err := db.Update(ctx, func(tx driver.Tx) error {
		for i := range d.Keys {
			if err := tx.Delete([]byte(x.key(i))); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// Check implements Transactions.
func (d *Dependencies) Check(ctx context.Context, run *driver.Run, db driver.Transactor) error {
	return d.windows.CloseAll(ctx, func(ctx context.Context,
		x *dependencies) error {
		return d.close(ctx, run, x, db)
	})
}
