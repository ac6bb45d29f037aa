package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/deploy/embedded/spacealarm"
	"github.com/tidemarkdb/tidemark/placement/etcdapi"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/watches"
	"github.com/tidemarkdb/tidemark/placement/server/coordination"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// coordinationName is what errors and logs call the second store of the core's members.
const coordinationName = "the coordination store"

// coordinationMaxTouched is how many keys one command of the coordination store may delete, read or
// compare, and a lease may have. It is what clients of etcd expect to be able to do at once, as far
// as it stops the others for a second or two at most.
const coordinationMaxTouched = 100_000

// coordinationMaxWatchers bounds the watches that a member serves. They take some 270 bytes each.
const coordinationMaxWatchers = 1_000_000

// foundingLook is how often a member looks whether the coordination store is founded.
const foundingLook = 100 * time.Millisecond

// coordinationPart is a member's part of the coordination store: a second store, with a Raft group
// of its own, on the host and in the databases of the member of the core. It opens when the member
// has applied the record that founds it (server.CoordinationFounding).
type coordinationPart struct {
	// store is nil until it is open.
	store atomic.Pointer[store.Store]
	// services are those of the etcd API; nil until the store is open.
	services atomic.Pointer[etcdapi.Services]
	// watch is the watch service over it; nil until it is open.
	watch atomic.Pointer[watches.Server]
	// spaceAlarm raises alarms for want of room; nil until the store is open.
	spaceAlarm atomic.Pointer[spacealarm.Alarm]
	// end ends the wait for the founding, and waiting is that; nil without.
	end     context.CancelFunc
	waiting sync.WaitGroup
}

// Store returns the coordination store; nil until it is open.
func (c *coordinationPart) Store() *store.Store { return c.store.Load() }

// endWait ends the wait for the founding, and alarms for want of room. Nothing opens after it.
func (c *coordinationPart) endWait() {
	if c.end != nil {
		c.end()
		c.waiting.Wait()
	}
	if r := c.spaceAlarm.Load(); r != nil {
		r.Close()
	}
}

// close closes the store, whose group has stopped, which ends all watches.
func (c *coordinationPart) close() {
	if s := c.services.Load(); s != nil {
		s.Close()
	}
	if s := c.store.Load(); s != nil {
		s.Close()
	}
	if w := c.watch.Load(); w != nil {
		w.Wait()
	}
}

// startCoordination opens the coordination store of a member of the core, or has it opened when it
// is founded.
func (s *Server) startCoordination(p *corePart, self keys.ReplicaID,
	registerer prometheus.Registerer) error {
	if s.config.withoutCoordination {
		return nil
	}
	founding, err := membership.CoordinationFounding(p.store)
	if err != nil {
		return err
	}
	if founding != nil {
		err := s.openCoordination(p, self, founding, registerer)
		if errors.Is(err, group.ErrImplausible) {
			s.coordinationFailed(err)
			err = nil
		}
		return err
	}
	var ctx context.Context
	ctx, p.coordination.end = context.WithCancel(s.ctx)
	p.coordination.waiting.Go(func() {
		for pause(ctx, foundingLook) {
			founding, err := membership.CoordinationFounding(p.store)
			if err == nil && founding != nil {
				err = s.openCoordination(p, self, founding, registerer)
			}
			switch {
			case err != nil && ctx.Err() == nil:
				s.failed(fmt.Errorf("opening %s: %w", coordinationName, err))
				return
			case founding != nil:
				return
			}
		}
	})
	return nil
}

// coordinationFailed leaves this member's part of the coordination store alone, until the server
// starts again. The core's own group, and a data node, go on: whatever clients have brought into
// the coordination store, the metadata does not depend on it.
func (s *Server) coordinationFailed(err error) {
	s.coordinationBroken.CompareAndSwap(nil, &err)
	s.services.etcd.end()
	s.config.Logger.Error("THIS MEMBER'S PART OF THE COORDINATION STORE FAILED and is left alone; "+
		"the core goes on", "error", err)
}

// waitCoordination waits until a member of the core answers the etcd API. A server that is upgraded
// may not do so for long, so its readiness does not depend on it; that of a whole cluster does.
func (s *Server) waitCoordination(ctx context.Context) error {
	for s.config.has(RoleCore) && !s.config.withoutCoordination &&
		s.services.etcd.serving.Load() == nil {
		if err := s.CoordinationErr(); err != nil {
			return fmt.Errorf("%s failed: %w", coordinationName, err)
		}
		if !pause(ctx, foundingLook/5) {
			return fmt.Errorf("%w while waiting for %s to open", context.Cause(ctx), coordinationName)
		}
	}
	return nil
}

// CoordinationErr returns why this server's part of the coordination store failed; nil if it has
// not.
func (s *Server) CoordinationErr() error {
	if p := s.coordinationBroken.Load(); p != nil {
		return *p
	}
	return nil
}

// openCoordination opens the coordination store, which was founded with these members.
//
// INVARIANT: a member that has a log of the coordination store has the record of its founding,
// durably: that is flushed before the log is made. So no state, however old after a crash, makes
// it open as anything else than before, and it opens as soon as the server starts.
func (s *Server) openCoordination(p *corePart, self keys.ReplicaID, founding *storepb.Members,
	registerer prometheus.Registerer) error {
	identity := raftlog.Identity{Group: keys.CoordinationPartition, Replica: self}
	// INVARIANT: only founders know voters before they have a state. Another one that did, and had
	// nothing, would vote. See server.CoordinationFounding.
	if slices.ContainsFunc(founding.Members, func(m *storepb.Member) bool {
		return m.Replica == uint64(self)
	}) {
		for _, m := range founding.Members {
			identity.Voters = append(identity.Voters, keys.ReplicaID(m.Replica))
		}
	} else {
		founding = nil
	}
	_, known, err := p.host.Log().Identity(identity.Group)
	if err == nil && !known {
		err = p.databases.State.Flush()
	}
	if err != nil {
		return err
	}
	opened, err := store.New(store.Config{
		State: p.databases.State, Partition: identity.Group, Name: coordinationName,
		Founding: founding, Random: randomReader(s.config.Random), Monotonic: s.config.Monotonic,
		GroupCommands: true, MembersKnow: store.LeastFormat, MaxTouched: coordinationMaxTouched,
		MaxWatchers: coordinationMaxWatchers, HistoryFor: s.config.CoreHistory,
		Logger: s.config.Logger, Registerer: ofStore(registerer, "coordination"),
		MaxPendingBytes: s.memory.Commands, Memory: storeMemory(s.memory),
		Peers: &coordination.Peers{Cluster: s.cluster.Load(), Conn: s.dialer.Conn,
			Resolve: s.members.Resolve},
	})
	if err != nil {
		return err
	}
	g, err := p.open(host.GroupConfig{Identity: identity, TellCommits: true}, opened)
	if err != nil {
		opened.Close()
		return err
	}
	p.coordination.store.Store(opened)
	p.server.Membership().OpenCoordination(membership.Coordination{Store: opened, Group: g})
	g.Wake()
	return s.serveEtcd(p, g, registerer)
}
