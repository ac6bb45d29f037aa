package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/bench"
	"github.com/tidemarkdb/tidemark/bench/kvtarget"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// defaultBenchKeyspace is created if it does not exist. A keyspace with any other name must exist.
const defaultBenchKeyspace = "bench"

type benchFlags struct {
	keyspace, keys     string
	clients, valueSize int
	records, seed      uint64
	duration, warmUp   time.Duration
	operationTimeout   time.Duration
	skipLoad           bool
	scanRows           int
	partitions         string
	connections        int
	workload           string
	cpuProfile         string
	// partitionsPerTxn is 0 if transactions may use any number of partitions.
	partitionsPerTxn int
	// fresh: any replica may answer the reads. It is for get and scan.
	fresh freshFlags
}

func (a *app) benchCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "bench",
		Short: "Measure a cluster",
		Long: `Measure a cluster with a fixed number of clients. Each client sends its next
operation when the previous one has been answered. The records are loaded first, then the workload
runs unmeasured for --warm-up, then measured for --duration.

The report has throughput, mean, 50th, 95th and 99th percentile and maximum of the latency, and the
errors by class. A failed operation counts in no latency; an operation that began in the measured
time counts even if it ended after it. The exit code is 1 if all operations failed.

The keyspace is "` + defaultBenchKeyspace + `", made with --partitions if it does not exist;
another one (--keyspace) must exist, and is written to.`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(
		a.benchOf("put", "Write random keys, all as likely",
			`  tidemark bench put --clients 256 --duration 30s`,
			func(benchFlags) (bench.Workload, error) { return bench.Put(), nil }),
		a.benchOf("get", "Read random keys, all as likely",
			`  tidemark bench get --clients 64 --records 1000000
  tidemark bench get --nearest --locality region=eu,zone=a`,
			func(benchFlags) (bench.Workload, error) { return bench.Get(), nil }),
		a.benchOf("scan", "Read runs of rows from random keys",
			`  tidemark bench scan --clients 64 --rows 100`,
			func(f benchFlags) (bench.Workload, error) { return bench.ScanOf(f.scanRows), nil }),
		a.benchOf("ycsb", "Run one of the standard YCSB workloads",
			`  tidemark bench ycsb --workload a --clients 64
  tidemark bench ycsb --workload e --output json`,
			func(f benchFlags) (bench.Workload, error) { return bench.YCSB(f.workload) }),
		a.benchTxnCommand(), a.benchBankCommand(), a.benchCountersCommand(),
	)
	return root
}

func (a *app) benchOf(name, short, example string,
	workload func(benchFlags) (bench.Workload, error)) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use: name, Short: short, Example: example,
		Args: arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			w, err := workload(f)
			if err != nil {
				return exit.Usagef("%w", err)
			}
			return a.bench(ctx, f, w)
		}),
	}
	flags := cmd.Flags()
	f.common(cmd, 16)
	flags.Uint64Var(&f.records, "records", 100_000, "number of records")
	flags.IntVar(&f.valueSize, "value-size", 256, "bytes in a value")
	if name != "put" {
		flags.BoolVar(&f.skipLoad, "skip-load", false,
			"the records are there from an earlier run: do not load them")
	}
	if name != "ycsb" {
		flags.StringVar(&f.keys, "keys", "uniform",
			"which keys are popular: "+strings.Join(bench.Distributions, ", "))
		_ = cmd.RegisterFlagCompletionFunc("keys",
			cobra.FixedCompletions(bench.Distributions, cobra.ShellCompDirectiveNoFileComp))
	}
	if name == "get" || name == "scan" {
		f.fresh.register(a, cmd)
	}
	switch name {
	case "scan":
		flags.IntVar(&f.scanRows, "rows", 100, "rows of a scan")
	case "ycsb":
		flags.StringVar(&f.workload, "workload", "a",
			"a update heavy, b read mostly, c read only, d read latest, e short ranges, f "+
				"read-modify-write")
		_ = cmd.RegisterFlagCompletionFunc("workload",
			cobra.FixedCompletions([]string{"a", "b", "c", "d", "e", "f"},
				cobra.ShellCompDirectiveNoFileComp))
	}
	return a.printing(a.client(cmd))
}

