package embedded

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/deploy/embedded/coredisk"
	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/placement/server"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peer"
)

// corePart is a running member of the consistent core.
type corePart struct {
	// self is the member's replica id. registerer receives the member's metrics.
	self       keys.ReplicaID
	registerer prometheus.Registerer
	databases  *datadir.Databases
	host       *host.Host
	transport  *peer.Transport
	store      *store.Store
	server     *server.Server
	// coordination is the second store of the core's members.
	coordination coordinationPart
	disk         coredisk.Watch
}

// open opens a member of a group. It creates the member's log if there is none.
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

// ofStore adds a label that distinguishes the metrics of the core's two stores.
func ofStore(r prometheus.Registerer, name string) prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"store": name}, r)
}

// close stops everything that was started. Nothing may use the part any more.
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

// ownHealth implements membership.OwnHealth.
type ownHealth struct {
	c *coreMember
	p *corePart
}

// NotReady implements membership.OwnHealth.
func (o ownHealth) NotReady() []string { return o.c.notReady() }

// CoordinationErr implements membership.OwnHealth.
func (o ownHealth) CoordinationErr() error { return o.c.coordinationErr() }

// Disk implements membership.OwnHealth.
func (o ownHealth) Disk() membership.DiskState { return o.p.disk.State() }

// Delays implements membership.OwnHealth.
func (o ownHealth) Delays() membership.Delays {
	d := membership.Delays{ProcessorWait: o.p.host.ProcessorWait(),
		RoundTrips: map[uint64]time.Duration{}}
	for _, t := range o.p.host.RoundTrips() {
		d.RoundTrips[t.Host] = t.Took
	}
	return d
}
