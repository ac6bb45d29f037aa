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

// coordinationName is the name of the second store of the core's members in errors and logs.
const coordinationName = "the coordination store"

// coordinationMaxTouched limits the keys that one command of the coordination store may delete,
// read or compare, and the keys of a lease. Clients of etcd expect to handle many keys at once.
// With this limit, one command blocks the others for at most a second or two.
const coordinationMaxTouched = 100_000

// coordinationMaxWatchers limits the watches that a member serves. Each watch takes about 270
// bytes.
const coordinationMaxWatchers = 1_000_000

// foundingLook is the interval at which a member checks whether the coordination store is founded.
const foundingLook = 100 * time.Millisecond

// coordinationPart is a member's part of the coordination store: a second store, with its own Raft
// group, on the host and in the databases of the member of the core. It opens when the member has
// applied the record that founds the store (membership.CoordinationFounding).
type coordinationPart struct {
	// store is nil until the part is open.
	store atomic.Pointer[store.Store]
	// services are the services of the etcd API. They are nil until the store is open.
	services atomic.Pointer[etcdapi.Services]
	// watch is the watch service of the store. It is nil until the store is open.
	watch atomic.Pointer[watches.Server]
	// spaceAlarm raises alarms for lack of disk space. It is nil until the store is open.
	spaceAlarm atomic.Pointer[spacealarm.Alarm]
	// end ends the wait for the founding, and waiting counts the waiting goroutine. end is nil if
	// there is no wait.
	end     context.CancelFunc
	waiting sync.WaitGroup
}

// Store returns the coordination store. It is nil until the store is open.
func (c *coordinationPart) Store() *store.Store { return c.store.Load() }

// endWait ends the wait for the founding, and the alarms for lack of disk space. The store does not
// open afterwards.
func (c *coordinationPart) endWait() {
	if c.end != nil {
		c.end()
		c.waiting.Wait()
	}
	if r := c.spaceAlarm.Load(); r != nil {
		r.Close()
	}
}

// close closes the store, which ends all watches. The store's group must have stopped.
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
