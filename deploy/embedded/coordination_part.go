package embedded

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded/spacealarm"
	"github.com/tidemarkdb/tidemark/placement/etcdapi"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/watches"
	"github.com/tidemarkdb/tidemark/placement/store"
)

// coordinationName is what errors and logs call the second store of the core's members.
const coordinationName = "the coordination store"

// coordinationMaxTouched is how many keys one command of the coordination store may delete, read or
// compare, and a lease may have. It is what clients of etcd expect to be able to do at once, as far
// as it stops the others for a second or two at most.
const coordinationMaxTouched = 100_000

// coordinationMaxWatchers bounds the watches that a member serves. They take some 270 bytes each.
const coordinationMaxWatchers = 1_000_000

// foundingLook is how often a member looks whether the coordination store is founded.
const foundingLook = 100 * time.Millisecond

// coordinationPart is a member's part of the coordination store: a second store, with a Raft group
// of its own, on the host and in the databases of the member of the core. It opens when the member
// has applied the record that founds it (server.CoordinationFounding).
type coordinationPart struct {
	// store is nil until it is open.
	store atomic.Pointer[store.Store]
	// services are those of the etcd API; nil until the store is open.
	services atomic.Pointer[etcdapi.Services]
	// watch is the watch service over it; nil until it is open.
	watch atomic.Pointer[watches.Server]
	// spaceAlarm raises alarms for want of room; nil until the store is open.
	spaceAlarm atomic.Pointer[spacealarm.Alarm]
	// end ends the wait for the founding, and waiting is that; nil without.
	end     context.CancelFunc
	waiting sync.WaitGroup
}

// Store returns the coordination store; nil until it is open.
func (c *coordinationPart) Store() *store.Store { return c.store.Load() }

// endWait ends the wait for the founding, and alarms for want of room. Nothing opens after it.
func (c *coordinationPart) endWait() {
	if c.end != nil {
		c.end()
		c.waiting.Wait()
	}
	if r := c.spaceAlarm.Load(); r != nil {
		r.Close()
	}
}

// close closes the store, whose group has stopped, which ends all watches.
func (c *coordinationPart) close() {
	if s := c.services.Load(); s != nil {
		s.Close()
	}
	if s := c.store.Load(); s != nil {
		s.Close()
	}
	if w := c.watch.Load(); w != nil {
		w.Wait()
	}
}
