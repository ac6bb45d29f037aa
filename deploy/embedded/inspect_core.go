package embedded

import (
	"context"
	"errors"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// ErrNoCoordination is returned by a server that has no part of the coordination store.
var ErrNoCoordination = errors.New("the coordination store is not open here")

// coreGroupOf is a group of this server's member of the core; nil if it is not open.
func (s *Server) coreGroupOf(id keys.PartitionID) *host.Group {
	s.parts.Lock()
	defer s.parts.Unlock()
	if s.parts.core == nil {
		return nil
	}
	return s.parts.core.host.Group(id)
}

func leads(g *host.Group) bool {
	if g == nil {
		return false
	}
	leader, _ := g.Leader()
	return leader == g.Self()
}

// LeadsCore says whether this server's member leads the consistent core.
func (s *Server) LeadsCore() bool { return leads(s.coreGroupOf(keys.CorePartition)) }

// LeadsCoordination says whether this server's member leads the coordination store.
func (s *Server) LeadsCoordination() bool {
	return leads(s.coreGroupOf(keys.CoordinationPartition))
}

// TransferCoordination has this server's member hand the lead of the coordination store to another
// one; nothing happens if it does not lead.
func (s *Server) TransferCoordination(to uint64) {
	if g := s.coreGroupOf(keys.CoordinationPartition); leads(g) {
		_, term := g.Leader()
		g.TransferLeader(term, keys.ReplicaID(to))
	}
}

// CoordinationMembers are the members of the coordination store, as of what is applied here, and
// the version of their record; nil if the store is not open here.
func (s *Server) CoordinationMembers() (version uint64, members []uint64) {
	coordination := s.coordinationStore()
	if coordination == nil {
		return 0, nil
	}
	record := coordination.Members()
	for _, m := range record.GetMembers() {
		if m.Role == storepb.MemberRole_VOTER {
			members = append(members, m.Replica)
		}
	}
	return record.GetVersion(), members
}

// PutCoordination writes a key of the coordination store, on any member.
func (s *Server) PutCoordination(ctx context.Context, key, value []byte) error {
	coordination := s.coordinationStore()
	if coordination == nil {
		return ErrNoCoordination
	}
	_, err := coordination.Execute(ctx, store.If(nil, []*storepb.Op{store.Put(key, value)}, nil))
	return err
}

// GetCoordination reads a key of the coordination store from what is applied here, which may lag
// behind; nil if it does not exist.
func (s *Server) GetCoordination(key []byte) ([]byte, error) {
	coordination := s.coordinationStore()
	if coordination == nil {
		return nil, ErrNoCoordination
	}
	kv, err := coordination.Stale().Get(key)
	return kv.GetValue(), err
}

// coordinationStore is this server's part of the coordination store; nil if it is not open.
func (s *Server) coordinationStore() *store.Store {
	s.parts.Lock()
	defer s.parts.Unlock()
	if s.parts.core == nil {
		return nil
	}
	return s.parts.core.coordination.Store()
}
