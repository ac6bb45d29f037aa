package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/bench"
	"github.com/tidemarkdb/tidemark/bench/kvtarget"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvprom"
)

// txnFlags are the flags of the transactional benchmarks.
type txnFlags struct {
	benchFlags
	keysPerTxn         int
	reads, writes      int
	contention, audits float64
	accounts, counters int
	lock, commitWait   bool
}

const afterTransactions = `
Below the table the report says how many attempts had to run again and what was in their way
(conflict: what was read had changed; wounded: an older transaction wanted a lock), how many commits
took one phase and how many two, and how even it went for the clients: the throughput of the slowest
compared with the median client, and the longest wait compared with the median.`

func (a *app) benchTxnCommand() *cobra.Command {
	var f txnFlags
	cmd := &cobra.Command{
		Use:   "txn",
		Short: "Run transactions over several keys and partitions",
		Long: `Run transactions that each read --reads and write --writes of --keys-per-txn
different keys, which lie in --partitions-per-txn partitions. The reads take the keys from the first
on, the writes from the last back, so by default all keys are read and then written. With --writes 0
the transactions are snapshots.

The keys of a partition are drawn with the skew --contention. With 0 all keys are equally likely; up
to 0.99 the probability of the key of rank r is proportional to 1/r^contention, as in YCSB with
0.99. Fewer --records cause more contention too.
` + afterTransactions,
		Example: `  tidemark bench txn --keys-per-txn 4 --partitions-per-txn 2 --contention 0.5
  tidemark bench txn --keys-per-txn 10 --partitions-per-txn 8 --reads 10 --writes 2 --commit-wait
  tidemark bench txn --records 100 --for-update --clients 64`,
		Args: arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			if err := cmp.Or(
				argument.AtLeast("keys-per-txn", f.keysPerTxn, 1),
				argument.AtLeast("partitions-per-txn", f.partitionsPerTxn, 1),
				argument.NoneOrAll("reads", f.reads), argument.NoneOrAll("writes", f.writes),
			); err != nil {
				return err
			}
			none := func(n int) int {
				if n == 0 {
					return -1
				}
				return max(n, 0) // -1: all
			}
			return a.benchTransactions(ctx, f, &bench.Mixed{
				KeysPerTxn: f.keysPerTxn, PartitionsPerTxn: f.partitionsPerTxn,
				Reads: none(f.reads), Writes: none(f.writes),
				Contention: f.contention, Lock: f.lock,
			})
		}),
	}
	flags := cmd.Flags()
	flags.IntVar(&f.keysPerTxn, "keys-per-txn", 4, "different keys of a transaction")
	flags.IntVar(&f.partitionsPerTxn, "partitions-per-txn", 2, "partitions that they lie in")
	flags.IntVar(&f.reads, "reads", -1, "how many of the keys are read; -1 is all")
	flags.IntVar(&f.writes, "writes", -1, "how many of the keys are written; -1 is all")
	flags.Float64Var(&f.contention, "contention", 0, "skew of the keys, at least 0 and below 1")
	flags.Uint64Var(&f.records, "records", 100_000, "number of records")
	flags.IntVar(&f.valueSize, "value-size", 256, "bytes in a value")
	flags.BoolVar(&f.skipLoad, "skip-load", false,
		"the records are there from an earlier run: do not load them")
	return a.transactionFlags(cmd, &f, 16)
}

func (a *app) benchBankCommand() *cobra.Command {
	var f txnFlags
	cmd := &cobra.Command{
		Use:   "bank",
		Short: "Move money between accounts, and see that none is lost",
		Long: `Move money between accounts: a transfer reads two accounts and writes both; an audit
adds up all accounts at one timestamp. The accounts begin with 1000 each, and lie in all partitions
of the keyspace. An audit that finds another sum counts as an error. If the sum is wrong at the end,
the exit code is 1.
` + afterTransactions,
		Example: `  tidemark bench bank --clients 64 --duration 30s
  tidemark bench bank --accounts 10 --for-update --commit-wait`,
		Args: arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			if err := argument.Between("accounts", f.accounts, 2, bench.MaxAccounts); err != nil {
				return err
			}
			return a.benchTransactions(ctx, f,
				&bench.Bank{Accounts: f.accounts, Audits: f.audits, Lock: f.lock})
		}),
	}
	cmd.Flags().IntVar(&f.accounts, "accounts", 100, "number of accounts")
	cmd.Flags().Float64Var(&f.audits, "audits", 0.05,
		"the part of all transactions that are audits, 0 to 1")
	f.records = 1
	return a.transactionFlags(cmd, &f, 64)
}

