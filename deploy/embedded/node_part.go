package embedded

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/range/alarm"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/metric/prom"
	"github.com/tidemarkdb/tidemark/rpc/peer"
	"github.com/tidemarkdb/tidemark/txn"
)

// realmData is the realm of the data nodes' Raft hosts, realmCore that of the core's members.
const (
	realmData = "data"
	realmCore = "core"
)

// nodePart is a server's data node.
type nodePart struct {
	databases *datadir.Databases
	cache     *pebble.Cache
	node      *node.Node
	pusher    *txn.PushSender
	transport *peer.Transport
	// alarms are nil if timers come from outside.
	alarms *alarm.Alarms
}

// known says whether this directory is a data node's that was registered at this very address.
func (s *Server) known() bool {
	id := s.directory.Identity()
	return id.Node != 0 && id.Address == s.config.Advertise
}

// startNode joins the cluster if this directory has not, and starts the data node. A node that has
// joined starts from its disk: it serves whether the core can be reached or not. One whose address
// is new asks the core first, which lets no server take the place of a node that lives: two
// processes with one node's directory would vote with one voice twice.
func (s *Server) startNode(ctx context.Context) (*nodePart, error) {
	// The databases come before the id: a directory with an id and without its log has lost it.
	id, known := s.directory.Identity().Node, s.known()
	if !known {
		r, err := s.register(ctx)
		if err != nil {
			return nil, err
		}
		if err := s.directory.Join(r.GetCluster()); err != nil {
			return nil, err
		}
		if err := s.auth.Adopt(r.GetGuard()); err != nil {
			return nil, err
		}
		id = r.GetNode()
	}
	p := &nodePart{cache: pebble.NewCache(s.memory.Cache)}
	var err error
	registerer := prometheus.WrapRegistererWith(prometheus.Labels{"part": "node"},
		s.config.Registry)
	if p.databases, err = s.openDatabases(datadir.Node, datadir.DatabaseSizes{
		LogMemTable: s.memory.LogMemTable, LogCache: s.memory.LogCache,
		MemTable: s.memory.MemTable}, p.cache, registerer); err != nil {
		p.cache.Unref()
		return nil, err
	}
	if !known {
		if err := s.directory.BecomeNode(id, s.config.Advertise); err != nil {
			err = errors.Join(err, p.databases.Close())
			p.cache.Unref()
			return nil, err
		}
	}
	self := s.directory.Identity()
	cluster := uint64(self.Cluster)
	s.cluster.Store(cluster)
	s.node.Store(id)
	p.pusher = txn.NewPushSender(txn.PushSenderConfig{Open: s.openPushes})
	after := s.config.AfterFunc
	if after == nil {
		p.alarms = alarm.New()
		after = p.alarms.AfterFunc
	}
	p.node, err = node.New(node.Config{
		ID: keys.NodeID(id), Cluster: cluster, Server: uint64(self.Server),
		Log: p.databases.Log, State: p.databases.State, Clock: s.clock,
		Metadata: reporting{s.core, s},
		Pusher:   p.pusher, Resolver: p.pusher,
		Logger: s.config.Logger, Registerer: registerer, Random: s.config.Random,
		Monotonic: s.config.Monotonic, AfterFunc: after, Gone: s.clients.Gone,
		ClientAddress: s.clients.ClientAddress,
		Tick:          s.config.Tick, ElectionTicks: s.config.ElectionTicks,
		SleepAfter:     s.config.SleepAfter,
		RetainLogBytes: s.config.RetainLogBytes, GCInterval: s.config.GCInterval,
		MaxPendingLogBytes: s.memory.RaftPending, MaxInboxBytes: s.memory.RaftInbox,
		Limits: config.Limits{TotalReadBytes: s.memory.Reads, TotalRecentBytes: s.memory.Recent},
	})
	if err != nil {
		p.pusher.Close()
		p.closeAlarms()
		p.cache.Unref()
		return nil, s.damaged(datadir.Node, errors.Join(err, p.databases.Close()))
	}
	p.transport = peer.NewTransport(peer.Config{
		Realm: realmData, Self: id, Cluster: func() uint64 { return cluster },
		Resolve: p.node.Resolve, Dialer: s.dialer,
		Handler: p.node.Handler(), Logger: s.config.Logger, Registry: prom.Registry(registerer),
		SnapshotBytesPerSecond: s.config.SnapshotBytesPerSecond,
		MaxQueuesBytes:         s.memory.PeerQueues,
	})
	if err := p.node.Start(s.config.filtered(realmData, p.transport, p.node.Resolve)); err != nil {
		return nil, s.damaged(datadir.Node, errors.Join(err, p.close()))
	}
	s.rpc.ServePeers(p.transport)
	return p, nil
}

// close stops the node; nothing must call it any more.
func (p *nodePart) close() error {
	p.pusher.Close()
	p.transport.Close()
	p.node.Close()
	p.closeAlarms()
	err := p.databases.Close()
	p.cache.Unref()
	return err
}

func (p *nodePart) closeAlarms() {
	if p.alarms != nil {
		p.alarms.Close()
	}
}

// openPushes makes the way from this node to the coordinators of transactions: a client's of its
// own cluster. It has a connection to each node that is apart from Raft's, and follows the
// partition table of any server that answers, itself first.
func (s *Server) openPushes() (txn.Sender, error) {
	endpoints := []string{s.config.Advertise}
	for _, address := range s.core.Core() {
		if address != s.config.Advertise {
			endpoints = append(endpoints, address)
		}
	}
	config := route.Config{Endpoints: endpoints, Dial: s.config.Dial, Random: s.config.Random,
		Logger: s.config.Logger, Server: true, Secret: s.peerSecret}
	if s.tls != nil {
		config.TLSNow = s.tls.Client
	}
	sender, err := route.New(config)
	if err != nil {
		return nil, fmt.Errorf("no way to other transactions' coordinators: %w", err)
	}
	return sender, nil
}

// register has the core give this directory a node id, or confirm the one it has. It tries until
// the context ends or the core refuses for good.
func (s *Server) register(ctx context.Context) (*clusterpb.RegisterNodeResponse, error) {
	self := s.directory.Identity()
	r, err := s.core.Register(ctx, &clusterpb.RegisterNodeRequest{
		Cluster: uint64(self.Cluster), Node: self.Node, Server: uint64(self.Server),
		Address: s.config.Advertise, HttpAddress: s.config.HTTP,
		Locality: &clusterpb.Locality{Region: s.config.Region, Zone: s.config.Zone},
		Tags:     s.config.Tags,
		Version:  s.config.Version, StartedUnix: time.Now().Unix(), Guard: s.auth.report(),
	})
	if err != nil {
		return nil, fmt.Errorf("joining the cluster with the directory %s: %w", s.config.Dir, err)
	}
	s.auth.Learn(r.Guard)
	return r, nil
}

// version is what the build says of itself.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
