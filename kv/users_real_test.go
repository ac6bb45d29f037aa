package kv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/access"
)

// prefixGuard knows users by their tokens, and which keys each may read, write and administer in
// every keyspace.
type prefixGuard struct {
	mu    sync.Mutex
	users map[string]map[access.Right][]byte // guarded by mu
	// ended are tokens that count no more; guarded by mu.
	ended map[string]bool
	// unknown counts refusals because the client was not known.
	unknown atomic.Int64
}

func (g *prefixGuard) Enabled() bool { return true }

func (g *prefixGuard) Client(shown access.Credentials) access.Client {
	return prefixClient{g, shown.Token}
}

func (g *prefixGuard) set(user string, right access.Right, prefix string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.users == nil {
		g.users, g.ended = make(map[string]map[access.Right][]byte), make(map[string]bool)
	}
	if g.users[user] == nil {
		g.users[user] = make(map[access.Right][]byte)
	}
	g.users[user][right] = []byte(prefix)
}

func (g *prefixGuard) revoke(user string, right access.Right) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.users[user], right)
}

func (g *prefixGuard) end(token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended[token] = true
}

type prefixClient struct {
	guard *prefixGuard
	token string
}

func (c prefixClient) Name() string { return c.user() }

// user is the part of the token before the number.
func (c prefixClient) user() string {
	user, _, _ := bytes.Cut([]byte(c.token), []byte{'#'})
	return string(user)
}

// unseen is a user whose token does not reach the stream of the partition table.
const unseen = "unseen"

func (c prefixClient) MayAny(uint64) bool {
	g := c.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.users[c.user()]) > 0 && !g.ended[c.token] && c.user() != unseen
}

func (c prefixClient) Standing() (free bool, err error) { return false, c.May(nil) }

func (c prefixClient) May(needs []access.Permission) error {
	g := c.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	rights := g.users[c.user()]
	if rights == nil || g.ended[c.token] {
		g.unknown.Add(1)
		return &access.Error{Reason: access.Unauthenticated, Text: "no user is known by the token"}
	}
	for _, n := range needs {
		if n.Right == access.Any {
			continue
		}
		prefix, ok := rights[n.Right]
		fits := ok && bytes.HasPrefix(n.Start, prefix)
		if n.End != nil && len(prefix) > 0 {
			past := bytes.Clone(prefix)
			past[len(past)-1]++
			fits = fits && len(n.End) > 0 && bytes.Compare(n.End, past) <= 0
		}
		if !fits {
			return &access.Error{Reason: access.Denied,
				Text: fmt.Sprintf("user %s may not: %q to %q, right %d", c.user(), n.Start, n.End, n.Right)}
		}
	}
	return nil
}

// A user who may read and write the keys of a prefix does everything there, whatever call it is,
// and nothing else; one who may read writes nothing, and one who may write reads nothing. So it is
// with a client to which bounds of partitions are not shown: as one of a version that shows no
// token to the stream of the table, or one whose user has got its rights just now.
func TestUsers(t *testing.T) {
	for _, hashed := range []bool{false, true} {
		t.Run(fmt.Sprintf("hash=%v", hashed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testUsers(t, hashed) })
		})
	}
}

