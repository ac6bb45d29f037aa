package kvtarget

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/bench"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvprom"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// Every transactional workload runs against a cluster and ends with what its clients were told.
func TestTransactionsAgainstACluster(t *testing.T) {
	registry := prometheus.NewRegistry()
	client := kvtest.Start(t, kvtest.Options{}).Client(t, kvprom.Metrics(registry))
	keyspace, err := client.CreateKeyspace(t.Context(), "bench", kv.Hash(3))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		workload bench.TransactionWorkload
		options  []kv.TxnOption
		verified string
	}{
		{&bench.Mixed{KeysPerTxn: 4, PartitionsPerTxn: 2, Contention: 0.9}, nil, ""},
		{&bench.Mixed{KeysPerTxn: 3, PartitionsPerTxn: 3, Reads: 2, Writes: 1},
			[]kv.TxnOption{kv.CommitWait()}, ""},
		{&bench.Mixed{KeysPerTxn: 5, PartitionsPerTxn: 3, Writes: -1}, nil, ""},
		{&bench.Bank{Accounts: 8, Audits: 0.2}, nil, "the accounts have 8000 in all"},
		{&bench.Counters{Counters: 2, Lock: true}, nil, "every increment is there"},
	} {
		result, err := bench.RunTransactions(t.Context(), NewTransactor(client, keyspace, registry,
			c.options...), c.workload, bench.Config{
			Clients: 4, Records: 100, ValueSize: 20, WarmUp: -1, Duration: 300 * time.Millisecond,
			Classify: Classify,
		})
		if err != nil {
			t.Fatalf("%+v: %v", c.workload, err)
		}
		x := result.Transactions
		if result.Total.Errors != 0 || result.Total.Count == 0 || !strings.Contains(x.Verified,
			c.verified) {
			t.Errorf("%s: %+v, %+v", x.About, result.Total, x)
		}
		if len(x.Commits) == 0 && result.Operations[0].Kind == "transaction" && x.MostAttempts > 0 {
			t.Errorf("%s: no commit was counted", x.About)
		}
	}
}
