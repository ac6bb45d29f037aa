package command

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// A write looks at what is there before its timestamp is chosen, and what is there may expire in
// between. So it looks as of a timestamp that it will not be below (judgedAt). What has expired by
// then stays so. What has not is good for a write below the expiry: that is noted (Result.Until),
// and if the timestamp that is chosen is not below it the write is evaluated again, as of that
// timestamp (AtLeast).
//
// INVARIANT: a request that is answered by what was read, and writes nothing, has looked as of a
// timestamp that is above all that was read of the key, by any request. So what a client has seen
// to have expired is not found live by a later compare-and-swap, whichever clocks the two went by.
//
// The statistics know nothing of this. A value counts until it is replaced or collected.

// Live says whether a key has a value that has not expired when the write takes effect.
func (e *Evaluation) Live(userKey []byte, p *Prior) bool {
	switch {
	case !p.HasValue():
		return false
	case p.Expires == 0:
		return true
	}
	at := e.Pending.Above(userKey, hlc.Max(e.judgedAt(), p.Timestamp.Next()))
	if p.ExpiredAt(at) {
		return false
	}
	e.rests(p.Expires)
	return true
}

// judgedAt is a timestamp below which the write does not take effect.
func (e *Evaluation) judgedAt() hlc.Timestamp {
	return hlc.Max(hlc.Max(e.Clock, e.Session.Next()), e.AtLeast)
}

// rests notes that the outcome rests on something that expires; 0: that it does not.
func (e *Evaluation) rests(expires int64) {
	if expires != 0 && (e.Until == 0 || expires < e.Until) {
		e.Until = expires
	}
}

// HoldsBelow says whether the outcome is that of a write at a timestamp.
func (r *Result) HoldsBelow(ts hlc.Timestamp) bool { return r.Until == 0 || ts.Wall < r.Until }

// LifetimeOf is the lifetime of a value for which a request asks this (PutRequest.ttl). It is never
// DefaultLifetime.
func (e *Evaluation) LifetimeOf(asked int64) keys.Lifetime {
	return keys.Lifetime(asked).Or(e.DefaultTTL)
}
