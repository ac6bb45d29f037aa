package authcache

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A server that was never told to follow needs no core, whatever users there are.
func TestFree(t *testing.T) {
	in(t, func(t *testing.T, c *core) {
		c.setCut(true)
		s := begin(t, c, Flag{})
		defer s.stop()
		stranger := s.Client(access.Credentials{})
		wants(t, stranger, 0)
		time.Sleep(time.Hour)
		wants(t, stranger, 0)
	})
}

// A server that starts and had to follow refuses all clients until it hears, also if authentication
// is not enabled by then.
func TestStartFollowing(t *testing.T) {
	in(t, func(t *testing.T, c *core) {
		c.setCut(true)
		s := begin(t, c, Flag{3, true})
		defer s.stop()
		stranger := s.Client(access.Credentials{})
		time.Sleep(time.Minute)
		wants(t, stranger, access.Unknown)
		c.setCut(false)
		time.Sleep(2 * time.Second)
		wants(t, stranger, 0)
		c.users()
		synctest.Wait()
		wants(t, stranger, access.Unauthenticated)
	})
}

// A server that holds no data needs no tables to go by a mark that is on, and follows then.
func TestFollowingWithoutData(t *testing.T) {
	in(t, func(t *testing.T, c *core) {
		c.users()
		c.setCut(true)
		s := begin(t, c, Flag{}, withoutData)
		defer s.stop()
		s.Learn(&clusterpb.GuardState{Version: 1, On: true})
		synctest.Wait()
		u := s.Client(access.Credentials{CertificateName: "u"})
		if !s.Flag().On || u.MayAny(7) {
			t.Errorf("cut off: the mark is %v, any right %t", s.Flag(), u.MayAny(7))
		}
		c.setCut(false)
		time.Sleep(2 * time.Second)
		if !u.MayAny(7) || u.MayAny(8) {
			t.Errorf("any right to keyspaces 7 and 8: %t, %t", u.MayAny(7), u.MayAny(8))
		}
	})
}

// What clients may do, by tokens and certificates.
func TestJudging(t *testing.T) {
	in(t, func(t *testing.T, c *core) {
		c.users()
		s := begin(t, c, Flag{1, true})
		defer s.stop()
		synctest.Wait()
		u := s.Client(access.Credentials{Token: c.token("u"), CertificateName: "root"})
		all, admin := []byte{}, access.Admin
		for _, n := range []struct {
			need access.Permission
			want access.Reason
		}{
			{access.Permission{Keyspace: 7, Start: []byte("a"), Right: access.Read}, 0},
			{access.Permission{Keyspace: 7, Start: []byte("b"), Right: access.Read}, access.Denied},
			{access.Permission{Keyspace: 8, Start: []byte("a"), Right: access.Read}, access.Denied},
			{access.Permission{Keyspace: 7, Start: []byte("a"), Right: access.Write},
				access.Denied},
			{access.Permission{Keyspace: 7, Start: []byte("a"), End: []byte("b"),
				Right: access.Read}, 0},
			{access.Permission{Keyspace: 7, Start: []byte("a"), End: []byte("b\x00"),
				Right: access.Read},
				access.Denied},
			{access.Permission{Keyspace: 7, Start: []byte("a"), End: all, Right: access.Read},
				access.Denied},
			{access.Permission{Keyspace: 7, End: all, Right: admin}, access.Denied},
			{access.Permission{Keyspace: 7, End: all, Right: access.Any}, 0},
			{access.Permission{Keyspace: 8, End: all, Right: access.Any}, access.Denied},
		} {
			wants(t, u, n.want, n.need)
			wants(t, u, n.want, read[0], n.need)
			if n.need.Right == access.Any && u.MayAny(n.need.Keyspace) != (n.want == 0) {
				t.Errorf("any right to keyspace %d: %t", n.need.Keyspace, n.want != 0)
			}
			wants(t, s.Client(access.Credentials{CertificateName: "u"}), n.want, n.need)
			wants(t, s.Client(access.Credentials{CertificateName: "root"}), 0, n.need)
			wants(t, s.Client(access.Credentials{Token: c.token("root")}), 0, n.need)
		}
		if u.Name() != "u" {
			t.Errorf("its name is %q", u.Name())
		}
		for _, shown := range []access.Credentials{{}, {Token: "nonsense"},
			{CertificateName: "nobody"}} {
			wants(t, s.Client(shown), access.Unauthenticated)
			if s.Client(shown).MayAny(7) {
				t.Errorf("%+v has a right", shown)
			}
		}
		// A token that a key of before has signed.
		old := c.token("u")
		c.change(disable(), enable(2))
		synctest.Wait()
		wants(t, s.Client(access.Credentials{Token: old}), access.Unauthenticated)
		wants(t, u, access.Unauthenticated)
	})
}

