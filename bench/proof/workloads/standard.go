package workloads

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/coordination"
	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/isolation"
	"github.com/tidemarkdb/tidemark/kv"
)

// bankAccounts and backupRows are the numbers of rows with money in the standard workloads.
const bankAccounts, backupRows = 6, 40

// Standard returns the standard workloads. Every run needs its own.
func Standard() []driver.Workload {
	return []driver.Workload{
		&Registers{Keyspace: "registers", Partitions: 3, Keys: 4, Age: 10 * time.Second,
			Pause: 150 * time.Millisecond, Parallel: 6, Readers: 4},
		// Most of these partitions sleep.
		&Registers{Keyspace: "sleepy", Partitions: 4, Keys: 4, Age: 60 * time.Second,
			Pause: 12 * time.Second, Parallel: 3, Readers: 2},
		// Between an attempt and its retry there is nearly always another client's write.
		&Registers{Keyspace: "contended", Partitions: 1, Keys: 1, Age: 3 * time.Second,
			Pause: 50 * time.Millisecond, Parallel: 4},
		&Counters{Keys: 8, Pause: 200 * time.Millisecond, Parallel: 4},
		&Rings{Keyspace: "rings", Writers: 2, Readers: 3, Size: 5, Pause: 100 * time.Millisecond,
			ReadPause: 400 * time.Millisecond},
		// The leaders of these partitions are bound by timestamps that they served, rather than by
		// timestamps that they wrote.
		&Rings{Keyspace: "slow-rings", Writers: 2, Readers: 3, Size: 4,
			Pause: 600 * time.Millisecond, ReadPause: 200 * time.Millisecond},
		&Batches{Groups: 5, Size: 4, Pause: 200 * time.Millisecond, Parallel: 4},
		&Watched{Keys: 10, Readers: 4, Pause: 300 * time.Millisecond,
			ReadPause: 60 * time.Millisecond},
		&Past{Keys: 8, Readers: 1, Pause: 300 * time.Millisecond,
			ReadPause: 120 * time.Millisecond},
		&Sessions{Parallel: 3, Keys: 4, Partitions: 6, Pause: 200 * time.Millisecond},
		&Lists{Keys: 3, Age: 15 * time.Second, Parallel: 3, Pause: 200 * time.Millisecond},
		&Sets{Keyspace: "sets", Adders: 2, Scanners: 1, Age: 20 * time.Second,
			Pause:     300 * time.Millisecond,
			ScanPause: time.Second, Large: 30_000},
		&Sets{Keyspace: "hashed-sets", Partitions: 3, Adders: 2, Scanners: 1, Age: 20 * time.Second,
			Pause: 300 * time.Millisecond, ScanPause: time.Second},
		&Backups{Keyspace: "backups", Rows: backupRows, Writers: 2, Readers: 2,
			Pause: 60 * time.Millisecond, ReadPause: 400 * time.Millisecond},
		&Backups{Keyspace: "hashed-backups", Partitions: 5, Rows: backupRows, Writers: 2, Readers: 2,
			Pause:     60 * time.Millisecond,
			ReadPause: 400 * time.Millisecond},
		spans("spans", kv.Hash(3)),
		spans("ranged-spans", splitInto([]string{spanPrefix + "333", spanPrefix + "666"})),
		replicas("replicas", kv.Hash(3)),
		replicas("ranged-replicas", splitInto([]string{nearPrefix + "1", nearPrefix + "2"})),
		feed("feed", kv.Hash(3)),
		feed("ranged-feed", splitInto([]string{fedPrefix + "010", fedPrefix + "020"})),
		forgetting("forgetting-feed", splitInto([]string{fedPrefix + "015"})),
	}
}

func spans(name string, layout kv.KeyspaceOption) *Spans {
	return &Spans{Keyspace: name, Layout: []kv.KeyspaceOption{layout}, Writers: 4, Sweepers: 1,
		Tellers: 2, Pause: 80 * time.Millisecond,
		LongPause: 500 * time.Millisecond, Dwell: 100 * time.Millisecond}
}

func replicas(name string, layout kv.KeyspaceOption) *Replicas {
	return &Replicas{Keyspace: name, Layout: layout, Writers: 2, Keys: 3, Readers: 3,
		Pause: 150 * time.Millisecond, ReadPause: 120 * time.Millisecond}
}

func feed(name string, layout kv.KeyspaceOption) *Feed {
	return &Feed{Keyspace: name, Layout: []kv.KeyspaceOption{layout}, Writers: 3, Keys: 30,
		Followers: 2, Pause: 120 * time.Millisecond, Rest: 10 * time.Second}
}

// forgetting returns a Feed of a keyspace with a short GC window.
func forgetting(name string, layout kv.KeyspaceOption) *Feed {
	f := feed(name, layout)
	f.Layout = append(f.Layout, kv.GCWindow(10*time.Second))
	f.Rest, f.Forgets = 40*time.Second, true
	return f
}

// Prefixes of the names of transactional workloads. strictly: transactions ask for commit wait.
// waiting: every write to the keyspace waits. inRanges, after the others: a range keyspace.
const (
	strictly = "strict-"
	waiting  = "waiting-"
	inRanges = "ranged-"
)

