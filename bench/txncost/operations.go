package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tidemarkdb/tidemark/kv"
)

// operation is one kind of operation. If goal is not 0, its median should be at most goal times the
// median of the operation against. Without a goal, that operation is only for comparison.
type operation struct {
	name    string
	do      func(ctx context.Context, n int) error
	against string
	goal    float64
	latency *hdrhistogram.Histogram
}

// takeTurns runs all operations in turns, repeatedly.
func takeTurns(ctx context.Context, c *config, operations []*operation) error {
	turns := slices.DeleteFunc(slices.Clone(operations),
		func(o *operation) bool { return !c.only.MatchString(o.name) })
	for _, o := range operations {
		o.latency = hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3)
	}
	for n := range c.warmUp + c.rounds {
		rand.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
		for _, o := range turns {
			select {
			case <-time.After(c.pause):
			case <-ctx.Done():
				return ctx.Err()
			}
			began := time.Now()
			if err := o.do(ctx, n); err != nil {
				return fmt.Errorf("%s: %w", o.name, err)
			}
			if n >= c.warmUp {
				// an hour is not exceeded
				_ = o.latency.RecordValue(max(1, time.Since(began).Microseconds()))
			}
		}
	}
	return nil
}

const (
	keyspace   = "txncost"
	partitions = 8
	// perPartition is the number of keys in each partition.
	perPartition = 20
)

var value = make([]byte, 256)

// places has keys by partition. Each kind of operation has its own keys, so that it is not affected
// by clean-up work of other operations.
type places struct {
	ks *kv.Keyspace
	by [][][]byte
	comparison
}

// comparison has the additional measurements of -what cost.
type comparison struct {
	// nodes receives the empty messages.
	nodes *nodes
	bare  *bare
	// far is a client whose messages and answers together take trip longer. It is nil if there is
	// none.
	far  *kv.Client
	trip time.Duration
}

