package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
)

func main() {
	rounds := flag.Int("rounds", 2000, "how often each kind of operation is done")
	warmUp := flag.Int("warm-up", 200, "how often before that")
	dir := flag.String("dir", "", "where the servers' data goes (default: the system's temporary directory)")
	endpoints := flag.String("endpoint", "", "measure the cluster at this `address` instead of one of its own")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *rounds, *warmUp, *dir, *endpoints)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "txncost:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, rounds, warmUp int, dir, endpoint string) (err error) {
	addresses := []string{endpoint}
	if endpoint == "" {
		if dir, err = os.MkdirTemp(dir, "txncost"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		cluster, err := embedded.StartCluster(ctx, embedded.ClusterConfig{
			Dir: dir, Nodes: 3, Cores: 1, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		defer cluster.Close()
		if err := cluster.WaitReady(ctx); err != nil {
			return err
		}
		addresses = cluster.Endpoints()
	}
	client, err := kv.Open(ctx, addresses)
	if err != nil {
		return err
	}
	defer client.Close()
	operations, err := prepare(ctx, client)
	if err != nil {
		return err
	}
	for n := range warmUp + rounds {
		for _, o := range operations {
			began := time.Now()
			if err := o.do(ctx, n); err != nil {
				return fmt.Errorf("%s: %w", o.name, err)
			}
			if n >= warmUp {
				_ = o.latency.RecordValue(max(1, time.Since(began).Microseconds())) // an hour is not exceeded
			}
		}
	}
	report(out, operations)
	return nil
}

// operation is one kind. If goal is not 0, its median is to be at most that many times the one of the operation against.
type operation struct {
	name    string
	do      func(ctx context.Context, n int) error
	against string
	goal    float64
	latency *hdrhistogram.Histogram
}

const (
	keyspace   = "txncost"
	partitions = 8
)

// prepare makes the keyspace and its keys, and the operations over them.
func prepare(ctx context.Context, client *kv.Client) ([]*operation, error) {
	ks, err := client.CreateKeyspace(ctx, keyspace, kv.Hash(partitions))
	if errors.Is(err, kv.ErrKeyspaceExists) {
		ks, err = client.Keyspace(keyspace), nil
	}
	if err != nil {
		return nil, err
	}
	// Each kind of operation has keys of its own: none meets what another leaves to be cleared up.
	const perPartition = 20
	var by [][][]byte
	places := make(map[uint64]int)
	for n, full := 0, 0; full < partitions; n++ {
		key := fmt.Appendf(nil, "key-%06d", n)
		id, err := ks.PartitionOf(ctx, key)
		if err != nil {
			return nil, err
		}
		at, known := places[id]
		if !known {
			at = len(by)
			places[id] = at
			by = append(by, nil)
		}
		if len(by[at]) == perPartition {
			continue
		}
		if by[at] = append(by[at], key); len(by[at]) == perPartition {
			full++
		}
		if _, err := ks.Put(ctx, key, value); err != nil {
			return nil, err
		}
	}
	spread := func(count, from int) (all [][]byte) {
		for i := range count {
			all = append(all, by[i%partitions][from+i/partitions])
		}
		return all
	}
	write := func(all [][]byte) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			_, err := client.Update(ctx, func(tx *kv.Txn) error {
				for _, key := range all {
					if err := tx.Put(ks, key, value); err != nil {
						return err
					}
				}
				return nil
			})
			return err
		}
	}
	operations := []*operation{
		{name: "put", do: func(ctx context.Context, n int) error {
			_, err := ks.Put(ctx, by[n%partitions][15], value)
			return err
		}},
		{name: "get", do: func(ctx context.Context, n int) error {
			_, err := ks.Get(ctx, by[n%partitions][16])
			return err
		}},
		{name: "transaction of 10 keys in 1 partition", do: write(by[0][:10]), against: "put", goal: 1.3},
		{name: "transaction over 2 partitions", do: write(spread(2, 10)), against: "put", goal: 2.5},
		{name: "transaction over 8 partitions", do: write(spread(8, 11)), against: "put", goal: 3.5},
		{name: "read and write over 2 partitions", do: func(ctx context.Context, _ int) error {
			_, err := client.Update(ctx, func(tx *kv.Txn) error {
				for _, key := range [][]byte{by[0][12], by[1][12]} {
					if _, err := tx.Get(ctx, ks, key); err != nil {
						return err
					}
					if err := tx.Put(ks, key, value); err != nil {
						return err
					}
				}
				return nil
			})
			return err
		}},
		{name: "snapshot of 10 keys over 8 partitions", do: func(ctx context.Context, _ int) error {
			return client.View(ctx, func(s *kv.Snapshot) error {
				_, err := s.BatchGet(ctx, ks, spread(10, 13))
				return err
			})
		}, against: "get", goal: 1.5},
	}
	for _, o := range operations {
		o.latency = hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3)
	}
	return operations, nil
}

var value = make([]byte, 256)

func report(out io.Writer, operations []*operation) {
	median := func(o *operation) float64 { return float64(o.latency.ValueAtQuantile(50)) }
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.AppendHeader(table.Row{"operation", "median µs", "p99 µs", "times", "of", "goal"})
	for _, o := range operations {
		row := table.Row{o.name, median(o), o.latency.ValueAtQuantile(99), "", "", ""}
		for _, base := range operations {
			if base.name == o.against {
				row[3], row[4], row[5] = fmt.Sprintf("%.2f", median(o)/median(base)), base.name, o.goal
			}
		}
		t.AppendRow(row)
	}
	t.RenderMarkdown()
}
