package keyspaces

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Config has the dependencies of Keyspaces. All fields must be set.
type Config struct {
	Meta  *meta.Records
	Store *store.Store
	// Forget drops the reports of removed partitions.
	Forget func([]keys.PartitionID)
	// Poke makes the stepper call Step soon.
	Poke   func()
	Logger *slog.Logger
}

// Keyspaces creates, alters and drops keyspaces.
type Keyspaces struct {
	config           Config
	meta             *meta.Records
	created, dropped prometheus.Counter
}

// New makes the Keyspaces of a member.
func New(config Config) *Keyspaces {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "tidemark_placement_" + name,
			Help: help})
	}
	return &Keyspaces{config: config, meta: config.Meta,
		created: counter("keyspaces_created_total", "Keyspaces created by this member."),
		dropped: counter("keyspaces_dropped_total", "Keyspaces dropped by this member.")}
}

// Collectors are the metrics.
func (k *Keyspaces) Collectors() []prometheus.Collector {
	return []prometheus.Collector{k.created, k.dropped}
}