func testUsers(t *testing.T, hashed bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	guard := new(prefixGuard)
	for _, right := range []access.Right{access.Read, access.Write} {
		guard.set("both", right, "a/")
		guard.set(unseen, right, "a/")
		guard.set("root", right, "")
	}
	guard.set("root", access.Admin, "")
	guard.set("reader", access.Read, "a/")
	guard.set("writer", access.Write, "a/")
	guard.set("none", access.Read, "a/")
	guard.revoke("none", access.Read)
	cluster := kvtest.Start(t, kvtest.Options{Latency: 200 * time.Microsecond,
		Configure: func(_ int, c *embedded.ServerConfig) { c.Guard = guard }})
	as := func(user string) *kv.Client {
		return cluster.Client(t, kv.Token(func(context.Context) (string, error) { return user, nil }))
	}
	kind := kv.Range([]byte("a/5"), []byte("b"))
	if hashed {
		kind = kv.Hash(8)
	}
	root := as("root")
	ks, err := root.CreateKeyspace(ctx, "k", kind)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a/1", "a/7", "b/1"} {
		if _, err := ks.Put(ctx, []byte(key), []byte("before")); err != nil {
			t.Fatalf("root: %v", err)
		}
	}
	type call struct {
		name string
		// reads and writes say what it needs.
		reads, writes bool
		do            func(c *kv.Client, ks *kv.Keyspace, prefix string) error
	}
	drop := func(_ any, err error) error { return err }
	calls := []call{
		{"get", true, false, func(_ *kv.Client, ks *kv.Keyspace, p string) error {
			return drop(ks.Get(ctx, []byte(p+"1")))
		}},
		{"get of any replica", true, false, func(_ *kv.Client, ks *kv.Keyspace, p string) error {
			_, err := ks.Get(ctx, []byte(p+"1"), kv.Nearest())
			if errors.Is(err, kv.ErrNotFound) {
				return nil // it may have read the time before
			}
			return err
		}},
		{"batch get", true, false, func(_ *kv.Client, ks *kv.Keyspace, p string) error {
			return drop(ks.BatchGet(ctx, [][]byte{[]byte(p + "1"), []byte(p + "7"), []byte(p + "9")}))
		}},
		{"scan", true, false, func(_ *kv.Client, ks *kv.Keyspace, p string) error {
			for _, err := range ks.Scan(ctx, kv.Prefix([]byte(p))) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{"count", true, false, func(_ *kv.Client, ks *kv.Keyspace, p string) error {
			return drop(ks.Count(ctx, kv.Prefix([]byte(p))))
		}},
		{"view", true, false, func(c *kv.Client, ks *kv.Keyspace, p string) error {
			return c.View(ctx, func(s *kv.Snapshot) error {
				return drop(s.Get(ctx, ks, []byte(p+"1")))
			})
		}},
		{"put", false, true, func(_ *kv.Client, ks *kv.Keyspace, p string) error {
			return drop(ks.Put(ctx, []byte(p+"1"), []byte("v")))
		}},
		{"delete range", false, true, func(_ *kv.Client, ks *kv.Keyspace, p string) error {
			return drop(ks.DeleteRange(ctx, kv.Prefix([]byte(p+"8"))))
		}},
		{"increment", true, true, func(_ *kv.Client, ks *kv.Keyspace, p string) error {
			_, _, err := ks.Increment(ctx, []byte(p+"n"), 1)
			return err
		}},
		{"update", true, true, func(c *kv.Client, ks *kv.Keyspace, p string) error {
			_, err := c.Update(ctx, func(tx *kv.Txn) error {
				if _, err := tx.GetForUpdate(ctx, ks, []byte(p+"1")); err != nil {
					return err
				}
				if err := tx.Put(ks, []byte(p+"7"), []byte("w")); err != nil {
					return err
				}
				return tx.Put(ks, []byte(p+"1"), []byte("w"))
			})
			return err
		}},
		{"update that only writes", false, true, func(c *kv.Client, ks *kv.Keyspace, p string) error {
			_, err := c.Update(ctx, func(tx *kv.Txn) error {
				if err := tx.Put(ks, []byte(p+"1"), []byte("x")); err != nil {
					return err
				}
				return tx.Put(ks, []byte(p+"7"), []byte("x"))
			})
			return err
		}},
	}
	for user, may := range map[string]struct{ read, write bool }{"both": {true, true},
		"reader": {true, false}, "writer": {false, true}, unseen: {true, true}, "none": {}} {
		client := as(user)
		ks := client.Keyspace("k")
		for _, c := range calls {
			permitted := (may.read || !c.reads) && (may.write || !c.writes)
			err := c.do(client, ks, "a/")
			if permitted && err != nil || !permitted && !errors.Is(err, kv.ErrPermissionDenied) {
				t.Errorf("%s by %s: %v", c.name, user, err)
			}
			if err := c.do(client, ks, "b/"); !errors.Is(err, kv.ErrPermissionDenied) {
				t.Errorf("%s by %s elsewhere: %v", c.name, user, err)
			}
		}
		if _, _, err := admin.New(client).Transactions(ctx, "k", 10); !errors.Is(err,
			kv.ErrPermissionDenied) {
			t.Errorf("transactions are shown to %s: %v", user, err)
		}
	}
	// The locks of their transactions are ended by their clients, without others that meet them.
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		open, _, err := admin.New(root).Transactions(ctx, "k", 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(open) == 0 {
			break
		}
		if time.Since(began) > 3*time.Second {
			t.Fatalf("locks are left: %+v", open)
		}
	}
	stranger := cluster.Client(t)
	_, err = stranger.Keyspace("k").Get(ctx, []byte("a/1"))
	var e *kv.Error
	if !errors.Is(err, kv.ErrUnauthenticated) || !errors.As(err, &e) || e.Keyspace != "k" ||
		string(e.Key) != "a/1" {
		t.Errorf("a client without a user: %v", err)
	}
	pair, err := ks.Get(ctx, []byte("b/1"))
	if err != nil || string(pair.Value) != "before" {
		t.Errorf("what no user may write was written: %q, %v", pair.Value, err)
	}
}

// A token ends while the client works: it gets another one, once for all calls that are under way,
// and no call fails.
func TestTokenIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		guard := new(prefixGuard)
		for _, right := range []access.Right{access.Read, access.Write, access.Admin} {
			guard.set("ann", right, "")
		}
		cluster := kvtest.Start(t, kvtest.Options{Latency: 200 * time.Microsecond,
			Configure: func(_ int, c *embedded.ServerConfig) { c.Guard = guard }})
		var tokens atomic.Int64
		client := cluster.Client(t, kv.Token(func(context.Context) (string, error) {
			return fmt.Sprintf("ann#%d", tokens.Add(1)), nil
		}))
		ks, err := client.CreateKeyspace(ctx, "k", kv.Hash(4))
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			before := tokens.Load()
			guard.end(fmt.Sprintf("ann#%d", before))
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() {
					if _, err := ks.Put(ctx, fmt.Appendf(nil, "k%d", i), nil); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if got := tokens.Load() - before; got != 1 {
				t.Errorf("%d tokens were got for one that has ended", got)
			}
		}
		// Without a refusal another one comes in time.
		before, refused := tokens.Load(), guard.unknown.Load()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if tokens.Load() < before+2 {
			t.Errorf("%d tokens in 5 minutes", tokens.Load()-before)
		}
		guard.end(fmt.Sprintf("ann#%d", before))
		if _, err := ks.Put(context.WithoutCancel(ctx), []byte("k"), nil); err != nil {
			t.Error(err)
		}
		if guard.unknown.Load() != refused {
			t.Error("an old token was shown")
		}
	})
}

