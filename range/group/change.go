package group

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// A configuration changes by an entry of the log, like everything else: the state machine says what
// its configuration is, and Raft is told of a change when that has applied it. So the state, the
// applied index and the configuration agree at every moment, also after a crash that has rolled the
// state back.
//
// Raft's configurations count from when they are applied. That is safe because (a) a leader
// proposes no change before the one before it is applied, (b) a message that brings an entry brings
// the commit index too, and it is stored with it, and (c) no replica campaigns with a change that
// it knows to be committed and has not applied: one that holds the entry which ends a joint
// configuration knows that the joint one is committed, and can be elected by both majorities only.

// ProposeChange appends an entry that changes the configuration, if this replica leads at term.
// data is for the state machine, whose configuration is next when it has applied it; it may refuse
// it, and then nothing changes. An error says that next is not one step away, or is
// raft.ErrProposalDropped.
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

// DecodeChange gives the state machine's part of an entry that changes the configuration.
func DecodeChange(e *raftpb.Entry) ([]byte, error) {
	c := &raftpb.ConfChangeV2{}
	if err := proto.Unmarshal(e.GetData(), c); err != nil {
		return nil, fmt.Errorf("entry %d: a change of the configuration that cannot be read: %w",
			e.GetIndex(), err)
	}
	return c.Context, nil
}

// Changed tells Raft that the state machine has applied a change, and what its configuration is
// now. It is called before anything else happens in the group: before the answer that says that
// the entry is applied, and before further messages. A change that the state machine has refused
// is not told.
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
	// The lease may become shorter. What counts on it as it stood goes on to: the leader's own
	// promise lasts as long as those that it was made of.
	g.leasePromise.keep(g.lease.expiry())
	g.lease.reconfigure(now, g.config.Self, g.isLeader, g.now)
	if now.Role(g.config.Self) == 0 {
		g.wakeUp(false)
	}
}
