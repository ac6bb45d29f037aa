package kvtarget

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tidemarkdb/tidemark/bench"
	"github.com/tidemarkdb/tidemark/kv"
)

// Transactor implements bench.Transactor for a keyspace of a client.
type Transactor struct {
	Target
	client  *kv.Client
	metrics prometheus.Gatherer
	options []kv.TxnOption
}

var _ bench.Transactor = Transactor{}

// NewTransactor returns a Transactor for transactions over a keyspace, all of them with the
// options. metrics are the metrics with which the client was opened (kv.Metrics). The report's
// tally comes from them. If metrics is nil, nothing is counted.
func NewTransactor(client *kv.Client, keyspace *kv.Keyspace, metrics prometheus.Gatherer,
	options ...kv.TxnOption) Transactor {
	return Transactor{Target: New(keyspace), client: client, metrics: metrics, options: options}
}

// Update implements bench.Transactor.
func (t Transactor) Update(ctx context.Context, f func(bench.Tx) error) error {
	_, err := t.client.Update(ctx, func(tx *kv.Txn) error { return f(transaction{tx, t.keyspace}) },
		t.options...)
	return err
}

type transaction struct {
	*kv.Txn
	keyspace *kv.Keyspace
}

// Get implements bench.Tx.
func (t transaction) Get(ctx context.Context, key []byte, lock bool) ([]byte, error) {
	get := t.Txn.Get
	if lock {
		get = t.Txn.GetForUpdate
	}
	pair, err := get(ctx, t.keyspace, key)
	if errors.Is(err, kv.ErrNotFound) {
		return nil, nil
	}
	return pair.Value, err
}

// Put implements bench.Tx.
func (t transaction) Put(key, value []byte) error { return t.Txn.Put(t.keyspace, key, value) }

// Snapshot implements bench.Transactor.
func (t Transactor) Snapshot(ctx context.Context, keys [][]byte) (values [][]byte, err error) {
	err = t.client.View(ctx, func(s *kv.Snapshot) error {
		pairs, err := s.BatchGet(ctx, t.keyspace, keys)
		values = make([][]byte, len(pairs))
		for i, pair := range pairs {
			if pair.Exists() {
				values[i] = pair.Value
			}
		}
		return err
	})
	return values, err
}

// PartitionOf implements bench.Transactor.
func (t Transactor) PartitionOf(ctx context.Context, key []byte) (uint64, error) {
	return t.keyspace.PartitionOf(ctx, key)
}

// Uncertain implements bench.Transactor.
func (t Transactor) Uncertain(err error) bool { return errors.Is(err, kv.ErrOutcomeUnknown) }

// Tally implements bench.Transactor.
func (t Transactor) Tally() bench.Tally {
	tally := bench.Tally{Commits: make(map[string]uint64), Restarts: make(map[string]uint64)}
	if t.metrics == nil {
		return tally
	}
	families, err := t.metrics.Gather()
	if err != nil {
		return tally // the metrics contradict each other, which is a programming error
	}
	for _, family := range families {
		switch family.GetName() {
		case "tidemark_client_txn_commits_total":
			addCounts(tally.Commits, family)
		case "tidemark_client_txn_restarts_total":
			addCounts(tally.Restarts, family)
		}
	}
	return tally
}

// addCounts adds the values of counters with one label, by the value of the label.
func addCounts(to map[string]uint64, family *dto.MetricFamily) {
	for _, metric := range family.GetMetric() {
		for _, label := range metric.GetLabel() {
			to[label.GetValue()] += uint64(metric.GetCounter().GetValue())
		}
	}
}