// compare makes the comparison. end ends it.
func (p *places) compare(ctx context.Context, c *config, client *kv.Client, addresses []string) (
	end func(), err error) {
	var ends []func()
	end = func() {
		for _, f := range slices.Backward(ends) {
			f()
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	if p.nodes, err = reach(ctx, client); err != nil {
		return nil, err
	}
	ends = append(ends, p.nodes.close)
	dir, err := os.MkdirTemp(c.dir, "txncost-bare")
	if err != nil {
		return nil, err
	}
	ends = append(ends, func() { _ = os.RemoveAll(dir) })
	if p.bare, err = startBare(ctx, dir); err != nil {
		return nil, err
	}
	ends = append(ends, p.bare.close)
	if p.trip = c.trip; p.trip == 0 {
		return end, nil
	}
	w, err := newWire(p.trip)
	if err != nil {
		return nil, err
	}
	ends = append(ends, w.close)
	if p.far, err = kv.Open(ctx, addresses, kv.Dialer(w.dial)); err != nil {
		return nil, err
	}
	ends = append(ends, func() { _ = p.far.Close() }) // no data can be lost
	return end, nil
}

// fill creates the keyspace and its keys.
func fill(ctx context.Context, client *kv.Client) (*places, error) {
	ks, err := client.CreateKeyspace(ctx, keyspace, kv.Hash(partitions))
	if errors.Is(err, kv.ErrKeyspaceExists) {
		ks, err = client.Keyspace(keyspace), nil
	}
	if err != nil {
		return nil, err
	}
	p := &places{ks: ks}
	at := make(map[uint64]int)
	for n, full := 0, 0; full < partitions; n++ {
		key := fmt.Appendf(nil, "key-%06d", n)
		id, err := ks.PartitionOf(ctx, key)
		if err != nil {
			return nil, err
		}
		i, known := at[id]
		if !known {
			i = len(p.by)
			at[id] = i
			p.by = append(p.by, nil)
		}
		if len(p.by[i]) == perPartition {
			continue
		}
		if p.by[i] = append(p.by[i], key); len(p.by[i]) == perPartition {
			full++
		}
		if _, err := ks.Put(ctx, key, value); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// spread returns count keys, from the partitions in turn, beginning with key number from of each.
func (p *places) spread(count, from int) (all [][]byte) {
	for i := range count {
		all = append(all, p.by[i%partitions][from+i/partitions])
	}
	return all
}

// write returns an operation that writes keys in a transaction.
func (p *places) write(client *kv.Client, all [][]byte, options ...kv.TxnOption) func(
	context.Context, int) error {
	return func(ctx context.Context, _ int) error {
		_, err := client.Update(ctx, func(tx *kv.Txn) error {
			for _, key := range all {
				if err := tx.Put(p.ks, key, value); err != nil {
					return err
				}
			}
			return nil
		}, options...)
		return err
	}
}

// get returns an operation that reads one key, each time in another partition.
func (p *places) get(client *kv.Client) func(context.Context, int) error {
	ks := client.Keyspace(keyspace)
	return func(ctx context.Context, n int) error {
		_, err := ks.Get(ctx, p.by[n%partitions][16])
		return err
	}
}

// snapshot returns an operation that reads ten keys at one moment.
func (p *places) snapshot(client *kv.Client) func(context.Context, int) error {
	ks := client.Keyspace(keyspace)
	return func(ctx context.Context, _ int) error {
		return client.View(ctx, func(s *kv.Snapshot) error {
			_, err := s.BatchGet(ctx, ks, p.spread(10, 13))
			return err
		})
	}
}

// costs returns the operations of -what cost.
func costs(client *kv.Client, p *places) []*operation {
	operations := []*operation{
		{name: "put", do: func(ctx context.Context, n int) error {
			_, err := p.ks.Put(ctx, p.by[n%partitions][15], value)
			return err
		}},
		{name: "get", do: p.get(client)},
		{name: "transaction of 10 keys in 1 partition", do: p.write(client, p.by[0][:10]),
			against: "put", goal: 1.3},
		{name: "transaction over 2 partitions", do: p.write(client, p.spread(2, 10)),
			against: "put", goal: 2.5},
		{name: "transaction over 8 partitions", do: p.write(client, p.spread(8, 11)),
			against: "put", goal: 3.5},
		{name: "read and write over 2 partitions", do: func(ctx context.Context, _ int) error {
			_, err := client.Update(ctx, func(tx *kv.Txn) error {
				for _, key := range [][]byte{p.by[0][12], p.by[1][12]} {
					if _, err := tx.Get(ctx, p.ks, key); err != nil {
						return err
					}
					if err := tx.Put(p.ks, key, value); err != nil {
						return err
					}
				}
				return nil
			})
			return err
		}},
		{name: "snapshot of 10 keys over 8 partitions", do: p.snapshot(client), against: "get",
			goal: 1.5},
		// These are lower limits of the costs of a get and a snapshot on this machine.
		{name: "empty message to 1 node", do: p.nodes.ask(1), against: "get"},
		{name: "empty message to each of 3 nodes", do: p.nodes.ask(3), against: "get"},
		{name: "1 key of 1 bare server", do: p.bare.ask(1, 1), against: "get"},
		{name: "10 keys of 3 bare servers", do: p.bare.ask(3, 10), against: "get"},
	}
	if p.far != nil {
		far := fmt.Sprintf("get, %s away", p.trip)
		operations = append(operations, &operation{name: far, do: p.get(p.far)},
			&operation{name: fmt.Sprintf("snapshot of 10 keys over 8 partitions, %s away", p.trip),
				do: p.snapshot(p.far), against: far})
	}
	return operations
}

// goalBound is the clock bound for which there is a goal.
const goalBound = time.Millisecond

// waits returns the operations of -what wait for a clock bound.
func waits(bound time.Duration) func(*kv.Client, *places) []*operation {
	const plain = "commit over 2 partitions"
	goal := 0.0
	if bound == goalBound {
		goal = 1.1
	}
	return func(client *kv.Client, p *places) []*operation {
		return []*operation{
			{name: plain, do: p.write(client, p.spread(2, 10))},
			{name: fmt.Sprintf("%s, clocks %v off at most, with commit wait", plain, bound),
				do: p.write(client, p.spread(2, 11), kv.CommitWait()), against: plain, goal: goal},
		}
	}
}

func report(out io.Writer, operations []*operation) {
	median := func(o *operation) float64 { return float64(o.latency.ValueAtQuantile(50)) }
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.AppendHeader(table.Row{"operation", "median µs", "p99 µs", "times", "of", "goal"})
	for _, o := range operations {
		if o.latency.TotalCount() == 0 {
			continue
		}
		row := table.Row{o.name, median(o), o.latency.ValueAtQuantile(99), "", "", ""}
		for _, base := range operations {
			if base.name == o.against && base.latency.TotalCount() > 0 {
				row[3], row[4] = fmt.Sprintf("%.2f", median(o)/median(base)), base.name
				if o.goal != 0 {
					row[5] = o.goal
				}
			}
		}
		t.AppendRow(row)
	}
	t.RenderMarkdown()
}
