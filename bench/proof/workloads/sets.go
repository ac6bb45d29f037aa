package workloads

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv"
)

// Sets adds elements, one key each, and removes them, while other clients scan: forward and
// backward, everything or a part, with pages of one row and more, and with values from 0 to Large
// bytes. A scan must return once each element whose addition was acknowledged before the scan began
// and whose removal had not begun when the scan ended. It must not return an element that was
// removed before. Rows come in order, each with its own value. Many keys are direct neighbours ("k"
// and "k\x00"), so that a page boundary which is off by the smallest step shows. A second scan at
// the same timestamp, in the other direction with other pages, returns the same rows, and Count
// returns their number.
//
// Sets change every Age. An old set is deleted by a range deletion, whose answer must have the
// number of deleted elements.
type Sets struct {
	// Keyspace is created with hash Partitions, or split into three ranges if Partitions is 0.
	Keyspace   string
	Partitions int
	// Adders is the number of clients that add and remove. Scanners is the number of clients that
	// scan.
	Adders, Scanners int
	Age              time.Duration
	Pause, ScanPause time.Duration
	// Large is the largest size of a value, in bytes. Most values are small.
	Large int

	windows driver.Windows[*set]
}

// set is what all clients together know of the elements of a window.
type set struct {
	number int64
	mu     struct {
		sync.Mutex
		elements map[string]membership // by key
		kept     []string              // keys to choose removals from
		over     bool                  // the set is being deleted
	}
}

// membership is the state of an element. It only increases.
type membership uint8

const (
	adding   membership = iota // called, or of unknown outcome
	added                      // acknowledged
	removing                   // called, or of unknown outcome
	removed                    // acknowledged
	never                      // the addition was refused
)

// Name implements Workload.
func (s *Sets) Name() string { return s.Keyspace }

// Clients implements Workload.
func (s *Sets) Clients() int { return s.Adders + s.Scanners }

// Setup implements Workload.
func (s *Sets) Setup(ctx context.Context, run *driver.Run) error {
	s.windows.Age = s.Age
	s.windows.Fresh = func(number int64) *set {
		x := &set{number: number}
		x.mu.elements = make(map[string]membership)
		return x
	}
	partitioning := kv.Range([]byte("set5"), []byte("seta"))
	if s.Partitions > 0 {
		partitioning = kv.Hash(s.Partitions)
	}
	return run.CreateKeyspace(ctx, s.Keyspace, partitioning)
}

// prefix is the common prefix of the set's keys in one of 16 places. The place comes first, so that
// a set lies in all partitions.
func (x *set) prefix(place uint32) string { return fmt.Sprintf("set%x/%08d/", place, x.number) }

// value is the value of an element: its key, and a filling that only this key has.
func (s *Sets) value(key string) []byte {
	h := fnv.New64a()
	h.Write([]byte(key))
	seed := h.Sum64()
	filling := rand.New(rand.NewPCG(seed, 0))
	size := filling.IntN(32)
	if s.Large > 0 && filling.IntN(8) == 0 {
		size = filling.IntN(s.Large)
	}
	return append([]byte(key+" "), bytes.Repeat(fmt.Appendf(nil, "%016x", seed), size/16)...)
}

// Drive implements Workload.
func (s *Sets) Drive(ctx context.Context, run *driver.Run, number int, client *driver.Client,
	random *rand.Rand) {
	ks := client.Keyspace(s.Keyspace)
	closing := func(ctx context.Context, x *set) error { return s.close(ctx, run, ks, x) }
	pause := s.Pause
	if number >= s.Adders {
		pause = s.ScanPause
	}
	for n := 0; run.Rest(ctx, random, pause); n++ {
		if !s.windows.CloseDue(ctx, run, closing) {
			continue
		}
		w := s.windows.Enter(run.Elapsed())
		attempt, cancel := driver.Patience(ctx, random)
		switch {
		case number >= s.Adders:
			run.Count("set scan", s.scan(attempt, run, client, ks, random))
		case random.IntN(4) == 0:
			run.Count("removal", s.remove(attempt, run, ks, w.State, random))
		default:
			name := fmt.Sprintf("%d.%d", number, n)
			if n%2 == 1 && random.IntN(2) == 0 {
				name = fmt.Sprintf("%d.%d\x00", number, n-1) // the direct neighbour of the last element
			}
			run.Count("addition", s.add(attempt, ks, w.State, name))
		}
		cancel()
		s.windows.Leave(w)
	}
}

// reach raises the state of an element to m.
func (x *set) reach(key string, m membership) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.elements[key] = m
	if m == added {
		x.mu.kept = append(x.mu.kept, key)
	}
}

func (s *Sets) add(ctx context.Context, ks *driver.Keyspace, x *set, name string) error {
	h := fnv.New32a()
	h.Write([]byte(strings.TrimRight(name, "\x00"))) // neighbours stay together
	key := x.prefix(h.Sum32()%16) + name
	x.reach(key, adding)
	_, err := ks.Put(ctx, []byte(key), s.value(key))
	switch {
	case err == nil:
		x.reach(key, added)
	case !driver.Unknown(err):
		x.reach(key, never)
	}
	return err
}

func (s *Sets) remove(ctx context.Context, run *driver.Run, ks *driver.Keyspace, x *set,
	random *rand.Rand) error {
	x.mu.Lock()
	if len(x.mu.kept) == 0 {
		x.mu.Unlock()
		return nil
	}
	i := random.IntN(len(x.mu.kept))
	key := x.mu.kept[i]
	x.mu.kept = slices.Delete(x.mu.kept, i, i+1)
	x.mu.elements[key] = removing
	x.mu.Unlock()
	existed, err := ks.Delete(ctx, []byte(key))
	switch {
	case err == nil:
		if !existed {
			run.Violation("%s: %q was acknowledged, and its only deletion found nothing",
				s.Keyspace, key)
		}
		x.reach(key, removed)
	case !driver.Unknown(err):
		x.reach(key, added)
	}
	return err
}
