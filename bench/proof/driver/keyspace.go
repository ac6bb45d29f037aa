package driver

import (
	"context"
	"iter"

	"github.com/tidemarkdb/tidemark/kv"
)

// Keyspace is a keyspace of a Client. It has the methods of kv.Keyspace, which report their outcome
// here. Reads of the past are another kind of operation than reads of the present.
type Keyspace struct {
	sdk     *kv.Keyspace
	reports reports
	ways    *ways
}

// latest returns the options of a read of the latest state.
func (k *Keyspace) latest() (options []kv.GetOption) {
	if k.ways.another() {
		options = append(options, kv.LinearizableFollower())
	}
	return options
}

// SDK returns the keyspace for the methods of kv.Txn and kv.Snapshot. For Update and View, only the
// whole transaction is reported.
func (k *Keyspace) SDK() *kv.Keyspace { return k.sdk }

// Get reads a key. The absence of a key is a valid answer.
func (k *Keyspace) Get(ctx context.Context, key []byte) (kv.Pair, error) {
	report := k.reports.begin(ctx, "get")
	pair, err := k.sdk.Get(ctx, key, k.latest()...)
	report.end(err)
	return pair, err
}

// GetAt is Get at a timestamp.
func (k *Keyspace) GetAt(ctx context.Context, key []byte, at kv.Timestamp) (kv.Pair, error) {
	report := k.reports.begin(ctx, "get at")
	pair, err := k.sdk.Get(ctx, key, kv.At(at))
	report.end(err)
	return pair, err
}

// BatchGet reads keys.
func (k *Keyspace) BatchGet(ctx context.Context, keys [][]byte) ([]kv.Pair, error) {
	report := k.reports.begin(ctx, "batch-get")
	pairs, err := k.sdk.BatchGet(ctx, keys, k.latest()...)
	report.end(err)
	return pairs, err
}

// Put writes a key.
func (k *Keyspace) Put(ctx context.Context, key, value []byte) (kv.Timestamp, error) {
	report := k.reports.begin(ctx, "put")
	at, err := k.sdk.Put(ctx, key, value)
	report.end(err)
	return at, err
}

// Delete deletes a key.
func (k *Keyspace) Delete(ctx context.Context, key []byte) (existed bool, err error) {
	report := k.reports.begin(ctx, "delete")
	existed, err = k.sdk.Delete(ctx, key)
	report.end(err)
	return existed, err
}

// CompareAndSwap swaps a key's value. It is no error if the value is not swapped.
func (k *Keyspace) CompareAndSwap(ctx context.Context, key []byte, expect kv.Expectation,
	replacement kv.Replacement) (kv.Swap, error) {
	report := k.reports.begin(ctx, "compare-and-swap")
	swap, err := k.sdk.CompareAndSwap(ctx, key, expect, replacement)
	report.end(err)
	return swap, err
}

// Batch makes a batch, for Commit.
func (k *Keyspace) Batch() *kv.Batch { return k.sdk.Batch() }

// Commit commits a batch.
func (k *Keyspace) Commit(ctx context.Context, batch *kv.Batch) (kv.Timestamp, error) {
	report := k.reports.begin(ctx, "batch")
	at, err := batch.Commit(ctx)
	report.end(err)
	return at, err
}

// BatchPut writes keys in any partitions.
func (k *Keyspace) BatchPut(ctx context.Context, pairs []kv.Pair) (kv.Timestamp, error) {
	report := k.reports.begin(ctx, "batch-put")
	at, err := k.sdk.BatchPut(ctx, pairs)
	report.end(err)
	return at, err
}

// Scan reads the present.
func (k *Keyspace) Scan(ctx context.Context, options ...kv.ScanOption) iter.Seq2[kv.Pair, error] {
	if k.ways.another() {
		options = append(options[:len(options):len(options)], kv.LinearizableFollower())
	}
	return k.scan(ctx, "scan", options)
}

// Dump scans all keys, like `tidemark dump`.
func (k *Keyspace) Dump(ctx context.Context, options ...kv.ScanOption) iter.Seq2[kv.Pair, error] {
	return k.scan(ctx, "dump", options)
}

// ScanAt is Scan at a timestamp.
func (k *Keyspace) ScanAt(ctx context.Context, at kv.Timestamp,
	options ...kv.ScanOption) iter.Seq2[kv.Pair, error] {
	return k.scan(ctx, "scan at", append(options[:len(options):len(options)], kv.At(at)))
}

// scan reports a scan when the loop over the scan ends.
func (k *Keyspace) scan(ctx context.Context, kind string,
	options []kv.ScanOption) iter.Seq2[kv.Pair, error] {
	return func(yield func(kv.Pair, error) bool) {
		report := k.reports.begin(ctx, kind)
		var failed error
		defer func() { report.end(failed) }()
		for pair, err := range k.sdk.Scan(ctx, options...) {
			failed = err
			if !yield(pair, err) {
				return
			}
		}
	}
}

// Count counts keys.
func (k *Keyspace) Count(ctx context.Context, options ...kv.CountOption) (uint64, error) {
	report := k.reports.begin(ctx, "count")
	if k.ways.another() {
		options = append(options[:len(options):len(options)], kv.LinearizableFollower())
	}
	n, err := k.sdk.Count(ctx, options...)
	report.end(err)
	return n, err
}

// CountAt is Count at a timestamp.
func (k *Keyspace) CountAt(ctx context.Context, at kv.Timestamp, options ...kv.CountOption) (uint64,
	error) {
	report := k.reports.begin(ctx, "count at")
	n, err := k.sdk.Count(ctx, append(options[:len(options):len(options)], kv.At(at))...)
	report.end(err)
	return n, err
}

// DeleteRange deletes keys.
func (k *Keyspace) DeleteRange(ctx context.Context, options ...kv.DeleteRangeOption) (uint64,
	error) {
	report := k.reports.begin(ctx, "delete-range")
	n, err := k.sdk.DeleteRange(ctx, options...)
	report.end(err)
	return n, err
}
