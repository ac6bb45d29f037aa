package release

import "sync/atomic"

// Active is the active level, as a server knows it. The parts of the server share one Active. Safe
// for concurrent use. The zero value is at Before, where every gate is closed. A nil Active allows
// everything: it belongs to parts that run without a cluster, as in tests and offline tools.
type Active struct{ level atomic.Uint32 }

// Level returns the active level; Newest if a is nil.
func (a *Active) Level() Level {
	if a == nil {
		return Newest
	}
	return Level(a.level.Load())
}

// Allows reports whether the format or message of a gate may be written or sent. The answer may
// change from false to true at any moment, and never back while the server runs: a caller that
// encodes something with several parts asks once.
func (a *Active) Allows(g Gate) bool { return a.Level() >= g.Level }

// Raise sets the level if it is higher than the present one, and reports whether it was.
func (a *Active) Raise(l Level) bool {
	for {
		now := a.level.Load()
		if uint32(l) <= now {
			return false
		}
		if a.level.CompareAndSwap(now, uint32(l)) {
			return true
		}
	}
}