// config converts the flags to the load generator's configuration. In it, 0 means the default and a
// negative number means none.
func (f *benchFlags) config(w bench.Workload) (bench.Config, error) {
	if f.keys != "" {
		keys, err := bench.ParseDistribution(f.keys)
		if err != nil {
			return bench.Config{}, exit.Usagef("%w", err)
		}
		w.Keys = keys
	}
	if err := cmp.Or(
		argument.AtLeast("clients", f.clients, 1), argument.AtLeast("records", f.records, 1),
		argument.AtLeast("value-size", f.valueSize, 0), argument.AtLeast("seed", f.seed, 1),
		argument.Positive("duration", f.duration), argument.AtLeast("warm-up", f.warmUp, 0),
		argument.Positive("operation-timeout", f.operationTimeout),
		argument.AtLeast("connections", f.connections, 1),
	); err != nil {
		return bench.Config{}, err
	}
	none := func(zero bool) int {
		if zero {
			return -1
		}
		return 1
	}
	return bench.Config{
		Workload: w, Clients: f.clients, Records: f.records, Seed: f.seed, SkipLoad: f.skipLoad,
		ValueSize:        max(f.valueSize, 1) * none(f.valueSize == 0),
		WarmUp:           max(f.warmUp, 1) * time.Duration(none(f.warmUp == 0)),
		Duration:         f.duration,
		OperationTimeout: f.operationTimeout,
	}, nil
}

func (a *app) showBench(result *bench.Result) error {
	format := string(a.format)
	if format == "raw" {
		format = "tsv"
	}
	var report strings.Builder
	var err error
	if format == string(output.Table) {
		err = result.WriteTable(&report, a.width)
	} else {
		err = result.Write(&report, format)
	}
	text := report.String()
	switch {
	case err != nil:
		return err
	case format == string(output.Table):
		text = a.screen().Text(text)
	case format == string(output.TSV) && !a.headers:
		_, text, _ = strings.Cut(text, "\n")
	}
	if _, err := io.WriteString(a.out, text); err != nil {
		return err
	}
	switch {
	case result.Interrupted:
		return exit.Silent(exit.Interrupted)
	case result.AllFailed():
		return fmt.Errorf("%s failed and none succeeded, for example: %s",
			plural(result.Total.Errors, "operation"), result.Total.Failures[0].Example)
	}
	return nil
}

// benchLine returns the line that shows a running benchmark.
func benchLine(p bench.Progress) string {
	var b strings.Builder
	if p.Phase == "load" {
		fmt.Fprintf(&b, "load     %d of %s (%.0f %%), %.0f/s", p.Records,
			plural(p.RecordsTotal, "record"),
			100*float64(p.Records)/float64(max(p.RecordsTotal, 1)), p.Rate)
	} else {
		digits := 0 // digits after the point, as many as the length of the phase needs
		switch {
		case p.Total%(100*time.Millisecond) != 0:
			digits = 3
		case p.Total%time.Second != 0:
			digits = 1
		}
		fmt.Fprintf(&b, "%-8s %3.*f of %.*f s  %8.0f ops/s  mean %s", p.Phase, digits,
			p.Elapsed.Seconds(), digits, p.Total.Seconds(), p.Rate,
			p.Mean.Round(time.Microsecond))
	}
	if p.Errors > 0 {
		fmt.Fprintf(&b, "  %s", plural(p.Errors, "error"))
	}
	return b.String()
}

