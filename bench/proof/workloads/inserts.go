package workloads

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
)

// Inserts writes keys once each, without reading anything, and reads all of them. Of two reads one
// contains the other (no long fork: two readers must not see two writes in opposite orders). A
// reader that sees a key also sees all keys that were acknowledged before the write of that key
// began (no causal reversal). A reader sees all keys that were acknowledged before its read began.
type Inserts struct {
	// Age is how long keys are used. The first 64 inserts of each window are checked.
	Age              time.Duration
	Parallel         int
	Pause, ReadPause time.Duration
	// Least is the shortest deadline of a transaction without hurry.
	Least time.Duration
	// Strict says that the database claims strict serialisability. Otherwise causal reversal
	// between keys is allowed.
	Strict bool

	windows driver.Windows[*inserts]
}

// inserts has the keys of a window. Each key has a bit.
type inserts struct {
	number int64
	strict bool
	mu     struct {
		sync.Mutex
		begun int
		acked uint64
		// before has, for each key, the keys that were acknowledged when the write of the key
		// began.
		before [64]uint64
		// refused has the writes that certainly had no effect.
		refused uint64
		// readings has the last reads.
		readings [maxReadings]reading
		next     int
		// over: the keys are being deleted.
		over bool
	}
}

// reading is a read: it looked at the keys of looked, and saw the keys of seen.
type reading struct{ seen, looked uint64 }

// contradicts says whether each of two reads saw a key that the other looked at and did not see.
func (r reading) contradicts(other reading) bool {
	return r.seen&other.looked&^other.seen != 0 && other.seen&r.looked&^r.seen != 0
}

// maxReadings is the number of earlier reads that a new read is compared with.
const maxReadings = 256

// Name implements Transactions.
func (*Inserts) Name() string { return "inserts" }

// Clients implements Transactions.
func (l *Inserts) Clients() int { return l.Parallel }

// Splits implements Transactions.
func (*Inserts) Splits() []string {
	return []string{"insert0/03", "insert1/03", "insert2/03", "insert3/03"}
}

// Setup implements Transactions.
func (l *Inserts) Setup(context.Context, *driver.Run, driver.Transactor) error {
	l.windows.Age = l.Age
	l.windows.Fresh = func(number int64) *inserts {
		return &inserts{number: number, strict: l.Strict}
	}
	return nil
}

// insertSpans is the number of spans of keys that the windows use in turn. So wherever a partition
// is split, the split is in the middle of many windows.
const insertSpans = 4

func (x *inserts) prefix() string { return fmt.Sprintf("insert%d/", x.number%insertSpans) }

func (x *inserts) key(i int) []byte {
	return fmt.Appendf(nil, "%s%02d/%08d", x.prefix(), i,
		x.number)
}

// Drive implements Transactions: half of the clients write.
func (l *Inserts) Drive(ctx context.Context, run *driver.Run, number int, db driver.Transactor,
	random *rand.Rand) {
	closing := func(ctx context.Context, x *inserts) error { return x.close(ctx, run, db) }
	pause := l.Pause
	if number%2 == 1 {
		pause = l.ReadPause
	}
	for run.Rest(ctx, random, pause) {
		if !l.windows.CloseDue(ctx, run, closing) {
			continue
		}
		w := l.windows.Enter(run.Elapsed())
		attempt, cancel := driver.PatienceOf(ctx, random, l.Least)
		if number%2 == 1 {
			run.Count("inserts read", w.State.read(attempt, run, db, random))
		} else {
			run.Count("insert", w.State.insert(attempt, db))
		}
		cancel()
		l.windows.Leave(w)
	}
}

func (x *inserts) insert(ctx context.Context, db driver.Transactor) error {
	x.mu.Lock()
	i := x.mu.begun
	if i == 64 {
		x.mu.Unlock()
		return nil
	}
	x.mu.begun++
	x.mu.before[i] = x.mu.acked
	x.mu.Unlock()
	_, err := db.Update(ctx, func(tx driver.Tx) error { return tx.Put(x.key(i), x.key(i)) })
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case err == nil:
		x.mu.acked |= 1 << i
	case !driver.Unknown(err):
		x.mu.refused |= 1 << i
	}
	return err
}

