package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// One transaction holds a lock, another and a plain write wait for it, and a later one holds a lock
// for which none waits: that is what is shown, the oldest lock first.
func TestDebugTxns(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "debug-txns", "--partitions", "hash:2")
	b.ok("keyspace", "create", "debug-quiet", "--partitions", "range")
	client, err := kv.Open(t.Context(), oneCluster.cluster.Endpoints())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ks := client.Keyspace("debug-txns")
	holder, err := client.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback()
	if _, err := holder.GetForUpdate(t.Context(), ks, []byte("apple")); err == nil {
		t.Fatal("a value without a write")
	}
	// In the same partition: the ages of locks elsewhere are of another moment.
	later, err := client.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer later.Rollback()
	if _, err := later.GetForUpdate(t.Context(), ks, []byte("quince")); err == nil {
		t.Fatal("a value without a write")
	}
	// Begun later, so it waits.
	waiter, err := client.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer holder.Rollback()
	waiting.Go(func() {
		_, _ = waiter.GetForUpdate(t.Context(), ks, []byte("apple"))
		waiter.Rollback()
	})
	waiting.Go(func() { _, _ = ks.Put(t.Context(), []byte("apple"), []byte("red")) })

	type row struct {
		Transaction, Does, Key, Keyspace, State string
		WaitsFor                                string `json:"waits_for"`
		Locks, Partition                        int
	}
	list := func(flags ...string) (rows []row, says string) {
		got := b.run("", exit.OK,
			append([]string{"debug", "txns", "debug-txns", "-o", "json"}, flags...)...)
		for line := range strings.Lines(got.out) {
			var r row
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			rows = append(rows, r)
		}
		return rows, got.err
	}
	// Both have a record when their client was heard of after a while.
	rows, _ := list()
	for len(rows) < 4 || rows[0].State == "" || rows[3].State == "" {
		rows, _ = list()
	}
	if r := rows[0]; r.Does != "lock" || r.Key != "apple" || r.Keyspace != "debug-txns" ||
		r.Locks != 1 || r.State != "pending" || r.Partition == 0 || len(r.Transaction) != 32 ||
		r.WaitsFor != "" {
		t.Errorf("the holder: %+v", r)
	}
	if r := rows[3]; r.Does != "lock" || r.Key != "quince" || r.Partition != rows[0].Partition ||
		r.Locks != 1 || r.State != "pending" || len(r.Transaction) != 32 ||
		r.Transaction == rows[0].Transaction {
		t.Errorf("the later holder: %+v", r)
	}
	transactions := 0
	for _, r := range rows[1:3] {
		if r.State != "" || r.Does != "wait to write" || r.Key != "apple" ||
			r.WaitsFor != rows[0].Transaction {
			t.Errorf("a waiter: %+v", r)
		}
		if r.Transaction != "" {
			transactions++
		}
	}
	if len(rows) != 4 || transactions != 1 {
		t.Errorf("%d rows, %d transactions wait: %+v", len(rows), transactions, rows)
	}
	if first, says := list("--max", "1"); len(first) != 3 ||
		first[0].Transaction != rows[0].Transaction ||
		!strings.Contains(says, "there are more rows with locks; --max") {
		t.Errorf("one row with locks at most: %+v, and said %q", first, says)
	}
	if _, says := list("--max", "2"); says != "" {
		t.Errorf("two rows with locks at most, of two: said %q", says)
	}
	if all := b.ok("debug", "txns"); !strings.Contains(all, rows[0].Transaction) ||
		!strings.Contains(all, "TRANSACTION") {
		t.Errorf("of all keyspaces:\n%s", all)
	}
	if got := b.run("", exit.OK, "debug", "txns", "debug-txns", "--waiters", "1"); strings.Count(
		got.out, "wait to write") != 1 || !strings.Contains(got.err, "1 more wait") {
		t.Errorf("with one waiter: %+v", got)
	}
	b.want("", "debug", "txns", "debug-quiet", "-o", "json")
	b.fails(exit.NotFound, "no-such-keyspace", "debug", "txns", "no-such-keyspace")
}

// Spans that a transaction holds are counted apart from the keys that it has locked.
func TestDebugTxnsNamesSpansApart(t *testing.T) {
	var out bytes.Buffer
	a := &app{streams: streams{out: &out, err: io.Discard,
		getenv: func(string) string { return "" }}, format: output.TSV, headers: true}
	found := []admin.LiveTransaction{
		{ID: "aa", Keyspace: "k", Partition: 1, Key: []byte("a"), Locks: 1, Spans: 2},
		{ID: "bb", Keyspace: "k", Partition: 1, Spans: 1}}
	if err := a.printTxns(found, false, 1); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(out.String()) {
		cells := strings.Split(line, "\t")
		rows = append(rows, strings.Join([]string{cells[0], cells[1], cells[6], cells[7]}, " "))
	}
	if got := strings.Join(rows, "; "); got != "transaction does locks spans; aa lock 1 2; bb "+
		"hold spans 0 1" {
		t.Error(got)
	}
}

// What is known is printed, and so is which partitions did not answer; anything else that goes
// wrong is the error.
func TestDebugTxnsWithoutSomePartitions(t *testing.T) {
	unanswered := &admin.UnansweredError{Partitions: []*kv.Error{
		{Op: "live transactions", Keyspace: "fruit", Partition: 7, Message: "timed out"},
		{Op: "live transactions", Keyspace: "fruit", Partition: 9, Message: "no leader is known"},
	}}
	found := []admin.LiveTransaction{
		{ID: "00ff", Keyspace: "fruit", Partition: 8, Key: []byte("apple"), Locks: 1}}
	for _, c := range []struct {
		err  error
		code int
		rows bool
		says []string
	}{
		{nil, exit.OK, true, nil},
		{errors.Join(kv.ErrUnavailable, unanswered), exit.Unavailable, true,
			[]string{"partition p7", "timed out", "partition p9", "no leader is known"}},
		{kv.ErrNoQuorum, exit.Unavailable, false, nil},
	} {
		var out, said bytes.Buffer
		a := &app{streams: streams{out: &out, err: &said}, format: output.TSV}
		err := a.printFound(found, false, 10, c.err)
		if code := exit.Code(t.Context(), err); code != c.code ||
			strings.Contains(out.String(), "apple") != c.rows {
			t.Errorf("%v: exit code %d, printed %q", c.err, code, out.String())
		}
		for _, word := range c.says {
			if !strings.Contains(said.String(), word) {
				t.Errorf("%v: said %q, and nothing of %q", c.err, said.String(), word)
			}
		}
		if len(c.says) == 0 && said.Len() > 0 {
			t.Errorf("%v: said %q", c.err, said.String())
		}
	}
}
