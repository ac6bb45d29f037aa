package coreaddr

import (
	"sync"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// maxHeard bounds the servers whose addresses were heard from themselves.
const maxHeard = 64

// Book say where the members of the core are. Three sources know: the record in the store,
// which the leader keeps; what the leader answered last, which a member that lags does not have in
// its store yet; and what the members say of themselves, which is how they find one another when
// more of them have moved than a quorum can do without.
type Book struct {
	mu    sync.Mutex
	store *store.Store
	// coordination is nil until the store that it gives is open.
	coordination func() *store.Store
	// told are the members as this server knew them first, or as the leader told them.
	told *clusterpb.CoreMembers
	// heard is by server id.
	heard map[uint64]heardAddress
}

// heardAddress counts until the record of members is another than it was then.
type heardAddress struct {
	address string
	version uint64
}

// Begin gives the sources.
func (a *Book) Begin(s *store.Store, coordination func() *store.Store,
	known []*clusterpb.CoreMember) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.store, a.coordination = s, coordination
	if a.told == nil {
		a.told = &clusterpb.CoreMembers{Members: known}
	}
}

// Tell takes note of what the leader said.
func (a *Book) Tell(m *clusterpb.CoreMembers) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(m.GetMembers()) > 0 && m.Version >= a.told.GetVersion() {
		a.told = m
	}
}

// Hear takes note of what a server says of itself.
func (a *Book) Hear(h *clusterpb.BootstrapHello) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.heard == nil {
		a.heard = map[uint64]heardAddress{}
	}
	if _, ok := a.heard[h.Server]; !ok && len(a.heard) >= maxHeard {
		clear(a.heard) // those that count are heard again soon
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

// Resolve gives the address of a member.
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

// leavingLocked finds a member that the core has no more, and the coordination store still has.
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

// All are the addresses of the members that are known.
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