// read reads all keys, by a scan or by single reads in a random order.
func (x *inserts) read(ctx context.Context, run *driver.Run, db driver.Transactor,
	random *rand.Rand) error {
	x.mu.Lock()
	floor, begun := x.mu.acked, x.mu.begun
	x.mu.Unlock()
	order := random.Perm(begun)
	scan := random.IntN(2) == 0
	var seen, looked uint64
	_, err := db.View(ctx, func(tx driver.Tx) (err error) {
		seen, looked = 0, 0
		if scan {
			looked = 1<<64 - 1
			seen, err = x.scan(ctx, tx)
			return err
		}
		for _, i := range order {
			_, err := tx.Get(ctx, x.key(i))
			if err := driver.IgnoreNotFound(err); err != nil {
				return err
			}
			looked |= 1 << i
			if err == nil {
				seen |= 1 << i
			}
		}
		return nil
	})
	if err == nil {
		x.check(run, floor, seen, looked)
	}
	return err
}

func (x *inserts) scan(ctx context.Context, tx driver.Tx) (seen uint64, err error) {
	for pair, err := range tx.Scan(ctx, []byte(x.prefix())) {
		if err != nil {
			return 0, err
		}
		var i int
		var number int64
		if _, err := fmt.Sscanf(string(pair.Key[len(x.prefix()):]), "%d/%d", &i,
			&number); err != nil || i < 0 || i > 63 {
			return 0, fmt.Errorf("a key that no client wrote: %q", pair.Key)
		}
		if number == x.number {
			seen |= 1 << i
		}
	}
	return seen, nil
}

// check compares a read with the writes and with earlier reads. looked has the keys that it looked
// at.
func (x *inserts) check(run *driver.Run, floor, seen, looked uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if missing := floor &^ seen; missing != 0 {
		run.Violation("inserts: a reading misses what was acknowledged before it began: %s, it "+
			"saw %s", set64(missing), set64(seen))
	}
	if wrong := seen & x.mu.refused; wrong != 0 {
		run.Violation("inserts: a reading saw %s, whose writes were refused", set64(wrong))
	}
	for i := range 64 {
		if missing := x.mu.before[i] & looked &^ seen; x.strict && seen>>i&1 == 1 && missing != 0 {
			run.Violation("inserts: a reading saw %d and not %s, acknowledged before the write "+
				"of %d began", i, set64(missing), i)
		}
	}
	now := reading{seen, looked}
	for _, other := range x.mu.readings {
		if now.contradicts(other) {
			run.Violation("inserts: of the keys that both looked at, one reading saw %s, and "+
				"another %s",
				set64(seen&other.looked), set64(other.seen&looked))
			break
		}
	}
	x.mu.readings[x.mu.next%maxReadings] = now
	x.mu.next++
}

func set64(mask uint64) string {
	var numbers []int
	for ; mask != 0; mask &= mask - 1 {
		numbers = append(numbers, bits.TrailingZeros64(mask))
	}
	return fmt.Sprint(numbers)
}

// close reads a window for the last time, and deletes its keys.
func (x *inserts) close(ctx context.Context, run *driver.Run, db driver.Transactor) error {
	x.mu.Lock()
	begun, again := x.mu.begun, x.mu.over
	x.mu.Unlock()
	if !again {
		if err := x.read(ctx, run, db, rand.New(rand.NewPCG(1, 2))); err != nil {
			return err
		}
	}
	x.mu.Lock()
	x.mu.over = true
	x.mu.Unlock()
	_, err := db.Update(ctx, func(tx driver.Tx) error {
		for i := range begun {
			if err := tx.Delete(x.key(i)); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// Check implements Transactions.
func (l *Inserts) Check(ctx context.Context, run *driver.Run, db driver.Transactor) error {
	return l.windows.CloseAll(ctx, func(ctx context.Context,
		x *inserts) error {
		return x.close(ctx, run, db)
	})
}
