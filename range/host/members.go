package host

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// A group's replicas come and go by entries of its log. The state machine says what its
// configuration is as of what it has applied, and Raft and the addresses follow it: changes wait in
// the inbox and are taken out of it before everything else, so before the answer that says that the
// entry is applied, and before messages that came later.

// machineConfiguration is the state machine's configuration.
func (g *Group) machineConfiguration() group.Configuration {
	if m, ok := g.machine.(group.Configured); ok {
		return m.Configuration()
	}
	return g.founded
}

// alwaysAlone says whether this replica is the only voter, and was it when the process before this
// one ended: its state may be from before others came, and then the log has the change. Only then
// is there no other replica that it may have promised its faith. applied is the state's index.
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

// takeChanges tells Raft of the changes that were applied. It runs on the shard worker.
func (g *Group) takeChanges(changes []changed) error {
	for _, c := range changes {
		if c.entry.GetIndex() <= g.installed {
			continue // the snapshot has it, and perhaps later ones; this one was still being applied
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

// reconfigured follows the core's configuration.
func (g *Group) reconfigured() {
	c := g.Configuration()
	g.addresses.follow(c)
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
