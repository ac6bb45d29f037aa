package host

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/host/peers"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// addresses maps each replica of a group to its host, and counts these hosts as peers. The map
// follows the configuration. A replica that lags behind a change of the configuration may not know
// its leader: it learns the leader's host from the leader's messages, which come from an
// authenticated host.
type addresses struct {
	// at holds the map. A change stores a new map; a stored map is never changed.
	at atomic.Pointer[map[keys.ReplicaID]uint64]
	// own is the id of this host, which is not counted as a peer.
	own   uint64
	peers *peers.Peers
	// changing is held while at is replaced.
	changing sync.Mutex
	// counted is true while the hosts are counted as peers. Guarded by changing.
	counted bool
}

// maxLearned bounds the number of addresses learned from messages.
const maxLearned = 8

func (a *addresses) init(own uint64, p *peers.Peers) {
	a.at.Store(&map[keys.ReplicaID]uint64{})
	a.own, a.peers = own, p
}

// hosts returns the map from replicas to hosts. The caller must not change it.
func (a *addresses) hosts() map[keys.ReplicaID]uint64 { return *a.at.Load() }

// HostOf returns the host of a replica, 0 if it is not known.
func (a *addresses) HostOf(id keys.ReplicaID) uint64 { return a.hosts()[id] }

// on returns the replica that is on a host; false if no replica is.
func (a *addresses) on(host uint64) (keys.ReplicaID, bool) {
	for id, at := range a.hosts() {
		if at == host {
			return id, true
		}
	}
	return 0, false
}

// onAny says whether a replica is on one of the hosts.
func (a *addresses) onAny(hosts []uint64) bool {
	for _, host := range hosts {
		if _, member := a.on(host); member {
			return true
		}
	}
	return false
}

// follow sets the addresses to those of a configuration. Learned addresses of replicas that are
// newer than the configuration stay.
func (a *addresses) follow(c *group.Configuration) {
	a.changing.Lock()
	defer a.changing.Unlock()
	next := make(map[keys.ReplicaID]uint64, len(c.Members))
	newest := keys.ReplicaID(0)
	for _, m := range c.Members {
		next[m.Replica] = m.Host
		newest = max(newest, m.Replica)
	}
	for id, host := range a.hosts() {
		if id > newest {
			next[id] = host
		}
	}
	a.setLocked(next)
}

// learn records the host of a replica that this host's configuration, with that many members, does
// not contain yet. It returns false if the replica cannot be on that host.
func (a *addresses) learn(id keys.ReplicaID, host uint64, members int) bool {
	a.changing.Lock()
	defer a.changing.Unlock()
	now := a.hosts()
	if at := now[id]; at != 0 {
		return at == host
	}
	if id == 0 || host == 0 || len(now) >= members+maxLearned {
		return false
	}
	next := maps.Clone(now)
	next[id] = host
	a.setLocked(next)
	return true
}

// setLocked replaces the addresses and updates the counts of the peers.
func (a *addresses) setLocked(next map[keys.ReplicaID]uint64) {
	old := a.hosts()
	a.at.Store(&next)
	if a.counted {
		a.each(next, a.peers.Add)
		a.each(old, a.peers.Drop)
	}
}

// count adds the hosts of the replicas to the peers, or removes them.
func (a *addresses) count(counted bool) {
	a.changing.Lock()
	defer a.changing.Unlock()
	switch {
	case a.counted == counted:
	case counted:
		a.each(a.hosts(), a.peers.Add)
	default:
		a.each(a.hosts(), a.peers.Drop)
	}
	a.counted = counted
}

// each calls visit for the host of each replica but this host.
func (a *addresses) each(of map[keys.ReplicaID]uint64, visit func(host uint64)) {
	for _, host := range of {
		if host != a.own {
			visit(host)
		}
	}
}
