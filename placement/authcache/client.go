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
	// token is valid if tokenErr is nil and Shown has a token. It expires at expires, by
	// Config.Monotonic.
	token    authority.Token
	tokenErr error
	expires  int64
	// seen is when the token came, by Config.Monotonic. proved is set once it was verified.
	seen   int64
	proved atomic.Bool
	// known is the user according to the tables that were last used.
	known atomic.Pointer[known]
}

// known is the user of a client, according to one version of the tables. It does not refer to the
// tables, because a connection may be idle for long. It is never changed.
type known struct {
	of uint64
	// rights is nil if the client has no user; refused says why.
	rights  *authority.Rights
	refused *access.Error
}

// maxAhead is how far the clock of the member that issued a token may be ahead of this server's.
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
				// The issuer's clock may be ahead, but no token is valid for longer.
				c.expires = c.seen + int64(min(ttl, ttl-age))
			}
		}
	}
	return c
}

// Name implements access.Client. The name in a token counts once the token was verified.
func (c *client) Name() string {
	switch {
	case c.shown.Token == "":
		return shortName(c.shown.CertificateName)
	case !c.proved.Load():
		return ""
	}
	return shortName(c.token.User)
}

// shortName shortens a name for errors and logs.
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

// May implements access.Client. It does not allocate unless it refuses.
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

// rights returns the client's rights; nil: all clients have all rights. refused is why it has none.
func (c *client) rights() (_ *authority.Rights, refused *access.Error) {
	g := c.cache
	t := g.tables.Load()
	if t.free {
		return nil, nil
	}
	until := g.until.Load()
	if t = g.tables.Load(); t.free { // these tables belong to until, or are newer
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

// identify determines the client's user according to one version of the tables, and stores it.
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

// verified returns the tables that confirm the token, which are t or newer. If none do, it stores
// in k why, and stores k, unless the server may just not have heard of the token's user yet.
//
// INVARIANT: a token that was issued is not refused for good because of tables older than its
// issue. Proof: the tables are not older if they include the index that the token names, or if they
// answer a question that was sent after the token had come.
func (c *client) verified(k *known, t *tables) *tables {
	if c.tokenErr == nil {
		index, until := c.cache.index.Load(), c.cache.until.Load()
		if newer := c.cache.tables.Load(); newer.state != nil {
			t = newer // these tables belong to index and until, or are newer
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

// denied returns the error that names the permission that a user lacks.
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

// cut shortens a key for errors and logs.
func cut(key []byte) []byte { return key[:min(len(key), 64)] }

// refuse counts and logs a refusal.
func (c *client) refuse(e *access.Error, n *access.Permission) error {
	c.cache.metrics.refused(e.Reason)
	c.cache.audit.refused(c.Name, c.shown, e, n, time.Duration(c.cache.config.Monotonic()))
	return e
}
