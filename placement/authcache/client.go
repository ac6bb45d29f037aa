package authcache

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/rpc/access"
)

// client is the client of a connection. It implements access.Client.
type client struct {
	cache *Cache
	shown access.Credentials
	// token is valid if there is no tokenErr and Shown has one. It counts until expires, by
	// Config.Monotonic.
	token    authority.Token
	tokenErr error
	expires  int64
	// seen is when the token came, by Config.Monotonic, and proved that it was verified once.
	seen   int64
	proved atomic.Bool
	// known is what followed from the tables that it was judged by last.
	known atomic.Pointer[known]
}

// known is the user of a client, by one version of the tables, which it does not hold: a connection
// may be idle for long. It is not changed.
type known struct {
	of uint64
	// rights is nil if refused says why the client counts as no user.
	rights  *authority.Rights
	refused *access.Error
}

// maxAhead is how much the clock of the member that issued a token may be ahead of this server's.
const maxAhead = 5 * time.Second

// Enabled implements access.Guard.
func (g *Cache) Enabled() bool { return !g.tables.Load().free }

// Client implements access.Guard.
func (g *Cache) Client(shown access.Credentials) access.Client {
	c := &client{cache: g, shown: shown, seen: g.config.Monotonic()}
	if shown.Token != "" {
		if c.token, c.tokenErr = authority.ParseToken(shown.Token); c.tokenErr == nil {
			age := g.config.Now().Sub(c.token.Issued)
			if ttl := g.config.TokenTTL; age > ttl || age < -maxAhead {
				c.tokenErr = authority.ErrToken
			} else {
				// The clock of the member that issued it may be ahead, but no token counts for longer.
				c.expires = c.seen + int64(min(ttl, ttl-age))
			}
		}
	}
	return c
}

// Name implements access.Client. What a token says counts once it was verified.
func (c *client) Name() string {
	switch {
	case c.shown.Token == "":
		return shortName(c.shown.CertificateName)
	case !c.proved.Load():
		return ""
	}
	return shortName(c.token.User)
}

// shortName is a name as far as errors and logs show it.
func shortName(name string) string { return name[:min(len(name), 256)] }

// Standing implements access.Client. It does not allocate unless it refuses.
func (c *client) Standing() (free bool, err error) {
	rights, refused := c.rights()
	switch {
	case refused != nil:
		return false, c.refuse(refused, nil)
	case rights == nil || rights.Root():
		return true, nil
	case rights.NoKeyspace():
		return false, c.refuse(&access.Error{Reason: access.Denied, Text: fmt.Sprintf(
			"user %q has no right to the data of any keyspace", c.Name())}, nil)
	}
	return false, nil
}

// May implements access.Client. What permits does not allocate.
func (c *client) May(needs []access.Permission) error {
	rights, refused := c.rights()
	switch {
	case refused != nil:
		return c.refuse(refused, nil)
	case rights == nil:
		return nil
	}
	for i := range needs {
		if n := &needs[i]; !permits(rights, n) {
			return c.refuse(c.denied(n), n)
		}
	}
	return nil
}

// rights are the client's at present; nil: all, whichever client it is. refused is why it has none.
func (c *client) rights() (_ *authority.Rights, refused *access.Error) {
	g := c.cache
	t := g.tables.Load()
	if t.free {
		return nil, nil
	}
	until := g.until.Load()
	if t = g.tables.Load(); t.free { // as new as until, or newer
		return nil, nil
	}
	now := g.config.Monotonic()
	if now > until || t.state == nil {
		return nil, &access.Error{Reason: access.Unknown, Text: "this server has not heard from " +
			"the core what users may do for too long, and so cannot say whether this is permitted"}
	}
	if !t.state.Enabled() {
		return nil, nil
	}
	k := c.known.Load()
	if k == nil || k.of != t.version {
		k = c.identify(t)
	}
	if k.refused != nil {
		return nil, k.refused
	}
	if c.shown.Token != "" && now > c.expires {
		return nil, errExpired
	}
	return k.rights, nil
}

var errExpired = &access.Error{Reason: access.Unauthenticated, Text: "the token has ended: it " +
	"counts for some minutes; get a new one with the password"}