// A feed of changes is judged as long as it goes on, and ends when the user may not read any more.
func TestFeedIsJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		guard := new(prefixGuard)
		for _, right := range []access.Right{access.Read, access.Write, access.Admin} {
			guard.set("root", right, "")
		}
		guard.set("reader", access.Read, "a/")
		cluster := kvtest.Start(t, kvtest.Options{Latency: 200 * time.Microsecond,
			Configure: func(_ int, c *embedded.ServerConfig) { c.Guard = guard }})
		as := func(user string) *kv.Client {
			return cluster.Client(t, kv.Token(func(context.Context) (string, error) { return user, nil }))
		}
		ks, err := as("root").CreateKeyspace(ctx, "k", kv.Range())
		if err != nil {
			t.Fatal(err)
		}
		at, err := ks.Put(ctx, []byte("a/0"), nil)
		if err != nil {
			t.Fatal(err)
		}
		read := as("reader").Keyspace("k")
		for _, err := range read.Changes(ctx, kv.Since(at)) {
			if !errors.Is(err, kv.ErrPermissionDenied) {
				t.Errorf("changes of the whole keyspace: %v", err)
			}
			break
		}
		var seen []string
		for change, err := range read.Changes(ctx, kv.Since(at), kv.Prefix([]byte("a/"))) {
			if err != nil {
				if !errors.Is(err, kv.ErrPermissionDenied) {
					t.Errorf("the feed ends with %v", err)
				}
				break
			}
			seen = append(seen, string(change.Key))
			_ = change
			guard.revoke("reader", access.Read)
			if _, err := ks.Put(ctx, []byte("a/secret"), nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, key := range seen {
			if key == "a/secret" {
				t.Error("a change was told after the permission was taken away")
			}
		}
	})
}
