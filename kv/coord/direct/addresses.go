package direct

import (
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

const (
	// After a search that found no server, there is no search for lookFirst. The time grows with each
	// such search, up to lookMost.
	lookFirst = 100 * time.Millisecond
	lookMost  = 30 * time.Second
)

const (
	// slowFor is the time for which the client prefers other servers after a call waited in vain at a
	// server.
	slowFor = 10 * time.Second
	// slowAfter is the wait from which on a server counts as slow.
	slowAfter = time.Second
	// maxAddresses bounds the number of remembered addresses.
	maxAddresses = 64
)

// addresses records, for each server address, whether the address should be tried. It is not safe
// for concurrent use.
type addresses map[string]addressRecord

// addressRecord is the record of one address. The zero value is that of an unknown address.
type addressRecord struct {
	// slowUntil is the time until which other servers are preferred.
	slowUntil time.Time
	// failures counts the failures in a row when the address was tried because a server named it as
	// better. It is not tried again for that reason before notUntil.
	failures int
	notUntil time.Time
}

// slow reports whether other servers are preferred to this address.
func (a addresses) slow(address string) bool { return time.Now().Before(a[address].slowUntil) }

// noteSlow records that a call waited in vain at the address.
func (a addresses) noteSlow(address string) {
	r := a[address]
	r.slowUntil = time.Now().Add(slowFor)
	a.set(address, r)
}

// follow reports whether an address that a server names as better should be tried.
func (a addresses) follow(address string) bool {
	r, now := a[address], time.Now()
	return !now.Before(r.slowUntil) && !now.Before(r.notUntil)
}

// noteFollowed records whether the address served when it was tried because a server named it as
// better.
func (a addresses) noteFollowed(address string, served bool) {
	r := a[address]
	if served {
		r.failures, r.notUntil = 0, time.Time{}
	} else {
		r.notUntil = time.Now().Add(pauseAfter(r.failures))
		r.failures++
	}
	a.set(address, r)
}

// set stores a record. If there is no room, it removes another address, preferably one that may be
// tried.
func (a addresses) set(address string, r addressRecord) {
	delete(a, address)
	if r == (addressRecord{}) {
		return
	}
	if len(a) >= maxAddresses {
		var victim string
		for other := range a {
			if victim = other; a.follow(other) {
				break
			}
		}
		delete(a, victim)
	}
	a[address] = r
}

// pauseAfter returns the pause before the next attempt, after a number of failures in a row before
// the last.
func pauseAfter(failures int) time.Duration {
	return backoff.Step(failures, lookFirst, lookMost, 0.5, rand.Float64())
}
