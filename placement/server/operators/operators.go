package operators

import (
	"log/slog"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/reports"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// Max bounds the operators that are under way, maxOrders the orders in the answer to a heartbeat.
	Max       = 10_000
	maxOrders = 1000
)

// Config is what Operators work with. All fields are required.
type Config struct {
	Meta    *meta.Records
	Store   *store.Store
	Reports *reports.Reports
	Table   Table
	// Poke has the operators looked at again soon.
	Poke   func()
	Logger *slog.Logger
}

// Table is what the leader has read of the partition table.
type Table interface {
	// Keyspace returns the keyspace of a partition; false: it has not been read.
	Keyspace(keys.PartitionID) (keys.KeyspaceID, bool)
	// Partitions returns how many partitions there are; false: the table has not been read whole.
	Partitions() (int, bool)
}

// Operators are the operators of the cluster.
type Operators struct {
	config  Config
	meta    *meta.Records
	store   *store.Store
	reports *reports.Reports
	metrics metrics
}

// New makes Operators.
func New(config Config) *Operators {
	return &Operators{config: config, meta: config.Meta, store: config.Store,
		reports: config.Reports, metrics: newMetrics()}
}