func (a *app) benchCountersCommand() *cobra.Command {
	var f txnFlags
	cmd := &cobra.Command{
		Use:   "counters",
		Short: "Increment counters, and see that no increment is lost",
		Long: `Increment counters: a transaction reads a counter and writes the value plus one.
Counters begin with 0. If the counters do not have the sum of all increments at the end, the exit
code is 1.
` + afterTransactions,
		Example: `  tidemark bench counters --clients 64
  tidemark bench counters --counters 10 --for-update=false`,
		Args: arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			if err := argument.Between("counters", f.counters, 1, bench.MaxAccounts); err != nil {
				return err
			}
			return a.benchTransactions(ctx, f, &bench.Counters{Counters: f.counters, Lock: f.lock})
		}),
	}
	cmd.Flags().IntVar(&f.counters, "counters", 1, "number of counters")
	f.records, f.lock = 1, true
	return a.transactionFlags(cmd, &f, 64)
}

// transactionFlags adds the flags that all transactional benchmarks have.
func (a *app) transactionFlags(cmd *cobra.Command, f *txnFlags, clients int) *cobra.Command {
	flags := cmd.Flags()
	f.common(cmd, clients)
	flags.BoolVar(&f.lock, "for-update", f.lock,
		"lock a key that will be written as it is read, as GetForUpdate does")
	flags.BoolVar(&f.commitWait, "commit-wait", false,
		"commits wait until every clock has passed them")
	return a.printing(a.client(cmd))
}

func (a *app) benchTransactions(ctx context.Context, f txnFlags,
	w bench.TransactionWorkload) error {
	cfg, err := f.config(bench.Workload{})
	if err == nil {
		err = argument.FlagError(bench.CheckTransactions(w, cfg))
	}
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	return a.withBench(ctx, f.benchFlags, []kv.Option{kvprom.Metrics(registry)},
		func(client *kv.Client) error {
			var options []kv.TxnOption
			if f.commitWait {
				options = append(options, kv.CommitWait())
			}
			cfg.Classify = classifyTransaction
			stop := a.benchProgress(&cfg)
			result, err := bench.RunTransactions(ctx,
				kvtarget.NewTransactor(client, client.Keyspace(f.keyspace), registry, options...), w, cfg)
			stop()
			if result == nil {
				return argument.FlagError(err)
			}
			return errors.Join(a.showBench(result), err)
		})
}

// classifyTransaction recognizes a wrong sum before it looks at the SDK's errors.
func classifyTransaction(err error) string {
	if errors.Is(err, bench.ErrWrongTotal) {
		return "wrong total"
	}
	return kvtarget.Classify(err)
}

// common adds the flags that every benchmark has.
func (f *benchFlags) common(cmd *cobra.Command, clients int) {
	flags := cmd.Flags()
	flags.StringVar(&f.keyspace, "keyspace", defaultBenchKeyspace, "keyspace to work on")
	flags.StringVar(&f.partitions, "partitions", "hash:8",
		"how to make the keyspace \""+defaultBenchKeyspace+"\" if it does not exist: hash:N or range")
	flags.IntVar(&f.clients, "clients", clients, "closed loops at once")
	flags.DurationVar(&f.duration, "duration", 10*time.Second, "how long to measure")
	flags.DurationVar(&f.warmUp, "warm-up", 2*time.Second, "how long to run before measuring")
	flags.Uint64Var(&f.seed, "seed", 1, "the same seed gives the same operations")
	flags.DurationVar(&f.operationTimeout, "operation-timeout", 10*time.Second,
		"after how long an operation counts as failed")
	flags.IntVar(&f.connections, "connections", 1, "connections to each node")
	flags.StringVar(&f.cpuProfile, "cpu-profile", "",
		"write a processor profile of the clients to this `file`")
}
