package direct

import (
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

const (
	// slowFor is how long other servers are preferred to a server at which a call waited in vain.
	slowFor = 10 * time.Second
	// slowAfter is how long a call must have waited for its server to count as slow.
	slowAfter = time.Second
	// maxAddresses limits the number of remembered addresses.
	maxAddresses = 64
)

// addresses remembers of addresses of servers what decides whether they are tried. It is not safe
// for concurrent use.
type addresses map[string]addressRecord

// addressRecord is the memory of one address; the zero value: none.
type addressRecord struct {
	// slowUntil is until when others are preferred to it.
	slowUntil time.Time
	// After so many failures in a row it is not tried before then for being named as better.
	failures int
	notUntil time.Time
}

// slow reports whether other servers are preferred to this address.
func (a addresses) slow(address string) bool { return time.Now().Before(a[address].slowUntil) }

// noteSlow notes that a call waited in vain.
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

// noteFollowed notes whether it served when it was tried because a server named it as better.
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

// set stores a record. If there is no room, it forgets another address, preferably one that may be
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
