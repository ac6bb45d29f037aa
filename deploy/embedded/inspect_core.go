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

func leads(g *host.Group) bool {
	if g == nil {
		return false
	}
	leader, _ := g.Leader()
	return leader == g.Self()
}

// LeadsCore reports whether this server's member leads the consistent core.
func (s *Server) LeadsCore() bool { return leads(s.member.group(keys.CorePartition)) }

// LeadsCoordination reports whether this server's member leads the coordination store.
func (s *Server) LeadsCoordination() bool {
	return leads(s.member.group(keys.CoordinationPartition))
}

// TransferCoordination makes this server's member transfer the leadership of the coordination store
// to another member. It does nothing if the member does not lead.
func (s *Server) TransferCoordination(to uint64) {
	if g := s.member.group(keys.CoordinationPartition); leads(g) {
		_, term := g.Leader()
		g.TransferLeader(term, keys.ReplicaID(to))
	}
}

// CoordinationMembers returns the members of the coordination store in the applied state of this
// server, and the version of their record. It returns nil if the store is not open here.
func (s *Server) CoordinationMembers() (version uint64, members []uint64) {
	coordination := s.member.coordination()
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
	coordination := s.member.coordination()
	if coordination == nil {
		return ErrNoCoordination
	}
	_, err := coordination.Execute(ctx, store.If(nil, []*storepb.Op{store.Put(key, value)}, nil))
	return err
}

// GetCoordination reads a key of the coordination store from the applied state of this server,
// which may lag behind. It returns nil if the key does not exist.
func (s *Server) GetCoordination(key []byte) ([]byte, error) {
	coordination := s.member.coordination()
	if coordination == nil {
		return nil, ErrNoCoordination
	}
	kv, err := coordination.Stale().Get(key)
	return kv.GetValue(), err
}

// CoordinationErr returns the error with which this server's part of the coordination store failed,
// or nil.
func (s *Server) CoordinationErr() error { return s.member.coordinationErr() }

// CoreMember reports whether this server runs a member of the core.
func (s *Server) CoreMember() bool { return s.member.part.Load() != nil }

// CoreLeader returns the address of the core's leader, as far as this server's member of the core
// knows. It is empty if the member does not know it, or if there is no member.
func (s *Server) CoreLeader() string {
	if core := s.member.server(); core != nil {
		return core.LeaderAddress()
	}
	return ""
}
