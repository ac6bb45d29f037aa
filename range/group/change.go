package group

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// A configuration changes by an entry of the log: the state machine stores its configuration, and
// Raft is told of a change when the state machine has applied it. So the state, the applied index
// and the configuration agree at every moment, also after a crash that has rolled the state back.
//
// Raft's configurations count from when they are applied. That is safe because (a) a leader
// proposes no change before the one before it is applied, (b) a message that brings an entry brings
// the commit index too, which is stored with the entry, and (c) no replica campaigns while it has
// not applied a change that it knows to be committed. A replica that holds the entry which ends a
// joint configuration knows that the joint configuration is committed, and can be elected by both
// majorities only.

// ProposeChange appends an entry that changes the configuration, if this replica leads at term.
// data is for the state machine, whose configuration is next once it has applied data. The state
// machine may refuse the change; then nothing changes. The error is raft.ErrProposalDropped, or
// says that next is not one step away.
func (g *Group) ProposeChange(term uint64, data []byte, next Configuration) error {
	g.wakeUp(false)
	g.sleep.idle = 0
	if !g.isLeader || g.term != term {
		return raft.ErrProposalDropped
	}
	change, err := g.Configuration().stepTo(&next)
	if err != nil {
		return fmt.Errorf("group %s: %w", g.config.ID, err)
	}
	if !next.Electable(g.config.Self) {
		return fmt.Errorf("group %s: %s would end without its leader %s, which has to hand over before",
			g.config.ID, &next, g.config.Self)
	}
	change.Context = data
	encoded, err := proto.Marshal(change)
	if err != nil {
		return err
	}
	self := uint64(g.config.Self)
	m := &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: &self, Entries: []*raftpb.Entry{
		{Type: raftpb.EntryConfChangeV2.Enum(), Data: encoded}}}
	err = g.node.Step(m)
	if err == nil && m.Entries[0].GetType() != raftpb.EntryConfChangeV2 {
		// Raft knows of another change that is not applied yet, and has put an empty entry in its
		// place.
		return fmt.Errorf("group %s: %w: another change is under way", g.config.ID,
			raft.ErrProposalDropped)
	}
	return err
}

// DecodeChange returns the state machine's data of an entry that changes the configuration.
func DecodeChange(e *raftpb.Entry) ([]byte, error) {
	c := &raftpb.ConfChangeV2{}
	if err := proto.Unmarshal(e.GetData(), c); err != nil {
		return nil, fmt.Errorf("entry %d: a change of the configuration that cannot be read: %w",
			e.GetIndex(), err)
	}
	return c.Context, nil
}

// Changed tells Raft that the state machine has applied a change, and which configuration results.
// It is called before anything else happens in the group: before the answer that says that the
// entry is applied, and before further messages. It is not called for a change that the state
// machine has refused.
func (g *Group) Changed(e *raftpb.Entry, now Configuration) error {
	c := &raftpb.ConfChangeV2{}
	if err := proto.Unmarshal(e.GetData(), c); err != nil {
		return fmt.Errorf("entry %d: %w", e.GetIndex(), err)
	}
	if state := g.node.ApplyConfChange(c); !now.Agrees(state) {
		return fmt.Errorf("entry %d: the state has the configuration %s, and Raft has %v",
			e.GetIndex(), &now, state)
	}
	g.reconfigured(now)
	return nil
}

// Installed tells the group which configuration came with a snapshot that Raft has accepted.
func (g *Group) Installed(now Configuration) { g.reconfigured(now) }

func (g *Group) reconfigured(now Configuration) {
	now.Changed = true
	g.configuration.Store(&now)
	// The lease may become shorter, but readers may still rely on its former end. So the leader's
	// own promise lasts until that end, as the followers' promises do.
	g.leasePromise.keep(g.lease.expiry())
	g.lease.reconfigure(now, g.config.Self, g.isLeader, g.now)
	if now.Role(g.config.Self) == 0 {
		g.wakeUp(false)
	}
}
