package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/bench"
	"github.com/tidemarkdb/tidemark/bench/kvtarget"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvprom"
)

// contentionConfig configures -what contention.
type contentionConfig struct {
	turns int
	turn  time.Duration
}

const (
	contentionClients = 64
	contentionWarmUp  = time.Second
	// counterSize is the length of a counter's value, and of the values of the puts that are compared
	// with it.
	counterSize = 8
	// Goals: the ratio of increments to puts, and the ratio of the longest wait to the median wait.
	incrementsGoal = 0.25
	waitGoal       = 20
)

// contention has clients increment one counter and put to one key, in turns, with servers in
// separate processes. Then it has them move money.
func contention(ctx context.Context, out io.Writer, c *config) error {
	if c.contention.turns < 1 || c.contention.turn <= 0 {
		return fmt.Errorf("-turns %d -turn %v: there has to be a turn", c.contention.turns,
			c.contention.turn)
	}
	servers, err := startSeparate(ctx, c.dir, 0)
	if err != nil {
		return err
	}
	defer servers.close()
	registry := prometheus.NewRegistry()
	client, err := kv.Open(ctx, servers.Endpoints(), kvprom.Metrics(registry))
	if err != nil {
		return err
	}
	defer client.Close()
	ks, err := client.CreateKeyspace(ctx, keyspace, kv.Hash(partitions))
	if err != nil {
		return err
	}
	store := kvtarget.NewTransactor(client, ks, registry)
	cfg := bench.Config{Clients: contentionClients, WarmUp: contentionWarmUp,
		Duration: c.contention.turn, Classify: kvtarget.Classify}

	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.AppendHeader(table.Row{"turn", "puts to one key, 1/s", "increments of one key, 1/s", "share",
		"goal", "median wait ms", "longest, times", "goal",
		"slowest client, of the median one", "run again"})
	var puts, increments float64
	row := func(name any, put, increment float64, rest ...any) {
		t.AppendRow(append(table.Row{name, fmt.Sprintf("%.0f", put), fmt.Sprintf("%.0f", increment),
			fmt.Sprintf("%.2f", increment/put), incrementsGoal}, rest...))
	}
	for turn := range c.contention.turns {
		put, err := complete(bench.Run(ctx, store, withPuts(cfg)))
		if err != nil {
			return err
		}
		result, err := complete(bench.RunTransactions(ctx, store, &bench.Counters{Lock: true}, cfg))
		if err != nil {
			return err
		}
		puts, increments = puts+put.Total.Throughput, increments+result.Total.Throughput
		row(turn+1, put.Total.Throughput, result.Total.Throughput,
			append([]any{milliseconds(result.Total.P50)}, fairness(result, waitGoal)...)...)
	}
	turns := float64(c.contention.turns)
	row("all", puts/turns, increments/turns)
	t.RenderMarkdown()

	b := table.NewWriter()
	b.SetOutputMirror(out)
	b.AppendHeader(table.Row{"bank", "transfers, 1/s", "median ms", "longest, times", "goal",
		"slowest client, of the median one", "run again", "most attempts of one"})
	for _, w := range []struct {
		name string
		bank bench.Bank
	}{{"reads", bench.Bank{}}, {"locks as it reads", bench.Bank{Lock: true}}} {
		result, err := complete(bench.RunTransactions(ctx, store, &w.bank, cfg))
		if err != nil {
			return err
		}
		b.AppendRow(append(append(table.Row{w.name, fmt.Sprintf("%.0f", result.Total.Throughput),
			milliseconds(result.Total.P50)}, fairness(result, "")...),
			result.Transactions.MostAttempts))
	}
	fmt.Fprintln(out)
	b.RenderMarkdown()
	return nil
}

// withPuts returns the configuration of the puts that are compared with the increments.
func withPuts(c bench.Config) bench.Config {
	c.Workload, c.Records, c.ValueSize = bench.Put(), 1, counterSize
	return c
}

// complete returns an error unless the result covers the whole time and has no errors.
func complete(r *bench.Result, err error) (*bench.Result, error) {
	switch {
	case err != nil:
		return nil, err
	case r.Interrupted:
		return nil, context.Canceled
	case r.Total.Errors > 0:
		return nil, fmt.Errorf("%s: %d operations failed, the first: %s", r.Workload,
			r.Total.Errors, r.Total.Failures[0].Example)
	}
	return r, nil
}

// fairness returns the cells of a row which say how evenly clients were served.
func fairness(r *bench.Result, goal any) []any {
	x := r.Transactions
	return []any{fmt.Sprintf("%.1f", x.LongestWait), goal, fmt.Sprintf("%.2f", x.SlowestShare),
		fmt.Sprintf("%.1f %%", 100*x.RestartShare)}
}

func milliseconds(us int64) string { return fmt.Sprintf("%.1f", float64(us)/1000) }
