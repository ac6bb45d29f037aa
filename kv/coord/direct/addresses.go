package direct

import (
	"math/rand/v2"
	"time"
)

const (
	// slowFor is for how long others are preferred to a server at which a call waited in vain.
	slowFor = 10 * time.Second
	// slowAfter is how long a call has to have waited that says so much about its server.
	slowAfter = time.Second
	// maxAddresses bounds the addresses of which something is remembered.
	maxAddresses = 64
)

// addresses remembers of addresses of servers what decides whether they are tried. It is not safe
// for concurrent use.
type addresses map[string]addressRecord

// addressRecord is what is remembered of one; the zero value: nothing.
type addressRecord struct {
	// slowUntil is until when others are preferred to it.
	slowUntil time.Time
	// After so many failures in a row it is not tried before then for being named as better.
	failures int
	notUntil time.Time
}

// slow says whether others are to be preferred.
func (a addresses) slow(address string) bool { return time.Now().Before(a[address].slowUntil) }

// noteSlow notes that a call waited in vain.
func (a addresses) noteSlow(address string) {
	r := a[address]
	r.slowUntil = time.Now().Add(slowFor)
	a.set(address, r)
}

// follow says whether it is to be tried because a server names it as better.
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

// set makes room, if there is none, by forgetting another address: one that may be tried, if there
// is one.
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

// pauseAfter is how long nothing is tried after so many failures in a row before the last.
func pauseAfter(failures int) time.Duration {
	pause := min(lookFirst<<min(failures, 16), lookMost)
	return pause/2 + rand.N(pause/2)
}
