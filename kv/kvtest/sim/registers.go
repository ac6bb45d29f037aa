package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/bench/history"
	"github.com/tidemarkdb/tidemark/kv"
)

// Registers reads, writes, deletes and compares-and-swaps a few keys; every value is written once. The history of each key
// must be linearisable. The keys change every few seconds, so that no history becomes too long to check.
type Registers struct {
	// Keyspace is created with so many hash Partitions.
	Keyspace   string
	Partitions int
	// Keys is how many there are at a time; Age how long they are used.
	Keys int
	Age  time.Duration
	// Pause is the longest rest between two operations of a client.
	Pause time.Duration
	// Parallel is the number of clients that do everything, Readers that of those that only read: a client whose write hangs at
	// a leader that was cut off reads nothing meanwhile.
	Parallel, Readers int
}

// Name implements Workload.
func (r *Registers) Name() string { return "registers in " + r.Keyspace }

// Clients implements Workload.
func (r *Registers) Clients() int { return r.Parallel + r.Readers }

// Setup implements Workload.
func (r *Registers) Setup(ctx context.Context, w *World) error {
	client, err := w.Cluster.Open(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.CreateKeyspace(ctx, r.Keyspace, kv.Hash(r.Partitions))
	return err
}

// Drive implements Workload.
func (r *Registers) Drive(ctx context.Context, w *World, number int, client *kv.Client, random *rand.Rand) {
	ks := client.Keyspace(r.Keyspace)
	last := make(map[string]history.State)
	for n := 0; rest(ctx, random, r.Pause); n++ {
		key := fmt.Sprintf("%s/%d/%d", r.Keyspace, random.IntN(r.Keys), w.elapsed()/r.Age)
		r.operate(ctx, w, ks, number, key, fmt.Sprintf("%d.%d", number, n), last, random)
	}
}

func (r *Registers) operate(ctx context.Context, w *World, ks *kv.Keyspace, number int, key, value string, last map[string]history.State, random *rand.Rand) {
	ctx, cancel := patience(ctx, random)
	defer cancel()
	o := history.Operation{Client: number, Key: key}
	n := random.IntN(100)
	if number >= r.Parallel {
		n = 0
		ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
	}
	switch {
	case n < 40:
		p := w.History.Begin(o)
		pair, err := ks.Get(ctx, []byte(key))
		w.Count("get", ignoreNotFound(err))
		switch {
		case err == nil:
			last[key] = history.Value(string(pair.Value))
			p.Got(last[key])
		case errors.Is(err, kv.ErrNotFound):
			last[key] = history.Absent
			p.Got(history.Absent)
		default:
			p.Unknown()
		}
	case n < 65:
		o.Kind, o.New = history.Put, history.Value(value)
		p := w.History.Begin(o)
		_, err := ks.Put(ctx, []byte(key), []byte(value))
		w.Count("put", err)
		if err != nil {
			failed(p, err)
			return
		}
		p.Put()
	case n < 72:
		o.Kind = history.Delete
		p := w.History.Begin(o)
		existed, err := ks.Delete(ctx, []byte(key))
		w.Count("delete", err)
		if err != nil {
			failed(p, err)
			return
		}
		p.Deleted(existed)
	default:
		o.Kind, o.Expected, o.New = history.CompareAndSwap, last[key], history.Value(value)
		replacement := kv.Set([]byte(value))
		if random.IntN(8) == 0 {
			o.New, replacement = history.Absent, kv.DeleteIt
		}
		expect := kv.ExpectAbsent()
		if o.Expected.Present {
			expect = kv.ExpectValue([]byte(o.Expected.Value))
		}
		p := w.History.Begin(o)
		swap, err := ks.CompareAndSwap(ctx, []byte(key), expect, replacement)
		w.Count("compare-and-swap", err)
		switch {
		case err != nil:
			failed(p, err)
		case swap.Swapped:
			last[key] = o.New
			p.Swapped()
		case swap.Current.Exists():
			last[key] = history.Value(string(swap.Current.Value))
			p.NotSwapped(last[key])
		default:
			last[key] = history.Absent
			p.NotSwapped(history.Absent)
		}
	}
}

func ignoreNotFound(err error) error {
	if errors.Is(err, kv.ErrNotFound) {
		return nil
	}
	return err
}

// Check implements Workload: the last value of every key belongs to its history.
func (r *Registers) Check(ctx context.Context, w *World, client *kv.Client) error {
	found := make(map[string]history.State)
	ks := client.Keyspace(r.Keyspace)
	pending := make(map[string]history.Pending)
	for _, o := range w.History.Operations() {
		if !strings.HasPrefix(o.Key, r.Keyspace+"/") {
			continue
		}
		if _, ok := pending[o.Key]; !ok {
			pending[o.Key] = w.History.Begin(history.Operation{Client: -1, Key: o.Key})
		}
	}
	for pair, err := range ks.Scan(ctx, kv.All()) {
		if err != nil {
			return fmt.Errorf("scanning at the end: %w", err)
		}
		found[string(pair.Key)] = history.Value(string(pair.Value))
	}
	for key, p := range pending {
		p.Got(found[key])
	}
	return nil
}
