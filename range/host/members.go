package host

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// A group's replicas come and go by entries of its log. The state machine knows the configuration
// as of what it has applied, and Raft and the addresses follow the state machine. Changes wait in
// the inbox, and a pass takes them out first: before the answer that says that the entry is
// applied, and before messages that came later.

// machineConfiguration returns the state machine's configuration.
func (g *Group) machineConfiguration() group.Configuration {
	if m, ok := g.machine.(group.Configured); ok {
		return m.Configuration()
	}
	return g.founded
}

// alwaysAlone reports whether this replica is the only voter, and was the only voter when the
// former process ended. The state may be older than a change that added other voters; the log then
// contains that change. Only a replica that was always alone can have promised nothing to another
// one. applied is the state's index.
func (g *Group) alwaysAlone(members *group.Configuration, applied uint64) (bool, error) {
	if !members.Quorum(func(r keys.ReplicaID) bool { return r == g.Self() }) {
		return false, nil
	}
	last, err := g.storage.LastIndex()
	if err != nil {
		return false, err
	}
	for next := applied + 1; next <= last; {
		entries, err := g.storage.Entries(next, last+1, 1<<20)
		if err != nil {
			return false, fmt.Errorf("group %s: reading what is not applied yet: %w", g.ID(), err)
		}
		if len(entries) == 0 {
			return false, fmt.Errorf("group %s: the log ends with entry %d, and lacks entry %d: %w", g.ID(),
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

// takeChanges tells Raft which changes were applied. It runs on the shard worker.
func (g *Group) takeChanges(changes []changed) error {
	for _, c := range changes {
		if c.entry.GetIndex() <= g.installed {
			continue // a snapshot with this change, or later ones, was installed meanwhile
		}
		if err := g.core.Changed(c.entry, c.now); err != nil {
			return err
		}
		g.reconfigured()
		g.host.config.Logger.Info("the replicas of a partition have changed", "partition", g.ID(),
			"replica", g.Self(), "replicas", g.Configuration().String())
	}
	return nil
}

// reconfigured updates the addresses and the log after a change of the core's configuration.
func (g *Group) reconfigured() {
	c := g.Configuration()
	g.addresses.follow(c)
	if c.Changed {
		// A replica that was added later cannot start from the first entry, because entries do not
		// contain the state from before the first one.
		g.storage.ForgetBeginning()
	}
}

// ForgetBeginning makes empty replicas start from a snapshot instead of from the first entry: the
// partition's state is no longer what the entries alone would make.
func (g *Group) ForgetBeginning() { g.storage.ForgetBeginning() }

// snapshotConfiguration returns the configuration of a snapshot that is sent or was received; false
// if the snapshot has none.
func snapshotConfiguration(s any) (group.Configuration, bool) {
	c, ok := s.(group.Configured)
	if !ok {
		return group.Configuration{}, false
	}
	return c.Configuration(), true
}

// checkConfiguration checks that a received snapshot has the configuration that its message says.
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