// benchProgress shows the progress, every second on a terminal and every ten seconds elsewhere.
func (a *app) benchProgress(cfg *bench.Config) (stop func()) {
	line := &progress.Line{Out: a.err, Terminal: a.errTerminal, Width: a.errWidth}
	cfg.Progress = func(p bench.Progress) { line.Show(benchLine(p)) }
	if !a.errTerminal {
		cfg.ProgressInterval = 10 * time.Second
	}
	return line.Stop
}

func (a *app) bench(ctx context.Context, f benchFlags, w bench.Workload) error {
	cfg, err := f.config(w)
	if err == nil {
		err = argument.FlagError(bench.Check(cfg))
	}
	if err != nil {
		return err
	}
	choice, err := f.fresh.choice()
	if err != nil {
		return err
	}
	options := make([]kvtarget.ReadOption, len(choice))
	for i, o := range choice {
		options[i] = o
	}
	return a.withBench(ctx, f, nil, func(client *kv.Client) error {
		cfg.Classify = kvtarget.Classify
		ks := client.Keyspace(f.keyspace)
		target := kvtarget.New(ks, options...)
		stop := a.benchProgress(&cfg)
		if len(options) > 0 && !cfg.SkipLoad {
			if err := loadForReplicas(ctx, client, ks, target, cfg); err != nil {
				stop()
				return err
			}
			cfg.SkipLoad = true
		}
		result, err := bench.Run(ctx, target, cfg)
		stop()
		if err != nil {
			return err
		}
		return a.showBench(result)
	})
}

// loadForReplicas loads the records, and waits until any replica can return them: reads at any
// replica lag about a second behind.
func loadForReplicas(ctx context.Context, client *kv.Client, ks *kv.Keyspace, target bench.Target,
	cfg bench.Config) error {
	if err := bench.Load(ctx, target, cfg); err != nil {
		return err
	}
	for loaded := client.Timestamp(); ; {
		var read kv.ReadInfo
		for _, err := range ks.Scan(ctx, kv.Nearest(), kv.ReadAt(&read), kv.Limit(1)) {
			if err != nil {
				return err
			}
		}
		if !read.At.Less(loaded) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// withBench runs do with a client, after making sure that the keyspace exists.
func (a *app) withBench(ctx context.Context, f benchFlags, options []kv.Option,
	do func(*kv.Client) error) error {
	layout, partitions, err := argument.ParsePartitioning(f.partitions)
	if err != nil {
		return err
	}
	client, err := a.connect(ctx, append(options, kv.ConnectionsPerNode(f.connections))...)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := ensureBenchKeyspace(ctx, client, f, layout, partitions); err != nil {
		return err
	}
	return profiled(f.cpuProfile, func() error { return do(client) })
}

// ensureBenchKeyspace creates the default keyspace of benchmarks. It does not create keyspaces with
// other names. It refuses a keyspace with too few partitions.
func ensureBenchKeyspace(ctx context.Context, client *kv.Client, f benchFlags,
	layout kv.KeyspaceOption,
	partitions int) error {
	info, err := admin.New(client).Keyspace(ctx, f.keyspace)
	there := err == nil
	switch {
	case there:
		partitions = info.Partitions
	case f.keyspace != defaultBenchKeyspace || !errors.Is(err, kv.ErrKeyspaceNotFound):
		return err
	}
	if f.partitionsPerTxn > partitions {
		return exit.Usagef("--partitions-per-txn %d: it is at most the number of partitions of "+
			"keyspace %q, %d", f.partitionsPerTxn, f.keyspace, partitions)
	}
	if there {
		return nil
	}
	_, err = client.CreateKeyspace(ctx, f.keyspace, layout)
	return err
}

// profiled runs do, and writes a processor profile of this process to the file, if the file has a
// name.
func profiled(file string, do func() error) (err error) {
	if file == "" {
		return do()
	}
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("processor profile: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := pprof.StartCPUProfile(out); err != nil {
		return fmt.Errorf("processor profile: %w", err)
	}
	defer pprof.StopCPUProfile()
	return do()
}
