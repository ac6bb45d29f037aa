package command

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// A write checks which values exist before its timestamp is chosen, and a value may expire in
// between. So the write checks as of a timestamp that its own will not be below (judgedAt). A value
// that has expired by then stays expired. A value that is live then is live for a write below its
// expiry. The expiry is noted (Result.Until), and if the chosen timestamp is not below it, the
// write is evaluated again as of that timestamp (AtLeast).
//
// INVARIANT: a request that writes nothing, and is answered by what was read, has checked as of a
// timestamp above every read of the key by any request. So a value that a client has seen to be
// expired is not found live by a later compare-and-swap, whichever clocks the two used.
//
// The statistics ignore expiry: a value counts until it is replaced or collected.

// Live reports whether a key has a value that has not expired when the write takes effect.
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

// judgedAt returns a timestamp below which the write does not take effect.
func (e *Evaluation) judgedAt() hlc.Timestamp {
	return hlc.Max(hlc.Max(e.Clock, e.Session.Next()), e.AtLeast)
}

// rests notes that the outcome relies on a value that expires; 0: the value does not expire.
func (e *Evaluation) rests(expires int64) {
	if expires != 0 && (e.Until == 0 || expires < e.Until) {
		e.Until = expires
	}
}

// HoldsBelow reports whether the outcome holds for a write at this timestamp.
func (r *Result) HoldsBelow(ts hlc.Timestamp) bool { return r.Until == 0 || ts.Wall < r.Until }

// LifetimeOf returns the lifetime of a value from the one that a request asks for (PutRequest.ttl).
// It is never DefaultLifetime.
func (e *Evaluation) LifetimeOf(asked int64) keys.Lifetime {
	return keys.Lifetime(asked).Or(e.DefaultTTL)
}
