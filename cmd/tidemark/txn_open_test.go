package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// An open transaction is listed, and ends when it is aborted by its id.
func TestTxnListAndAbort(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "open-txns", "--partitions", "hash:2", "--txn-max-age", "30m",
		"--txn-max-idle", "90s")
	client, err := kv.Open(t.Context(), oneCluster.cluster.Endpoints())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ks := client.Keyspace("open-txns")
	tx, err := client.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for _, key := range []string{"apple", "pear"} {
		if _, err := tx.GetForUpdate(t.Context(), ks, []byte(key)); !errors.Is(err, kv.ErrNotFound) {
			t.Fatal(err)
		}
	}
	written := make(chan error, 1)
	go func() {
		_, err := ks.Put(t.Context(), []byte("apple"), []byte("red"))
		written <- err
	}()
	var row struct {
		Transaction, State, Client, Keyspace, Key string
		KeyKeyspace                               string `json:"key_keyspace"`
		Waiters                                   []string
		Locks, Partition, Waiting                 int
		Age                                       float64
	}
	for row.State != "pending" || row.Waiting == 0 { // it has a record after a moment
		row.Waiters = nil
		if err := json.Unmarshal([]byte(b.ok("txn", "list", "open-txns", "-o", "json")),
			&row); err != nil {
			t.Fatal(err)
		}
	}
	if row.Transaction != tx.ID() || row.Client == "" || row.Keyspace != "open-txns" ||
		row.Locks != 2 || row.Partition == 0 || row.Age == 0 ||
		row.Key != "apple" || row.KeyKeyspace != "open-txns" || len(row.Waiters) != 1 ||
		row.Waiters[0] != "no transaction" {
		t.Errorf("%+v", row)
	}
	table := b.walk(100, exit.OK, "", "txn", "list")
	for line := range strings.Lines(table) {
		if len(line) > 101 {
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
	if !strings.Contains(table, tx.ID()) || !strings.Contains(table, "WAITING") {
		t.Errorf("the table:\n%s", table)
	}
	if said := b.ok("txn", "abort", tx.ID(), "-o", "tsv"); !strings.Contains(said,
		tx.ID()+"\taborted\tit was asked for") {
		t.Errorf("said %q", said)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	if again := b.run("", exit.OK, "txn", "abort", tx.ID()); !strings.Contains(again.err,
		"was aborted already") {
		t.Errorf("again: %q", again.err)
	}
	b.fails(exit.NotFound, "it has ended, or has locked nothing yet; there is nothing to abort",
		"txn", "abort", "00"+tx.ID()[2:])
	b.fails(exit.Usage, "32 hexadecimal digits", "txn", "abort", "me")
	b.fails(exit.Usage, "an ID", "txn", "abort")
	b.fails(exit.NotFound, "no-such-keyspace", "txn", "list", "no-such-keyspace")
	b.want("", "txn", "list", "open-txns", "-o", "json")
	if err = tx.Put(ks, []byte("fig"), nil); err == nil {
		_, err = tx.Commit(t.Context())
	}
	if !errors.Is(err, kv.ErrTransactionAborted) {
		t.Errorf("its client: %v", err)
	}
}

// What was committed before is said to have been.
func TestTxnAbortOfACommittedOne(t *testing.T) {
	err := (&app{}).printEnd("00ff",
		admin.TransactionEnd{Committed: true, At: kv.TimestampOf(time.Unix(1700000000, 0))})
	if err == nil || !strings.Contains(err.Error(), "was committed at 1700000000") ||
		exit.Code(t.Context(), err) != exit.Failed {
		t.Errorf("%v", err)
	}
}

// The limits of transactions are shown, and can be changed.
func TestKeyspaceAlter(t *testing.T) {
	b := cluster(t)
	limits := func(out string) [2]float64 {
		var row struct {
			Age  float64 `json:"txn_max_age"`
			Idle float64 `json:"txn_max_idle"`
		}
		if err := json.Unmarshal([]byte(out), &row); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		return [2]float64{row.Age, row.Idle}
	}
	if got := limits(b.ok("keyspace", "create", "altered", "--partitions", "range", "-o",
		"json")); got != [2]float64{3600, 120} {
		t.Errorf("created with %v", got)
	}
	if got := limits(b.ok("keyspace", "alter", "altered", "--txn-max-idle", "10s", "-o",
		"json")); got != [2]float64{3600, 10} {
		t.Errorf("altered to %v", got)
	}
	if got := limits(b.ok("keyspace", "alter", "altered", "--txn-max-age", "10m", "-o",
		"json")); got != [2]float64{600, 10} {
		t.Errorf("altered to %v", got)
	}
	if got := limits(b.ok("keyspace", "describe", "altered", "-o",
		"json")); got != [2]float64{600, 10} {
		t.Errorf("described with %v", got)
	}
	b.fails(exit.Usage, "say what to change", "keyspace", "alter", "altered")
	b.fails(exit.Usage, "from 1s to 168h", "keyspace", "alter", "altered", "--txn-max-age", "10ms")
	b.fails(exit.Usage, "--txn-max-idle -1s: it is from 1s to 168h", "keyspace", "alter", "altered",
		"--txn-max-idle", "-1s")
	b.fails(exit.Usage, "from 1s to 168h", "keyspace", "create", "altered-too", "--partitions",
		"range", "--txn-max-age", "169h")
	b.fails(exit.NotFound, "no-such-keyspace", "keyspace", "alter", "no-such-keyspace",
		"--txn-max-age", "10m")
}
