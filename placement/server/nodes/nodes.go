package nodes

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/server/authflag"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/quotas"
	"github.com/tidemarkdb/tidemark/placement/server/reports"
	"github.com/tidemarkdb/tidemark/placement/server/upgrade"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Config has the dependencies of Nodes. All fields but Wake are required.
type Config struct {
	Meta    *meta.Records
	Store   *store.Store
	Reports *reports.Reports
	// Quotas divides the quotas of keyspaces among the nodes.
	Quotas *quotas.Quotas
	// Flag knows whether servers must follow users and roles.
	Flag *authflag.Flag
	// Upgrade knows which levels of formats and messages nodes must support.
	Upgrade *upgrade.Upgrade
	Planner Planner
	// Orders returns the next steps of operators for the partitions that a node leads.
	Orders func(keys.NodeID) ([]*clusterpb.Order, error)
	// Wake tells the node at an address that there are orders for it. If it is nil, nodes are not
	// notified.
	Wake func(ctx context.Context, address string, node keys.NodeID) error
	// Poke makes the leader process the reports of nodes soon.
	Poke      func()
	Cluster   uint64
	Monotonic hlc.Monotonic
	Logger    *slog.Logger
}

// Planner knows what nodes hold.
type Planner interface {
	// Progress returns what a node holds, what still has to move away, and what prevents a status,
	// given the nodes and keyspaces of one view.
	Progress(id keys.NodeID, want clusterpb.NodeStatus, nodes []*clusterpb.Node,
		keyspaces []meta.Keyspace) (*clusterpb.SetNodeStatusResponse, error)
}

// Nodes manages the data nodes of the cluster.
type Nodes struct {
	config                    Config
	meta                      *meta.Records
	store                     *store.Store
	reports                   *reports.Reports
	flag                      *authflag.Flag
	registrations, heartbeats prometheus.Counter
}

// New makes Nodes.
func New(config Config) *Nodes {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_placement_" + name, Help: help})
	}
	return &Nodes{config: config, meta: config.Meta, store: config.Store, reports: config.Reports,
		flag: config.Flag,
		registrations: counter("registrations_total",
			"Nodes that registered, again or anew, with this member."),
		heartbeats: counter("heartbeats_total",
			"Heartbeats of nodes that this member took as the leader.")}
}

// Collectors returns the metrics of nodes.
func (s *Nodes) Collectors() []prometheus.Collector {
	return []prometheus.Collector{s.registrations, s.heartbeats}
}
