package host

import (
	"fmt"
	"maps"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// A group's replicas come and go by entries of its log. The state machine says what its
// configuration is as of what it has applied, and Raft and the addresses follow it: changes wait in
// the inbox and are taken out of it before everything else, so before the answer that says that the
// entry is applied, and before messages that came later.
//
// A replica that lags behind a change may not know its leader. It learns where that is from its
// messages, which come from an authenticated host.

// maxLearned bounds the addresses that are learned from messages.
const maxLearned = 8

// changed is a change of the configuration that the state machine has applied.
type changed struct {
	entry *raftpb.Entry
	now   group.Configuration
}

// machineConfiguration is the state machine's configuration.
func (g *Group) machineConfiguration() group.Configuration {
	if m, ok := g.machine.(group.Configured); ok {
		return m.Configuration()
	}
	return g.founded
}

// Configuration is which replicas the group has, as of what is applied here.
func (g *Group) Configuration() *group.Configuration { return g.core.Configuration() }

// hosts says on which host each replica is. It is not changed.
func (g *Group) hosts() map[keys.ReplicaID]uint64 { return *g.addresses.Load() }

// alwaysAlone says whether this replica is the only voter, and was it when the process before this
// one ended: its state may be from before others came, and then the log has the change. Only then
// is there no other replica that it may have promised its faith. applied is the state's index.
func (g *Group) alwaysAlone(members *group.Configuration, applied uint64) (bool, error) {
	if !members.Quorum(func(r keys.ReplicaID) bool { return r == g.self }) {
		return false, nil
	}
	last, err := g.storage.LastIndex()
	if err != nil {
		return false, err
	}
	for next := applied + 1; next <= last; {
		entries, err := g.storage.Entries(next, last+1, 1<<20)
		if err != nil {
			return false, fmt.Errorf("group %s: reading what is not applied yet: %w", g.id, err)
		}
		if len(entries) == 0 {
			return false, fmt.Errorf("group %s: the log ends with entry %d, and lacks entry %d: %w", g.id,
				last, next, group.ErrImplausible)
		}
		for _, e := range entries {
			if e.GetType() != raftpb.EntryNormal {
				return false, nil
			}
		}
		next += uint64(len(entries))
	}
	return true, nil
}

// HostOf returns the host of a replica, 0 if it is not known.
func (g *Group) HostOf(id keys.ReplicaID) uint64 { return g.hosts()[id] }

// setMembers has the addresses follow a configuration. What was learned of replicas that are newer
// stays.
func (g *Group) setMembers(c *group.Configuration) {
	g.learning.Lock()
	defer g.learning.Unlock()
	next := make(map[keys.ReplicaID]uint64, len(c.Members))
	newest := keys.ReplicaID(0)
	for _, m := range c.Members {
		next[m.Replica] = m.Host
		newest = max(newest, m.Replica)
	}
	for id, host := range g.hosts() {
		if id > newest {
			next[id] = host
		}
	}
	g.setHosts(next)
}

// learn takes note of where a replica is that the configuration here does not have yet. It returns
// false if that cannot be.
func (g *Group) learn(id keys.ReplicaID, host uint64) bool {
	g.learning.Lock()
	defer g.learning.Unlock()
	now := g.hosts()
	if at := now[id]; at != 0 {
		return at == host
	}
	if id == 0 || host == 0 || len(now) >= len(g.Configuration().Members)+maxLearned {
		return false
	}
	next := maps.Clone(now)
	next[id] = host
	g.setHosts(next)
	return true
}

// setHosts replaces the addresses, and counts the peers anew. The caller holds g.learning.
func (g *Group) setHosts(next map[keys.ReplicaID]uint64) {
	old := g.hosts()
	g.addresses.Store(&next)
	if !g.counted {
		return
	}
	for _, host := range next {
		if host != g.host.config.Self {
			g.host.peers.add(host)
		}
	}
	for _, host := range old {
		if host != g.host.config.Self {
			g.host.peers.drop(host)
		}
	}
}

// count has the hosts of the replicas counted as peers, or not any more.
func (g *Group) count(counted bool) {
	g.learning.Lock()
	defer g.learning.Unlock()
	if g.counted == counted {
		return
	}
	g.counted = counted
	for _, host := range g.hosts() {
		switch {
		case host == g.host.config.Self:
		case counted:
			g.host.peers.add(host)
		default:
			g.host.peers.drop(host)
		}
	}
}

// takeChanges tells Raft of the changes that were applied. It runs on the shard worker.
func (g *Group) takeChanges(changes []changed) error {
	for _, c := range changes {
		if c.entry.GetIndex() <= g.steps.installed {
			continue // the snapshot has it, and perhaps later ones; this one was still being applied
		}
		if err := g.core.Changed(c.entry, c.now); err != nil {
			return err
		}
		g.reconfigured()
		g.host.config.Logger.Info("the replicas of a partition have changed", "partition", g.id,
			"replica", g.self, "replicas", g.Configuration().String())
	}
	return nil
}

// reconfigured follows the core's configuration.
func (g *Group) reconfigured() {
	c := g.Configuration()
	g.setMembers(c)
	if c.Changed {
		// A replica that was not there at the beginning cannot begin with the first entry: what was
		// before that is in no entry.
		g.storage.ForgetBeginning()
	}
}

// ForgetBeginning has replicas that have nothing be sent a snapshot: what the first entries were
// applied to is not what the partition is made of any more.
func (g *Group) ForgetBeginning() { g.storage.ForgetBeginning() }

// snapshotConfiguration is that of a snapshot that is sent or was received; false if it has none.
func snapshotConfiguration(s any) (group.Configuration, bool) {
	c, ok := s.(group.Configured)
	if !ok {
		return group.Configuration{}, false
	}
	return c.Configuration(), true
}

// checkConfiguration sees to it that a received snapshot has the configuration that its message
// says.
func checkConfiguration(s group.Staged, m *peerpb.RaftMessage) error {
	c, ok := snapshotConfiguration(s)
	if !ok {
		return nil
	}
	if !c.Is(m.GetSnapshot().GetConfState()) {
		return fmt.Errorf("the state has the configuration %s, and its message another one", &c)
	}
	return nil
}
