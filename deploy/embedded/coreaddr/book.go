package coreaddr

import (
	"sync"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// maxHeard limits the servers whose own announcements are remembered.
const maxHeard = 64

// Book has the addresses of the core's members, from three sources: the record in the store, which
// the leader maintains; the leader's last answer, which a member that lags does not have in its
// store yet; and the announcements of the members themselves. Through announcements, members find
// one another when so many have moved that the others are not a quorum.
type Book struct {
	mu    sync.Mutex
	store *store.Store
	// coordination returns the coordination store. It returns nil until the store is open.
	coordination func() *store.Store
	// told is the list of members at the start of this server, or the leader's last answer.
	told *clusterpb.CoreMembers
	// heard holds announced addresses by server id.
	heard map[uint64]heardAddress
}

// heardAddress is valid until the record of members differs from the record at that time.
type heardAddress struct {
	address string
	version uint64
}

// Begin sets the sources.
func (a *Book) Begin(s *store.Store, coordination func() *store.Store,
	known []*clusterpb.CoreMember) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.store, a.coordination = s, coordination
	if a.told == nil {
		a.told = &clusterpb.CoreMembers{Members: known}
	}
}

// Tell stores the leader's answer.
func (a *Book) Tell(m *clusterpb.CoreMembers) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(m.GetMembers()) > 0 && m.Version >= a.told.GetVersion() {
		a.told = m
	}
}

// Hear stores a server's announcement.
func (a *Book) Hear(h *clusterpb.BootstrapHello) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.heard == nil {
		a.heard = map[uint64]heardAddress{}
	}
	if _, ok := a.heard[h.Server]; !ok && len(a.heard) >= maxHeard {
		clear(a.heard) // valid announcements are soon repeated
	}
	a.heard[h.Server] = heardAddress{h.Address, a.versionLocked()}
}

func (a *Book) versionLocked() uint64 {
	return max(a.recordLocked().GetVersion(), a.told.GetVersion())
}

func (a *Book) recordLocked() *storepb.Members {
	if a.store == nil {
		return nil
	}
	return a.store.Members()
}

// Resolve returns the address of a member.
func (a *Book) Resolve(replica uint64) (string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var server uint64
	address := ""
	for _, m := range a.told.GetMembers() {
		if m.Replica == replica {
			server, address = m.Server, m.Address
		}
	}
	if record := a.recordLocked(); record.GetVersion() >= a.told.GetVersion() {
		for _, m := range record.GetMembers() {
			if m.Replica == replica {
				server, address = m.Server, m.Address
			}
		}
	}
	if address == "" {
		server, address = a.leavingLocked(replica)
	}
	if h, ok := a.heard[server]; ok && server != 0 && h.version == a.versionLocked() {
		address = h.address
	}
	return address, address != ""
}

// leavingLocked finds a member that only the coordination store still has.
func (a *Book) leavingLocked(replica uint64) (server uint64, address string) {
	if a.coordination == nil {
		return 0, ""
	}
	if s := a.coordination(); s != nil {
		for _, m := range s.Members().GetMembers() {
			if m.Replica == replica {
				return m.Server, m.Address
			}
		}
	}
	return 0, ""
}

// All returns the addresses of all known members.
func (a *Book) All() (list []string) {
	a.mu.Lock()
	told := a.told
	var ids []uint64
	for _, m := range told.GetMembers() {
		ids = append(ids, m.Replica)
	}
	for _, m := range a.recordLocked().GetMembers() {
		ids = append(ids, m.Replica)
	}
	a.mu.Unlock()
	for _, id := range ids {
		if address, ok := a.Resolve(id); ok {
			list = append(list, address)
		}
	}
	return list
}
