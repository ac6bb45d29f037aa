package workloads

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv"
)

// News writes keys one after the other, each in its own transaction and most in their own
// partitions. Then other clients read some of the keys in another order. Only the clocks put these
// writes in an order. A reader whose first partition has a slow clock begins below several writes
// of a fast clock, and its timestamp has to be moved more than once. Such a reader must find
// everything that was acknowledged before it began. In a database that claims strict
// serialisability, commit timestamps are in the order of real time, whatever the keys are.
type News struct {
	Keys, Parallel int
	Pause          time.Duration
	// Least is the shortest deadline of a transaction without hurry.
	Least time.Duration
	// Strict says that the database claims strict serialisability.
	Strict bool

	newest []watermark
	// latest is the watermark of all keys together.
	latest watermark
	// last is the time of the run at which a write was last acknowledged.
	last atomic.Int64
	// commits has the timestamps of acknowledged values.
	commits memory
}

// Name implements Transactions.
func (*News) Name() string { return "news" }

// Clients implements Transactions.
func (n *News) Clients() int { return n.Parallel }

// Splits implements Transactions.
func (*News) Splits() []string { return []string{"news02", "news04", "news06"} }

// Setup implements Transactions.
func (n *News) Setup(context.Context, *driver.Run, driver.Transactor) error {
	n.newest = make([]watermark, n.Keys)
	return nil
}

func (n *News) key(i int) string { return fmt.Sprintf("news%02d", i) }

const (
	// freshNews is how soon after a write readers start in a hurry: well below the difference of
	// clocks.
	freshNews = 100 * time.Millisecond
	// newsAtOnce is the number of keys that one client writes in a row.
	newsAtOnce = 3
)

// Drive implements Transactions.
func (n *News) Drive(ctx context.Context, run *driver.Run, number int, db driver.Transactor,
	random *rand.Rand) {
	for i := 0; run.Rest(ctx, random, n.Pause); i++ {
		attempt, cancel := driver.PatienceOf(ctx, random, n.Least)
		keys := random.Perm(n.Keys)
		if fresh := run.Elapsed()-time.Duration(n.last.Load()) < freshNews; fresh && !n.Strict ||
			random.IntN(3) == 0 {
			run.Count("news read", n.read(attempt, run, db, keys))
		} else {
			if n.Strict {
				keys = keys[:1]
			}
			for _, key := range keys[:min(len(keys), newsAtOnce)] {
				run.Count("news", n.write(attempt, run, db, key, fmt.Sprintf("%d.%d", number, i)))
			}
		}
		cancel()
	}
}

func (n *News) write(ctx context.Context, run *driver.Run, db driver.Transactor, i int,
	value string) error {
	floor, latest := n.newest[i].known(), n.latest.known()
	at, err := db.Update(ctx, func(
		tx driver.Tx) error {
		return tx.Put([]byte(n.key(i)), []byte(value))
	})
	if err != nil {
		return err
	}
	if err := n.newest[i].wrote(floor, at); err != nil {
		run.Violation("news: key %d: %v", i, err)
	}
	if n.Strict && !latest.Less(at) {
		run.Violation("news: key %d was written at %v, and a commit of %v was acknowledged "+
			"before that began", i, at, latest)
	}
	n.latest.raise(at)
	n.commits.remember(n.name(i, value), at)
	n.last.Store(int64(run.Elapsed()))
	return nil
}

// name is the name of a value in commits.
func (*News) name(i int, value string) string { return fmt.Sprintf("%d %s", i, value) }

// read reads keys in the order given.
func (n *News) read(ctx context.Context, run *driver.Run, db driver.Transactor, keys []int) error {
	floors := make([]kv.Timestamp, n.Keys)
	for i := range floors {
		floors[i] = n.newest[i].known()
	}
	values := make([]content, n.Keys)
	at, err := db.View(ctx, func(tx driver.Tx) (err error) {
		for _, i := range keys {
			if values[i], err = read(ctx, tx, n.key(i)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, found := range values {
		if !found.present && !floors[i].IsZero() {
			run.Violation("news: a transaction that read as of %v found nothing in key %d, and "+
				"a commit at %v was acknowledged before it began", at, i, floors[i])
		}
		if version, known := n.commits.know(n.name(i, found.value)); known &&
			version.Less(floors[i]) {
			run.Violation("news: a transaction that read as of %v found %s of %v in key %d, and "+
				"a commit at %v was acknowledged before it began",
				at, found.value, version, i, floors[i])
		}
	}
	return nil
}

// Check implements Transactions.
func (n *News) Check(ctx context.Context, run *driver.Run, db driver.Transactor) error {
	all := make([]int, n.Keys)
	for i := range all {
		all[i] = i
	}
	return n.read(ctx, run, db, all)
}