// MayAny implements access.Client.
func (c *client) MayAny(keyspace uint64) bool {
	rights, refused := c.rights()
	return refused == nil && (rights == nil || rights.MayAny(keyspace))
}

func permits(r *authority.Rights, n *access.Permission) bool {
	switch {
	case n.Right == access.Any:
		return r.MayAny(n.Keyspace)
	case n.End == nil:
		return r.MayKey(uint32(n.Right), n.Keyspace, n.Start)
	case len(n.End) == 0:
		return r.May(uint32(n.Right), n.Keyspace, n.Start, nil)
	}
	return r.May(uint32(n.Right), n.Keyspace, n.Start, n.End)
}

// identify finds the client's user by one version of the tables, and keeps that.
func (c *client) identify(t *tables) *known {
	k := &known{of: t.version}
	switch {
	case c.shown.Token != "":
		if t = c.verified(k, t); t == nil {
			return k
		}
		k.rights = t.state.RightsOf(c.token.User)
	case c.shown.CertificateName != "":
		if k.rights = t.state.RightsOf(c.shown.CertificateName); k.rights == nil {
			k.refused = &access.Error{Reason: access.Unauthenticated, Text: fmt.Sprintf("there is no "+
				"user %q, which is the name of the client's certificate", c.Name())}
		}
	default:
		k.refused = &access.Error{Reason: access.Unauthenticated, Text: "authentication is enabled, " +
			"and the client has not said who it is: give a user and a password"}
	}
	c.known.Store(k)
	return k
}

// verified returns the tables by which the token is one, which are t or newer. If it is none, k
// says why, and is kept, unless the server may just not have heard of the token's user yet.
//
// INVARIANT: what was issued is not refused for good by tables that may be older than its issue.
// Proof: they are older neither if they have the index that the token names, nor if the ask that
// they answer was sent after the token had come.
func (c *client) verified(k *known, t *tables) *tables {
	if c.tokenErr == nil {
		index, until := c.cache.index.Load(), c.cache.until.Load()
		if newer := c.cache.tables.Load(); newer.state != nil {
			t = newer // as of index and until, or newer
			k.of = t.version
		}
		if t.state.Verify(c.token) == nil {
			c.proved.Store(true)
			return t
		}
		if c.token.Index > index && until-int64(c.cache.config.Grace) <= c.seen {
			signal(c.cache.urge)
			k.refused = &access.Error{Reason: access.Unknown, Text: "this server has not heard from " +
				"the core yet of what the token was issued by"}
			return nil
		}
	}
	k.refused = &access.Error{Reason: access.Unauthenticated, Text: "the token is not valid, or no " +
		"more: its user may have got a new password, or been deleted"}
	c.known.Store(k)
	return nil
}

// denied says what a user lacks.
func (c *client) denied(n *access.Permission) *access.Error {
	if n.Right == access.Any {
		return &access.Error{Reason: access.Denied, Text: fmt.Sprintf(
			"user %q may not read or write any key of keyspace %d", c.Name(), n.Keyspace)}
	}
	what, keys := "", ""
	for _, r := range []struct {
		right access.Right
		word  string
	}{{access.Read, "read"}, {access.Write, "write"}, {access.Admin, "administer"}} {
		if n.Right&r.right != 0 {
			if what != "" {
				what += " and "
			}
			what += r.word
		}
	}
	switch {
	case n.End == nil:
		keys = fmt.Sprintf("key %q", cut(n.Start))
	case len(n.End) == 0 && len(n.Start) == 0:
		keys = "all keys"
	case len(n.End) == 0:
		keys = fmt.Sprintf("keys from %q on", cut(n.Start))
	default:
		keys = fmt.Sprintf("keys from %q to %q", cut(n.Start), cut(n.End))
	}
	return &access.Error{Reason: access.Denied, Text: fmt.Sprintf(
		"user %q may not %s %s of keyspace %d", c.Name(), what, keys, n.Keyspace)}
}

// cut is a key as far as errors and logs show it.
func cut(key []byte) []byte { return key[:min(len(key), 64)] }

// refuse counts and logs a refusal.
func (c *client) refuse(e *access.Error, n *access.Permission) error {
	c.cache.metrics.refused(e.Reason)
	c.cache.audit.refused(c, e, n, time.Duration(c.cache.config.Monotonic()))
	return e
}