// clockMode is a way to use the database while clocks differ: the isolation that the database then
// claims, and the options for it.
type clockMode struct {
	prefix string
	claim  isolation.Options
	// layout has the options of keyspaces, and transactions the options of every update. connect is
	// driver.KV or driver.KVPlainly.
	layout       []kv.KeyspaceOption
	transactions []kv.TxnOption
	connect      func(...kv.TxnOption) func(*driver.Client, string) driver.Transactor
}

func clockModes() []clockMode {
	strict := isolation.Options{Level: isolation.StrictSerialisable}
	return []clockMode{
		{claim: isolation.Options{Level: isolation.StrongSessionSerialisable, KeyRealTime: true},
			connect: driver.KV},
		{prefix: strictly, claim: strict, transactions: []kv.TxnOption{kv.CommitWait()},
			connect: driver.KV},
		{prefix: waiting, claim: strict, layout: []kv.KeyspaceOption{kv.CommitWait()},
			connect: driver.KVPlainly},
	}
}

// SDKTransactions returns StandardTransactions and Elders over the SDK. A plain name means read
// restart over hash partitions. The prefix "strict-" means commit wait, "waiting-" a keyspace with
// commit wait, and "ranged-" after that the partitions of a range keyspace.
func SDKTransactions() []driver.Workload {
	var all []driver.Workload
	for _, m := range clockModes() {
		layout := func(o kv.KeyspaceOption) []kv.KeyspaceOption {
			return slices.Concat(m.layout, []kv.KeyspaceOption{o})
		}
		for _, load := range StandardTransactions(m.claim) {
			all = append(all, driver.Transactional(named{load, m.prefix + load.Name()},
				m.connect(m.transactions...), layout(kv.Hash(transactionPartitions))...))
		}
		for _, load := range StandardTransactions(m.claim) {
			all = append(all, driver.Transactional(named{load, m.prefix + inRanges + load.Name()},
				m.connect(m.transactions...), layout(splitInto(load.Splits()))...))
		}
		all = append(all, elders(m.prefix, layout(kv.Hash(transactionPartitions)), m.transactions),
			elders(m.prefix+inRanges, layout(splitInto(elderSplits)), m.transactions))
	}
	return all
}

// transactionPartitions is the number of hash partitions of the keyspaces for transactions.
const transactionPartitions = 4

func elders(prefix string, layout []kv.KeyspaceOption, options []kv.TxnOption) *Elders {
	return &Elders{Label: prefix + "elders", Layout: layout, Options: options, Keys: 4, Parallel: 5,
		Pause: 100 * time.Millisecond,
		Dwell: 300 * time.Millisecond}
}

// splitInto returns the layout of a range keyspace that is split at the keys.
func splitInto(splits []string) kv.KeyspaceOption {
	var at [][]byte
	for _, key := range splits {
		at = append(at, []byte(key))
	}
	return kv.Range(at...)
}

// named is Transactions with another name.
type named struct {
	driver.Transactions
	name string
}

func (n named) Name() string { return n.name }

// Choose returns the workloads of Standard, SDKTransactions and coordination.Standard that have the
// given names. An unknown name is an error.
func Choose(names ...string) ([]driver.Workload, error) {
	all := slices.Concat(Standard(), SDKTransactions(), coordination.Standard())
	var chosen []driver.Workload
	for _, name := range names {
		i := slices.IndexFunc(all, func(w driver.Workload) bool { return w.Name() == name })
		if i < 0 {
			return nil, fmt.Errorf("no workload is called %q; there are %s", name,
				strings.Join(Names(all), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// Names returns the names of workloads.
func Names(workloads []driver.Workload) []string {
	var names []string
	for _, w := range workloads {
		names = append(names, w.Name())
	}
	return names
}

// StandardTransactions returns the standard transactional workloads, for a database that claims the
// given isolation.
func StandardTransactions(claim isolation.Options) []driver.Transactions {
	strict, least := claim.Level == isolation.StrictSerialisable, leastOf(claim)
	return []driver.Transactions{
		&Bank{Accounts: bankAccounts, Parallel: 4, Pause: 150 * time.Millisecond, Least: least},
		&Increments{Keys: 3, Parallel: 4, Pause: 150 * time.Millisecond, Least: least},
		&Duties{Groups: 3, Size: 4, Parallel: 4, Pause: 150 * time.Millisecond, Least: least,
			Dwell: 100 * time.Millisecond},
		&Inserts{Age: 10 * time.Second, Parallel: 6, Pause: 300 * time.Millisecond,
			ReadPause: 100 * time.Millisecond,
			Least:     least, Strict: strict},
		&Dependencies{Keys: 8, Age: 10 * time.Second, Parallel: 6, Pause: 150 * time.Millisecond,
			Least: least, Claim: claim},
		&Snapshots{Groups: 3, Size: 5, Parallel: 4, Pause: 150 * time.Millisecond, Least: least},
		&News{Strict: strict, Keys: 8, Parallel: 6, Pause: 200 * time.Millisecond, Least: least},
	}
}