// Before it is known what a request needs, it is known which clients may do nothing, and which
// everything.
func TestStanding(t *testing.T) {
	in(t, func(t *testing.T, c *core) {
		c.users()
		c.change(addUser("idle"))
		s := begin(t, c, Flag{1, true})
		defer s.stop()
		synctest.Wait()
		for _, x := range []struct {
			shown access.Credentials
			free  bool
			want  access.Reason
		}{
			{access.Credentials{}, false, access.Unauthenticated},
			{access.Credentials{Token: "nonsense"}, false, access.Unauthenticated},
			{access.Credentials{CertificateName: "idle"}, false, access.Denied},
			{access.Credentials{CertificateName: "u"}, false, 0},
			{access.Credentials{Token: c.token("root")}, true, 0},
		} {
			free, err := s.Client(x.shown).Standing()
			var refused *access.Error
			if errors.As(err, &refused); free != x.free || (err != nil) != (x.want != 0) ||
				err != nil && refused.Reason != x.want {
				t.Errorf("%+v: %t, %v", x.shown, free, err)
			}
		}
		u := s.Client(access.Credentials{CertificateName: "u"})
		if n := testing.AllocsPerRun(50, func() { _, _ = u.Standing() }); n != 0 {
			t.Errorf("%v allocations", n)
		}
		c.change(disable())
		synctest.Wait()
		if free, err := s.Client(access.Credentials{}).Standing(); !free || err != nil {
			t.Errorf("authentication is not enabled: %t, %v", free, err)
		}
	})
}

