package kvtarget

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/tidemarkdb/tidemark/bench"
	"github.com/tidemarkdb/tidemark/kv"
)

// Target implements bench.Target for a keyspace.
type Target struct {
	keyspace *kv.Keyspace
	gets     []kv.GetOption
	scans    []kv.ScanOption
}

// ReadOption is an option of both gets and scans, such as kv.Nearest.
type ReadOption interface {
	kv.GetOption
	kv.ScanOption
}

var (
	_ bench.Target     = Target{}
	_ bench.BulkLoader = Target{}
)

// New returns a Target for a keyspace. All reads have the options.
func New(keyspace *kv.Keyspace, options ...ReadOption) Target {
	t := Target{keyspace: keyspace}
	for _, o := range options {
		t.gets, t.scans = append(t.gets, o), append(t.scans, o)
	}
	return t
}

// Get implements bench.Target.
func (t Target) Get(ctx context.Context, key []byte) error {
	_, err := t.keyspace.Get(ctx, key, t.gets...)
	if errors.Is(err, kv.ErrNotFound) {
		return errors.Join(bench.ErrNotFound, err)
	}
	return err
}

// Put implements bench.Target.
func (t Target) Put(ctx context.Context, key, value []byte) error {
	_, err := t.keyspace.Put(ctx, key, value)
	return err
}

// Scan implements bench.Target.
func (t Target) Scan(ctx context.Context, from []byte, limit int) (rows int, err error) {
	options := append([]kv.ScanOption{kv.From(from), kv.Limit(limit)}, t.scans...)
	for _, err := range t.keyspace.Scan(ctx, options...) {
		if err != nil {
			return rows, err
		}
		rows++
	}
	return rows, nil
}

// loadsAtOnce is the number of concurrent batches of one call of Load.
const loadsAtOnce = 4

// Load implements bench.BulkLoader. It writes one batch for each partition of the records.
func (t Target) Load(ctx context.Context, records []bench.Record) error {
	partitions := make(map[uint64]*kv.Batch)
	for _, record := range records {
		partition, err := t.keyspace.PartitionOf(ctx, record.Key)
		if err != nil {
			return err
		}
		batch := partitions[partition]
		if batch == nil {
			batch = t.keyspace.Batch()
			partitions[partition] = batch
		}
		batch.Put(record.Key, record.Value)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(loadsAtOnce)
	for _, batch := range partitions {
		group.Go(func() error {
			_, err := batch.Commit(ctx)
			return err
		})
	}
	return group.Wait()
}

// Classify returns the classes of the SDK's errors, for bench.Config.
func Classify(err error) string {
	for _, class := range classes {
		if errors.Is(err, class.kind) {
			return class.name
		}
	}
	return bench.Classify(err)
}

// The order matters: an error can be of several kinds, and the first matching kind is the most
// specific.
var classes = []struct {
	kind error
	name string
}{
	{kv.ErrOutcomeUnknown, "outcome unknown"},
	{kv.ErrDiskFull, "disk full"},
	{kv.ErrNoQuorum, "no quorum"},
	{kv.ErrOverloaded, "overloaded"},
	{kv.ErrCorruption, "corruption"},
	{kv.ErrConflict, "conflict"},
	{kv.ErrTransactionAborted, "aborted"},
	{kv.ErrTransactionTooOld, "transaction too old"},
	{kv.ErrTransactionTooLarge, "transaction too large"},
	{kv.ErrTimestampTooOld, "timestamp too old"},
	{kv.ErrKeyspaceNotFound, "keyspace not found"},
	{kv.ErrInvalidArgument, "invalid argument"},
	{kv.ErrWrongCluster, "wrong cluster"},
	{kv.ErrUnavailable, "unavailable"},
	{kv.ErrClosed, "closed"},
}
