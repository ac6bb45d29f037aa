package committer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Whatever the network does: what was reported as committed is there, all of it and at its
// timestamp; what was reported as failed is not; what is unknown is there as a whole or not at all.
// And what every committed transaction has read is what the transactions before it in timestamp
// order wrote.
func TestChaos(t *testing.T) {
	for seed := range uint64(15) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { chaos(t, seed) })
	}
}

func chaos(t *testing.T, seed uint64) {
	bubble(t, seed, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		s.loseRequest, s.loseAnswer, s.repeat, s.giveUp = 0.02, 0.03, 0.05, 0.3
		s.longest, s.split = 20*time.Millisecond, true
		var all []Key
		for i := range 4 {
			all = append(all, k1(fmt.Sprintf("x%d", i)), k2(fmt.Sprintf("a%d", i*2)))
		}
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		var mu sync.Mutex
		var attempts []*attempt
		var clients sync.WaitGroup
		for n := range 6 {
			clients.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(n)))
				for ctx.Err() == nil {
					a := one(ctx, c, s, all, random)
					mu.Lock()
					attempts = append(attempts, a)
					mu.Unlock()
				}
			})
		}
		clients.Wait()
		c.Close()
		time.Sleep(10 * time.Second) // whatever is on its way arrives
		s.sweep()
		time.Sleep(4 * time.Second)
		s.sweep()
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := s.locks(); n > 0 {
			t.Errorf("%d locks are left", n)
		}
		check(t, s, attempts)
	})
}

// one runs one transaction: reads some keys, locks some of those, writes some.
func one(ctx context.Context, c *Committer, s *fake, all []Key, random *rand.Rand) *attempt {
	a := &attempt{read: make(map[string]string), writes: make(map[string]string)}
	ctx, leave := context.WithCancel(ctx)
	defer leave() // a transaction that is left alone sends no heartbeats
	x, err := c.Begin(ctx)
	if err != nil {
		a.err = err
		return a
	}
	a.id = string(x.ID())
	reads := Reads{At: s.now()}
	if random.IntN(4) == 0 { // lock a key first, and read as of that
		k := all[random.IntN(len(all))]
		got, err := x.Lock(ctx, reads.At, false, k)
		if err != nil {
			x.Abort()
			a.err = err
			return a
		}
		reads.At = hlc.Max(reads.At, got[0].At)
		reads.Locked = append(reads.Locked, k)
		a.read[internal(k.Keyspace, k.Key)] = string(got[0].Value.Value)
	}
	for range 1 + random.IntN(3) {
		k := all[random.IntN(len(all))]
		id := internal(k.Keyspace, k.Key)
		if _, before := a.read[id]; before {
			continue
		}
		a.read[id], _ = s.get(k, reads.At)
		if random.IntN(3) == 0 && k.Keyspace == 2 {
			reads.Spans = append(reads.Spans, Span{2, AllPartitions, keys.Point(k.Key)})
		} else {
			reads.Keys = append(reads.Keys, k)
		}
	}
	var writes []Write
	for _, i := range random.Perm(len(all))[:1+random.IntN(3)] {
		value := fmt.Sprintf("%x-%d", a.id, i)
		writes = append(writes, put(all[i], value))
		a.writes[internal(all[i].Keyspace, all[i].Key)] = value
	}
	switch random.IntN(20) {
	case 0:
		x.Abort()
		a.err = errors.New("rolled back")
	case 1:
		return &attempt{id: a.id, err: errors.New("left alone")}
	default:
		limited, cancel := context.WithTimeout(ctx,
			time.Duration(20+random.IntN(3000))*time.Millisecond)
		defer cancel()
		a.at, a.err = x.Commit(limited, writes, reads, random.IntN(2) == 0)
		for tries := random.IntN(3); tries > 0 && errors.Is(a.err, ErrOutcomeUnknown); tries-- {
			bounded, enough := context.WithTimeout(ctx,
				time.Duration(20+random.IntN(3000))*time.Millisecond)
			a.at, a.err = x.Outcome(bounded)
			enough()
		}
	}
	return a
}

func check(t *testing.T, s *fake, attempts []*attempt) {
	t.Helper()
	// Where each transaction's writes are.
	where := make(map[string]map[string]hlc.Timestamp)
	for id, data := range s.data {
		for key, versions := range data.Versions {
			k := internal(id, []byte(key))
			for _, v := range versions {
				if where[v.Transaction] == nil {
					where[v.Transaction] = make(map[string]hlc.Timestamp)
				}
				if _, twice := where[v.Transaction][k]; twice {
					t.Errorf("transaction %x has written %s twice", v.Transaction, k)
				}
				where[v.Transaction][k] = v.At
			}
		}
	}
	var committed []*attempt
	outcomes := make(map[string]int)
	for _, a := range attempts {
		there := where[a.id]
		unknown := errors.Is(a.err, ErrOutcomeUnknown)
		switch {
		case a.err == nil:
			outcomes["committed"]++
			if len(there) != len(a.writes) {
				t.Errorf("transaction %x is committed and has %d of %d writes",
					a.id, len(there), len(a.writes))
			}
		case unknown:
			outcomes["unknown"]++
			if len(there) != 0 && len(there) != len(a.writes) {
				t.Errorf("transaction %x is there by halves", a.id)
			}
		default:
			outcomes["failed"]++
			if len(there) != 0 {
				t.Errorf("transaction %x failed with %v, and has writes", a.id, a.err)
			}
		}
		for k, at := range there {
			if a.err == nil && at != a.at {
				t.Errorf("transaction %x was committed at %s and has written %s at %s", a.id, a.at, k, at)
			}
			a.at = at
		}
		if len(there) > 0 {
			committed = append(committed, a)
		}
	}
	slices.SortFunc(committed, func(a, b *attempt) int { return a.at.Compare(b.at) })
	state := make(map[string]string)
	for _, a := range committed {
		for k, v := range a.read {
			if state[k] != v {
				t.Errorf("transaction %x at %s read %q of %s, which was %q", a.id, a.at, v, k, state[k])
			}
		}
		for k, v := range a.writes {
			state[k] = v
		}
	}
	if outcomes["committed"] < 50 {
		t.Errorf("too little was committed: %v", outcomes)
	}
	t.Log(outcomes, s.counts) // the caller holds the lock
}
