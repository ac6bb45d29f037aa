package membership

import (
	"context"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/server/membership/roster"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// The coordination store is a second store on the members of the core, with a Raft group of its own
// (keys.CoordinationPartition). It is founded once: the leader of the core writes a record of the
// present members, and each member opens its part when it has applied the record. A new core, and a
// core that is older than the coordination store, get it in the same way.
//
// INVARIANT: a member that was filled by a snapshot or log later never counts as a founder of the
// coordination store.
//
//    - The record is written on the condition that there is none, and never changed; so all see the
//      same founders.
//    - Founders are identified by their replica ids. An id is given to one data directory, once; a
//      directory that was lost or emptied returns under another id. A later id is in no record.
//    - A founder that has nothing of the coordination store has never had anything of it: its log
//      is made, synced, before the founder takes part, and lies in the same database as that of the
//      core's own group, without which the directory is not opened.
//    - A member that continues alone after the loss of the others gets another id (package
//      embedded, recovery), and so is no founder either, whatever the record says.
//
// The record is written while no change of members is under way. So all members in the record are
// voters and founders. Later members are added by entries of the coordination store's own log.

// CoordinationFounding returns the members with which the coordination store was founded, according
// to the applied state of a member's own store. It returns nil if that state has no founding.
func CoordinationFounding(core *store.Store) (*storepb.Members, error) {
	founding, _, err := loadCoordinationFounding(core.Stale())
	return founding, err
}

func loadCoordinationFounding(v *store.View) (*storepb.Members, uint64, error) {
	m := &storepb.Members{}
	revision, err := meta.Load(v, []byte(meta.CoordinationKey), m)
	if err != nil || revision == 0 {
		return nil, 0, err
	}
	return m, revision, nil
}

// foundCoordination founds the coordination store if it is not founded and founding is possible:
// the members are not changing, and all members that answer know the coordination store. A member
// that does not answer may run a version that does not know the store. Until it is upgraded it
// takes no part in the store, as if it were down. The stepper calls foundCoordination with the
// turn, while no change is under way. soon is set if founding may become possible soon.
func (s *Membership) foundCoordination(ctx context.Context, v *store.View) (soon bool, err error) {
	if !s.config.Coordination {
		return false, nil
	}
	founding, _, err := loadCoordinationFounding(v)
	if err != nil || founding != nil {
		return false, err
	}
	members := s.store.Members()
	for _, m := range members.GetMembers() {
		if m.Role != storepb.MemberRole_VOTER {
			return true, nil
		}
	}
	for _, m := range members.GetMembers() {
		if s.config.Peers.Down(m.Replica) {
			continue
		}
		h, err := s.hello(ctx, m.Address)
		switch {
		case err != nil:
			return true, nil // the member will soon be silent or answer
		case !h.Coordination:
			s.tellCore("the coordination store is not founded yet", "the member of the core at "+
				m.Address+" runs a version that does not know of it")
			return false, nil
		}
	}
	ok, err := s.meta.Commit(ctx,
		[]*storepb.Compare{store.ModifiedAt([]byte(meta.CoordinationKey), 0),
			store.ModifiedAt([]byte(meta.CoreGoalKey), 0)},
		store.Put([]byte(meta.CoordinationKey), meta.Encode(members)))
	if ok {
		s.config.Logger.Debug("the coordination store is founded", "members", roster.List(members))
	}
	return err != nil || !ok, err
}

// StoredMembers converts the members of a founding to the store's form.
func StoredMembers(founding []*clusterpb.CoreMember) *storepb.Members {
	m := &storepb.Members{NextReplica: 1}
	for _, x := range founding {
		m.Members = append(m.Members, &storepb.Member{Replica: x.Replica, Server: x.Server,
			Address: x.Address, Role: storepb.MemberRole(x.Role)})
		m.NextReplica = max(m.NextReplica, x.Replica+1)
	}
	slices.SortFunc(m.Members, func(a, b *storepb.Member) int {
		return int(a.Replica) - int(b.Replica)
	})
	return m
}
