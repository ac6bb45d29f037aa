package console

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// transactionsView is the feed "txns?keyspace=".
type transactionsView struct {
	Rows []transactionView `json:"rows"`
	// More: there are more transactions than are shown.
	More bool `json:"more,omitempty"`
	// Unanswered names the partitions that did not answer. It is empty if all did.
	Unanswered string `json:"unanswered,omitempty"`
}

// transactionView is a transaction that holds locks.
type transactionView struct {
	ID         string `json:"id"`
	State      string `json:"state,omitempty"`
	AgeMillis  int64  `json:"ageMillis"`
	IdleMillis int64  `json:"idleMillis,omitempty"`
	Keyspace   string `json:"keyspace"`
	Partition  uint64 `json:"partition"`
	Locks      uint64 `json:"locks"`
	Spans      uint64 `json:"spans,omitempty"`
	Partitions int    `json:"partitions"`
	// Key is the key with the oldest lock. The lock is OldestMillis old.
	Key          string       `json:"key"`
	OldestMillis int64        `json:"oldestMillis"`
	Client       string       `json:"client,omitempty"`
	Waiters      []waiterView `json:"waiters,omitempty"`
	NotShown     int          `json:"waitersNotShown,omitempty"`
}

// waiterView is a request that waits for a lock.
type waiterView struct {
	Transaction string `json:"transaction,omitempty"`
	Key         string `json:"key"`
	Millis      int64  `json:"millis"`
	Write       bool   `json:"write"`
}

// The limits of the list of transactions.
const (
	transactionsShown = 100
	waitersShown      = 20
)

// listTransactions reads which transactions hold locks, and which requests wait for them.
func listTransactions(ctx context.Context, _ *viewer, cluster Cluster, p url.Values) (any, error) {
	found, more, err := cluster.Transactions(ctx, p.Get("keyspace"), transactionsShown)
	view := transactionsView{Rows: []transactionView{}, More: more}
	var unanswered *admin.UnansweredError
	switch {
	case errors.As(err, &unanswered):
		view.Unanswered = unanswered.Error()
	case err != nil:
		return nil, err
	}
	for i := range found {
		view.Rows = append(view.Rows, transactionOf(&found[i]))
	}
	return view, nil
}

func transactionOf(x *admin.OpenTransaction) transactionView {
	view := transactionView{ID: x.ID, State: x.State, AgeMillis: coarse(x.Age),
		IdleMillis: coarse(x.Idle), Keyspace: x.Keyspace, Partition: x.Partition, Locks: x.Locks,
		Spans: x.Spans, Partitions: x.Partitions, Key: keyText(x.Key),
		OldestMillis: coarse(x.OldestLock), Client: x.ClientAddress}
	if view.Keyspace == "" {
		view.Keyspace = x.KeyKeyspace
	}
	for _, w := range x.Waiters[:min(len(x.Waiters), waitersShown)] {
		view.Waiters = append(view.Waiters, waiterView{Transaction: w.Transaction,
			Key: keyText(w.Key), Millis: coarse(w.Waited), Write: w.Write})
	}
	view.NotShown = len(x.Waiters) - len(view.Waiters)
	return view
}

// coarse rounds a duration in milliseconds, so that the value rarely changes.
func coarse(d time.Duration) int64 {
	if d > 10*time.Second {
		return d.Round(time.Second).Milliseconds()
	}
	return d.Round(100 * time.Millisecond).Milliseconds()
}