// A change counts at once on connections that stand, and after 10 s at the latest if the server is
// cut off from the core.
func TestChangesWhileConnected(t *testing.T) {
	in(t, func(t *testing.T, c *core) {
		c.users()
		s := begin(t, c, Flag{1, true})
		defer s.stop()
		synctest.Wait()
		u := s.Client(access.Credentials{Token: c.token("u")})
		wants(t, u, 0)
		c.change(revoke(0))
		synctest.Wait()
		wants(t, u, access.Denied)
		c.change(grant(authority.KeyspaceRead))
		synctest.Wait()
		wants(t, u, 0)

		c.setCut(true)
		c.change(deleteUser("u"))
		changed := time.Now()
		for time.Since(changed) < 20*time.Second {
			if err := u.May(read); err == nil && time.Since(changed) > DefaultGrace {
				t.Fatalf("it may, %s after its user was deleted", time.Since(changed))
			}
			if err := u.May(read); err != nil && time.Since(changed) < DefaultGrace/2 {
				t.Fatalf("it may not %s after the core was lost: %v", time.Since(changed), err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		wants(t, u, access.Unknown)
		c.setCut(false)
		time.Sleep(5 * time.Second)
		wants(t, u, access.Unauthenticated)
		// One of the same name is another user.
		c.change(addUser("u"), grantRole("u", "r"))
		synctest.Wait()
		wants(t, u, access.Unauthenticated)
		wants(t, s.Client(access.Credentials{Token: c.token("u")}), 0)
	})
}

// A token counts for five minutes after it was issued, and its use changes nothing.
func TestTokenEnds(t *testing.T) {
	in(t, func(t *testing.T, c *core) {
		c.users()
		s := begin(t, c, Flag{1, true})
		defer s.stop()
		synctest.Wait()
		token := c.token("u")
		time.Sleep(time.Minute)
		u := s.Client(access.Credentials{Token: token})
		for range 4*60 - 1 {
			wants(t, u, 0)
			time.Sleep(time.Second)
		}
		wants(t, u, 0)
		time.Sleep(2 * time.Second)
		wants(t, u, access.Unauthenticated)
		wants(t, s.Client(access.Credentials{Token: token}), access.Unauthenticated)
	})
}

// A token of which the server cannot know yet is not refused for good.
func TestTokenAheadOfTables(t *testing.T) {
	in(t, func(t *testing.T, c *core) {
		c.users()
		s := begin(t, c, Flag{1, true})
		defer s.stop()
		synctest.Wait()
		c.setCut(true)
		c.change(addUser("v"), grantRole("v", "r"))
		v := s.Client(access.Credentials{Token: c.token("v")})
		wants(t, v, access.Unknown)
		c.setCut(false)
		time.Sleep(4 * time.Second)
		wants(t, v, 0)
	})
}

// A token that no member has issued is refused once the server knows what there was when it came,
// whatever index it names, has no name in errors, and does not have the core asked without bound.
func TestForgedTokens(t *testing.T) {
	in(t, func(t *testing.T, c *core) {
		c.users()
		s := begin(t, c, Flag{1, true})
		defer s.stop()
		synctest.Wait()
		c.mu.Lock()
		other := c.state
		for _, change := range []*storepb.AuthChange{disable(), enable(9)} {
			var err error
			if other, _, err = other.Change(change); err != nil {
				t.Fatal(err)
			}
		}
		login, _ := c.state.Login("u")
		forged := other.Sign(authority.Token{User: "u", Generation: login.Generation, Index: 1 << 60,
			Issued: time.Now()})
		before := c.asked
		c.mu.Unlock()
		liar := s.Client(access.Credentials{Token: forged})
		wants(t, liar, access.Unknown)
		for range 400 {
			time.Sleep(10 * time.Millisecond)
			_ = s.Client(access.Credentials{Token: forged}).May(read)
		}
		wants(t, liar, access.Unauthenticated)
		if liar.Name() != "" {
			t.Errorf("it is called %q", liar.Name())
		}
		c.mu.Lock()
		asked := c.asked - before
		c.mu.Unlock()
		if asked > 10 {
			t.Errorf("the core was asked %d times in 4 s", asked)
		}
	})
}

// A token that says that it was issued later than now counts only as far as clocks differ.
func TestTokenOfTheFuture(t *testing.T) {
	in(t, func(t *testing.T, c *core) {
		c.users()
		s := begin(t, c, Flag{1, true})
		defer s.stop()
		synctest.Wait()
		login, _ := c.state.Login("u")
		for ahead, want := range map[time.Duration]access.Reason{
			2 * time.Second: 0, time.Minute: access.Unauthenticated} {
			wants(t, s.Client(access.Credentials{Token: c.state.Sign(authority.Token{User: "u",
				Generation: login.Generation, Index: 1, Issued: time.Now().Add(ahead)})}), want)
		}
	})
}

func told(version uint64, on bool) *clusterpb.GuardState {
	return &clusterpb.GuardState{Version: version, On: on}
}

// A server that is told to follow says so, durably, when it has the tables, and refuses no client
// on the way; when it is told that it need not, it needs the core no more.
func TestLearn(t *testing.T) {
	in(t, func(t *testing.T, c *core) {
		c.setCut(true)
		s := begin(t, c, Flag{})
		defer s.stop()
		stranger := s.Client(access.Credentials{})
		s.Learn(told(1, true))
		for range 100 {
			time.Sleep(time.Second)
			wants(t, stranger, 0)
		}
		if s.Report().Guard.On || s.disk.On {
			t.Fatal("it says that it follows, and cannot")
		}
		c.setCut(false)
		time.Sleep(3 * time.Second)
		if r := s.Report().Guard; !r.On || r.Version != 1 || s.disk != (Flag{1, true}) {
			t.Fatalf("it does not follow: %v, disk %v", r, s.disk)
		}
		wants(t, stranger, 0)
		s.Learn(told(0, false)) // of a leader of before
		s.Learn(told(2, true))
		synctest.Wait()
		if s.disk != (Flag{2, true}) {
			t.Fatalf("the disk has %v", s.disk)
		}
		c.users()
		synctest.Wait()
		wants(t, stranger, access.Unauthenticated)

		s.full = true
		s.Learn(told(3, false))
		synctest.Wait()
		wants(t, stranger, access.Unauthenticated)
		if s.Flag() != (Flag{2, true}) {
			t.Fatalf("it goes by what is not on disk")
		}
		s.full = false
		s.Learn(told(3, false))
		synctest.Wait()
		wants(t, stranger, 0)
		c.setCut(true)
		time.Sleep(time.Hour)
		wants(t, stranger, 0)
	})
}

// A new server follows from the beginning, and one without data needs no tables to.
func TestAdopt(t *testing.T) {
	in(t, func(t *testing.T, c *core) {
		c.setCut(true)
		s := begin(t, c, Flag{})
		defer s.stop()
		if err := s.Adopt(told(4, true)); err != nil || s.disk != (Flag{4, true}) {
			t.Fatalf("%v, disk %v", err, s.disk)
		}
		wants(t, s.Client(access.Credentials{}), access.Unknown)
	})
}

// A stream that is not what it should be is ended, and what it says does not count.
func TestHostileStream(t *testing.T) {
	f := &following{cache: &Cache{}}
	if err := f.take(&clusterpb.AuthorityUpdate{Revision: 1, Answers: 1}); err == nil {
		t.Error("an answer to nothing was taken")
	}
	for _, u := range []*clusterpb.AuthorityUpdate{
		{Revision: 0}, {Revision: 1, Enabled: true, Key: []byte("short")},
		{Revision: 1, Users: []*clusterpb.AuthorityRecord{{Name: "u", Record: []byte{0xff}}}},
		{Revision: 1, Roles: []*clusterpb.AuthorityRecord{{Name: "u", Record: []byte{0xff}}}},
		{Revision: 1, Users: []*clusterpb.AuthorityRecord{{Name: "u", Record: encoded(t,
			&storepb.UserRecord{Generation: 9})}}},
	} {
		if err := (&following{cache: &Cache{}}).take(u); err == nil {
			t.Errorf("%v was taken", u)
		}
	}
}

func encoded(t *testing.T, r *storepb.UserRecord) []byte {
	data, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func BenchmarkMay(b *testing.B) {
	c := newCore(b)
	c.users()
	for range 100 {
		c.change(grant(authority.KeyspaceWrite), revoke(authority.KeyspaceWrite))
	}
	run := func(name string, mark Flag, still bool) {
		b.Run(name, func(b *testing.B) {
			s := begin(b, c, mark)
			if still { // without the cost of the system's clock
				for s.Client(access.Credentials{}).May(read) == nil || !s.current() {
					time.Sleep(time.Millisecond)
				}
				now := s.config.Monotonic()
				s.stop()
				s.config.Monotonic = func() int64 { return now }
			}
			defer s.stop()
			u := s.Client(access.Credentials{Token: c.token("u")})
			for u.May(read) != nil {
				time.Sleep(time.Millisecond)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := u.May(read); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("off", Flag{}, false)
	run("permitted", Flag{1, true}, false)
	run("permitted, clock stands", Flag{1, true}, true)
}
