package authorize

import (
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
)

// TokenTTL is how long a token is valid at a member that does not see it used, as in etcd.
const TokenTTL = 5 * time.Minute

// maxTokenUses bounds the tokens that are remembered as in use. Other tokens end at the age to
// which an unused token is valid.
const maxTokenUses = 128 << 10

// tokenUses remembers which tokens were used at this member, so that a token in use stays valid, as
// in etcd. old holds those that were not used since it was last replaced.
type tokenUses struct {
	now func() time.Time
	mu  struct {
		sync.Mutex
		young, old map[[16]byte]time.Time
		turned     time.Time
	}
}

func newTokenUses(now func() time.Time) *tokenUses {
	u := &tokenUses{now: now}
	u.mu.young, u.mu.turned = map[[16]byte]time.Time{}, now()
	return u
}

// use reports whether a verified token is young enough, and notes that it is in use.
func (u *tokenUses) use(t authority.Token) bool {
	now := u.now()
	u.mu.Lock()
	defer u.mu.Unlock()
	used, ok := u.mu.young[t.ID]
	if !ok {
		used, ok = u.mu.old[t.ID]
	}
	if !ok {
		// The clocks of members may differ, but not by this much.
		used = t.Issued
	}
	if age := now.Sub(used); age > TokenTTL || age < -TokenTTL {
		return false
	}
	if now.Sub(u.mu.turned) > TokenTTL || len(u.mu.young) >= maxTokenUses/2 {
		u.mu.old, u.mu.young, u.mu.turned = u.mu.young, map[[16]byte]time.Time{}, now
	}
	u.mu.young[t.ID] = now
	return true
}
