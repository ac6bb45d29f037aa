package workloads

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv"
)

// Spans runs transactions that read a whole span, while clients write new keys into the span all
// the time. Sweepers delete the span, and add the number of deleted keys to a total. Tellers count
// the span, and put a key with the number into it. So for any reader at one timestamp, the total
// plus the remaining keys equals the number of written keys. No transaction may starve: a
// transaction that had to run again several times must in the end lock the span that it reads.
type Spans struct {
	// Layout has the options of the keyspace Keyspace.
	Keyspace string
	Layout   []kv.KeyspaceOption
	// Writers, Sweepers and Tellers are numbers of clients: Writers put keys, Sweepers delete the
	// span, Tellers count it.
	Writers, Sweepers, Tellers int
	// Pause is the longest rest of a writer, and LongPause the longest rest of the other clients.
	Pause, LongPause time.Duration
	// Dwell is the longest time between a transaction's read and its commit. The shortest is half
	// of Dwell.
	Dwell time.Duration

	mu struct {
		sync.Mutex
		// begun is the number of writes that may have taken effect; refused writes do not count.
		// acked is the number of acknowledged writes.
		begun, acked uint64
	}
}

const (
	spanPrefix = "span/"
	// spanTotal is the key of the total.
	spanTotal = "total"
	// spanPatience is the deadline of a transaction over the span. Dozens of attempts fit into it.
	spanPatience = 10 * time.Second
)

// Name implements Workload.
func (s *Spans) Name() string { return s.Keyspace }

// Clients implements Workload.
func (s *Spans) Clients() int { return s.Writers + s.Sweepers + s.Tellers }

// Setup implements Workload.
func (s *Spans) Setup(ctx context.Context, run *driver.Run) error {
	return run.CreateKeyspace(ctx, s.Keyspace, s.Layout...)
}

// Drive implements Workload.
func (s *Spans) Drive(ctx context.Context, run *driver.Run, number int, client *driver.Client,
	random *rand.Rand) {
	ks := client.Keyspace(s.Keyspace)
	if number < s.Writers {
		for n := 0; run.Keep(ctx, random, s.Pause); n++ {
			attempt, cancel := context.WithTimeout(ctx, spanPatience)
			key := fmt.Appendf(nil, "%s%03d/%d.%d", spanPrefix, random.IntN(1000), number, n)
			s.begin()
			_, err := ks.Put(attempt, key, []byte("written"))
			s.end(err)
			run.Count("span write", err)
			cancel()
		}
		return
	}
	for n := 0; run.Keep(ctx, random, s.LongPause); n++ {
		attempt, cancel := context.WithTimeout(ctx, spanPatience)
		switch {
		case random.IntN(8) == 0:
			run.Count("span look", s.look(attempt, run, client))
		case number < s.Writers+s.Sweepers:
			run.Count("span sweep", s.sweep(attempt, client, ks.SDK(), random))
		default:
			s.begin()
			err := s.tell(attempt, client, ks.SDK(), random, fmt.Sprintf("%d.%d", number, n))
			s.end(err)
			run.Count("span tell", err)
		}
		cancel()
	}
}

func (s *Spans) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.begun++
}

// end notes how a write has ended. A refused write no longer counts as begun.
func (s *Spans) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.mu.acked++
	case !driver.Unknown(err):
		s.mu.begun--
	}
}

// sweep deletes the span and adds to the total.
func (s *Spans) sweep(ctx context.Context, client *driver.Client, ks *kv.Keyspace,
	random *rand.Rand) error {
	_, err := client.Update(ctx, "update sweep", func(tx *kv.Txn) error {
		total, err := s.total(tx.Get(ctx, ks, []byte(spanTotal)))
		if err != nil {
			return err
		}
		deleted, err := tx.DeleteRange(ctx, ks, kv.Prefix([]byte(spanPrefix)))
		if err != nil {
			return err
		}
		pause(ctx, s.Dwell/2+time.Duration(random.Int64N(int64(s.Dwell/2)+1)))
		return tx.Put(ks, []byte(spanTotal), strconv.AppendUint(nil, total+deleted, 10))
	})
	return err
}

// tell counts the span and adds a key to it.
func (s *Spans) tell(ctx context.Context, client *driver.Client, ks *kv.Keyspace, random *rand.Rand,
	by string) error {
	_, err := client.Update(ctx, "update count", func(tx *kv.Txn) error {
		n, err := tx.Count(ctx, ks, kv.Prefix([]byte(spanPrefix)))
		if err != nil {
			return err
		}
		pause(ctx, s.Dwell/2+time.Duration(random.Int64N(int64(s.Dwell/2)+1)))
		return tx.Put(ks, fmt.Appendf(nil, "%s%03d/told.%s", spanPrefix, random.IntN(1000), by),
			strconv.AppendUint(nil, n, 10))
	})
	return err
}

// total reads the total.
func (*Spans) total(pair kv.Pair, err error) (uint64, error) {
	if err != nil {
		return 0, driver.IgnoreNotFound(err)
	}
	return strconv.ParseUint(string(pair.Value), 10, 64)
}

// look compares the total and the remaining keys with the number of writes.
func (s *Spans) look(ctx context.Context, run *driver.Run, client *driver.Client) error {
	s.mu.Lock()
	floor := s.mu.acked
	s.mu.Unlock()
	ks := client.Keyspace(s.Keyspace).SDK()
	var total, left uint64
	err := client.View(ctx, "view", func(view *kv.Snapshot) (err error) {
		if total, err = s.total(view.Get(ctx, ks, []byte(spanTotal))); err != nil {
			return err
		}
		left, err = view.Count(ctx, ks, kv.Prefix([]byte(spanPrefix)))
		return err
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if there := total + left; there < floor || there > s.mu.begun {
		run.Violation("%s: %d keys were deleted and %d are left; %d had been acknowledged "+
			"before, and %d were begun", s.Keyspace, total,
			left, floor, s.mu.begun)
	}
	return nil
}

// Check implements Workload.
func (s *Spans) Check(ctx context.Context, run *driver.Run, client *driver.Client) error {
	return s.look(ctx, run, client)
}
