package operators

import (
	"log/slog"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/reports"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// Max limits the operators that are under way. maxOrders limits the orders in the answer to a
	// heartbeat.
	Max       = 10_000
	maxOrders = 1000
)

// Config has the dependencies of Operators. All fields are required.
type Config struct {
	Meta    *meta.Records
	Store   *store.Store
	Reports *reports.Reports
	Table   Table
	// Poke makes the leader look at the operators again soon.
	Poke   func()
	Logger *slog.Logger
}

// Table is the leader's knowledge of the partition table.
type Table interface {
	// Keyspace returns the keyspace of a partition. It returns false if the partition was not read
	// yet.
	Keyspace(keys.PartitionID) (keys.KeyspaceID, bool)
	// Partitions returns the number of partitions. It returns false if the table was not read
	// completely.
	Partitions() (int, bool)
}

// Operators manages the operators of the cluster.
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
