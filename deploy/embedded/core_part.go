package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/deploy/embedded/coredisk"
	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/placement/bootstrap"
	"github.com/tidemarkdb/tidemark/placement/server"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/rpc/metric/prom"
	"github.com/tidemarkdb/tidemark/rpc/peer"
)

// corePart is a server's membership of the consistent core.
type corePart struct {
	databases *datadir.Databases
	host      *host.Host
	transport *peer.Transport
	store     *store.Store
	server    *server.Server
	// coordination is the second store of the core's members.
	coordination coordinationPart
	disk         coredisk.Watch
}

// startCore starts this server's member of the core.
func (s *Server) startCore(m *bootstrap.Membership) (_ *corePart, err error) {
	if err := s.directory.Join(m.Cluster); err != nil {
		return nil, err
	}
	self := keys.ReplicaID(m.Replica)
	identity := raftlog.Identity{Group: keys.CorePartition, Replica: self}
	// INVARIANT: only the members with which the core was founded know voters before they have a
	// state. Another one that did, and had nothing, would vote.
	var founding *storepb.Members
	if m.Founding != nil {
		founding = membership.StoredMembers(m.Founding)
		for _, x := range m.Founding {
			identity.Voters = append(identity.Voters, keys.ReplicaID(x.Replica))
		}
	}
	s.cluster.Store(m.Cluster)

	p := &corePart{}
	defer func() {
		if err != nil {
			err = s.damaged(datadir.Core, errors.Join(err, p.close()))
		}
	}()
	registerer := prometheus.WrapRegistererWith(prometheus.Labels{"part": "core"},
		s.config.Registry)
	if p.databases, err = s.openDatabases(datadir.Core, datadir.DatabaseSizes{
		LogMemTable: s.memory.CoreLogMemTable, LogCache: s.memory.CoreLogCache,
		MemTable: s.memory.CoreMemTable, Cache: s.memory.CoreCache}, nil, registerer); err != nil {
		return nil, err
	}
	if err := s.directory.BecomeCore(); err != nil {
		return nil, err
	}
	p.store, err = store.New(store.Config{
		State: p.databases.State, Founding: founding, Random: randomReader(s.config.Random),
		Monotonic: s.config.Monotonic, Logger: s.config.Logger, MembersKnow: store.LeastFormat,
		Registerer: ofStore(registerer, "placement"), MaxPendingBytes: s.memory.Commands,
		Memory: storeMemory(s.memory),
	})
	if err != nil {
		return nil, err
	}
	p.host, err = host.New(host.Config{
		Self: uint64(self), Log: p.databases.Log, Clock: s.config.clock(), BelievesClock: true,
		Tick: s.config.Tick, ElectionTicks: s.config.ElectionTicks,
		// Each of the two groups can have an apply worker of its own.
		SleepAfter: -1, Shards: 1, ApplyWorkers: 2, Logger: s.config.Logger, Registerer: registerer,
		MaxPendingLogBytes: s.memory.CoreRaftPending, MaxInboxBytes: s.memory.CoreRaftInbox,
		Random:    s.config.Random,
		Monotonic: s.config.Monotonic,
		OnFailed: func(id keys.PartitionID, err error) {
			switch {
			case s.ctx.Err() != nil: // on a full disk it ends like this when the server is closed
			case id == keys.CoordinationPartition:
				s.coordinationFailed(err)
			default:
				s.failed(fmt.Errorf("the consistent core's member failed: %w", err))
			}
		},
	})
	if err != nil {
		return nil, err
	}
	s.members.Begin(p.store, p.coordination.Store, m.Known)
	resolve := s.members.Resolve
	p.transport = peer.NewTransport(peer.Config{
		Realm: realmCore, Self: uint64(self),
		Cluster: func() uint64 { return m.Cluster },
		Resolve: resolve, Dialer: s.dialer, Handler: p.host,
		Logger: s.config.Logger, Registry: prom.Registry(registerer),
		MaxQueuesBytes: s.memory.PeerQueues,
	})
	g, err := p.open(host.GroupConfig{Identity: identity}, p.store)
	if err != nil {
		return nil, err
	}
	p.host.Start(s.config.filtered(realmCore, p.transport, resolve))
	p.disk.Start(s.ctx, p.host, func() bool {
		n := s.dataNode()
		return n != nil && n.DiskSlow()
	})
	g.Wake()
	p.server, err = server.New(server.Config{
		Store: p.store, Cluster: m.Cluster, Members: m.Known, Group: g, Hello: s.helloTo,
		Self:         s.versionKnown(),
		Coordination: !s.config.withoutCoordination,
		Inform:       s.informOf, Wake: s.wakeNode, Proves: s.auth.provesServer,
		Check: s.checkMember, NotReady: s.notReady, CoordinationErr: s.CoordinationErr,
		Disk:   p.disk.State,
		Silent: p.host.Peers().Down, Averse: p.host.Peers().LeaderAverse,
		Planner: s.config.Planner, MaxClockAhead: s.config.clock().MaxAhead(),
		Physical: s.config.Physical, Monotonic: s.config.Monotonic,
		Logger: s.config.Logger, Registerer: registerer,
	})
	if err != nil {
		return nil, err
	}
	s.rpc.ServePeers(p.transport)
	if err := s.startCoordination(p, self, registerer); err != nil {
		return nil, err
	}
	return p, nil
}

// open opens a member of a group, and makes its log if there is none.
func (p *corePart) open(c host.GroupConfig, s *store.Store) (*host.Group, error) {
	_, known, err := p.host.Log().Identity(c.Identity.Group)
	if err != nil {
		return nil, err
	}
	if err := p.host.Log().Create(c.Identity); err != nil {
		return nil, err
	}
	c.New = !known
	c.Open = func(g *host.Group) (group.StateMachine, error) {
		s.SetGroup(g)
		return s, nil
	}
	return p.host.Open(c)
}

// ofStore tells the metrics of the core's two stores apart.
func ofStore(r prometheus.Registerer, name string) prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"store": name}, r)
}

// close stops what was started; nothing must call it any more.
func (p *corePart) close() error {
	p.disk.Close()
	p.coordination.endWait()
	if p.server != nil {
		p.server.Close()
	}
	if p.transport != nil {
		p.transport.Close()
	}
	if p.host != nil {
		p.host.Close()
	}
	if p.store != nil {
		p.store.Close()
	}
	p.coordination.close()
	if p.databases != nil {
		return p.databases.Close()
	}
	return nil
}

// randomReader makes a byte source of a source of numbers.
type randomReader func() uint64

func (r randomReader) Read(b []byte) (int, error) {
	for i := 0; i < len(b); i += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], r())
		copy(b[i:], word[:])
	}
	return len(b), nil
}

// openDatabases opens the stores of a part of the server.
func (s *Server) openDatabases(part string, sizes datadir.DatabaseSizes, cache *pebble.Cache,
	registerer prometheus.Registerer) (*datadir.Databases, error) {
	return s.directory.OpenDatabases(part, datadir.DatabasesConfig{Logger: s.config.Logger,
		MinFreeBytes: s.config.MinFreeBytes, MemberOfCore: s.config.has(RoleCore), Sizes: sizes,
		Cache: cache, Registerer: registerer, OnFailure: s.diskFailed, Leaving: s.ctx.Done()})
}

// damaged says what can be done if a part of the server does not open for a damaged file.
func (s *Server) damaged(part string, err error) error {
	return s.directory.Damaged(part, s.config.has(RoleCore), err)
}
