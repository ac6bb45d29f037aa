package store

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
)

// founded are members as a core of n was founded.
func founded(n uint64) *storepb.Members {
	m := &storepb.Members{NextReplica: n + 1}
	for i := uint64(1); i <= n; i++ {
		m.Members = append(m.Members, &storepb.Member{Replica: i, Server: 100 + i,
			Address: string(rune('a'-1+i)) + ":1"})
	}
	return m
}

func withFounding(n uint64) func(*Config) {
	return func(c *Config) { c.Founding = founded(n) }
}

// changed is what follows from the present members by a change.
func changed(s *Store, change func(*storepb.Members)) *storepb.Members {
	next := proto.Clone(s.Members()).(*storepb.Members)
	next.Version++
	change(next)
	return next
}

func addLearner(m *storepb.Members) {
	id := m.NextReplica
	m.NextReplica++
	m.Members = append(m.Members, &storepb.Member{Replica: id, Server: 100 + id,
		Address: "new:1", Role: storepb.MemberRole_LEARNER})
}

func setRole(replica uint64, role storepb.MemberRole) func(*storepb.Members) {
	return func(m *storepb.Members) {
		for _, x := range m.Members {
			if x.Replica == replica {
				x.Role = role
			}
		}
	}
}

func configuration(s *Store) string {
	c := s.Configuration()
	return c.String()
}

// TestMembersChangeByEntries takes a member in, as a learner and then by a joint configuration, and
// changes an address: the configuration follows what is applied, is the same on all members, and is
// found again when a store is opened. The state from before has no record of members, as that of an
// earlier version, and has those of the founding.
func TestMembersChangeByEntries(t *testing.T) {
	c := newCore(t, 2, withFounding(2))
	defer c.close()
	c.elect(c.members[0])
	s := c.members[0].store
	if got := configuration(s); got != "1:voter@1 2:voter@2" {
		t.Fatal(got)
	}
	if f := s.Configuration(); f.Changed {
		t.Fatal("the founding is no change")
	}
	for _, step := range []struct {
		change func(*storepb.Members)
		want   string
	}{
		{addLearner, "1:voter@1 2:voter@2 3:learner@3"},
		{setRole(3, storepb.MemberRole_INCOMING), "1:voter@1 2:voter@2 3:incoming voter@3"},
		{setRole(3, storepb.MemberRole_VOTER), "1:voter@1 2:voter@2 3:voter@3"},
		{func(m *storepb.Members) { m.Members[1].Address = "moved:1" },
			"1:voter@1 2:voter@2 3:voter@3"},
	} {
		do(t, s, ChangeMembers(changed(s, step.change)))
		if got := configuration(s); got != step.want {
			t.Fatalf("got %s, want %s", got, step.want)
		}
	}
	if len(c.changes) != 3 {
		t.Fatalf("an address is no change of the configuration: %q", c.changes)
	}
	c.members[1].catchUp()
	same(t, c.members[0].dump(), c.members[1].dump())
	other := c.members[1]
	other.close()
	other.open(withFounding(2))
	if got := other.store.Members(); !proto.Equal(got, s.Members()) || got.Version != 4 {
		t.Fatalf("opened again: %v", got)
	}
}

// TestFoundingOfAVersion: a store that is founded with members of a version has its first entries
// for all of them, as one of version 0 has; what it becomes by a change has not.
func TestFoundingOfAVersion(t *testing.T) {
	c := newCore(t, 1, func(c *Config) {
		c.Founding = founded(1)
		c.Founding.Version = 7
	})
	defer c.close()
	c.elect(c.members[0])
	s := c.members[0].store
	if f := s.Configuration(); f.Changed || s.Members().Version != 7 {
		t.Fatalf("the founding is no change: %v", s.Members())
	}
	put(t, s, "k", "v")
	snapshot, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	if f := snapshot.(group.Configured).Configuration(); f.Changed {
		t.Fatalf("the snapshot has %s, as a change", &f)
	}
	do(t, s, ChangeMembers(changed(s, addLearner)))
	if f := s.Configuration(); !f.Changed || s.Members().Version != 8 {
		t.Fatalf("the change is none: %v", s.Members())
	}
}

// TestMembersAreInTheBatchOfTheirEntry crashes after each entry: what is found has the applied
// index and the members of the same entry.
func TestMembersAreInTheBatchOfTheirEntry(t *testing.T) {
	c := newCore(t, 1, withFounding(1))
	defer c.close()
	m := c.members[0]
	c.elect(m)
	want := map[uint64]uint64{}
	note := func() {
		index, _ := m.store.Applied()
		want[index] = m.store.Members().Version
	}
	note()
	for _, change := range []func(*storepb.Members){addLearner,
		setRole(2, storepb.MemberRole_INCOMING), setRole(2, storepb.MemberRole_VOTER)} {
		do(t, m.store, ChangeMembers(changed(m.store, change)))
		note()
		put(t, m.store, "k", "v")
		note()
	}
	log := c.log
	for until := range len(log) + 1 {
		fresh := newCore(t, 1, withFounding(1))
		one := fresh.members[0]
		for i := range until {
			if err := one.store.Apply(log[i : i+1]); err != nil {
				t.Fatal(err)
			}
		}
		one.close()
		one.open(withFounding(1))
		index, _ := one.store.Applied()
		if v, ok := want[index]; ok && one.store.Members().Version != v || int(index) != until {
			t.Fatalf("index %d of %d: version %d, want %d", index, until, one.store.Members().Version, v)
		}
		fresh.close()
	}
}

// TestMembersThatDoNotFollow are refused before they are proposed, and when they are applied.
func TestMembersThatDoNotFollow(t *testing.T) {
	c, s := one(t, withFounding(1))
	do(t, s, ChangeMembers(changed(s, addLearner)))
	do(t, s, ChangeMembers(changed(s, func(m *storepb.Members) { m.Members = m.Members[:1] })))
	before := c.members[0].dump()
	for name, change := range map[string]func(*storepb.Members){
		"an id that was given out": func(m *storepb.Members) {
			m.Members = append(m.Members, &storepb.Member{Replica: 2, Server: 7, Address: "x:1",
				Role: storepb.MemberRole_LEARNER})
		},
		"ids anew":       func(m *storepb.Members) { m.NextReplica = 2 },
		"a server twice": func(m *storepb.Members) { addLearner(m); m.Members[1].Server = 101 },
		"another server": func(m *storepb.Members) { m.Members[0].Server = 9 },
		"a voter at once": func(m *storepb.Members) {
			addLearner(m)
			m.Members[1].Role = storepb.MemberRole_VOTER
		},
		"nobody":     func(m *storepb.Members) { m.Members = nil },
		"no address": func(m *storepb.Members) { m.Members[0].Address = "" },
		"old":        func(m *storepb.Members) { m.Version-- },
	} {
		next := changed(s, change)
		if _, err := s.Do(context.Background(), ChangeMembers(next)); err == nil {
			t.Errorf("%s: proposed", name)
		}
		data, err := command.Encode(ChangeMembers(next))
		if err != nil {
			t.Fatal(err)
		}
		for _, mark := range []bool{true, false} {
			c.mu.Lock()
			c.addLocked(group.Entry{Data: data, Change: mark})
			c.mu.Unlock()
		}
	}
	after := c.members[0].dump()
	for i := range before {
		if !strings.Contains(before[i], "applied") && before[i] != after[i] {
			t.Errorf("%s became %s", before[i], after[i])
		}
	}
	// The one that leads cannot go.
	do(t, s, ChangeMembers(changed(s, addLearner)))
	_, err := s.Do(context.Background(), ChangeMembers(changed(s, func(m *storepb.Members) {
		m.Members[0].Role = storepb.MemberRole_OUTGOING
		m.Members[1].Role = storepb.MemberRole_INCOMING
	})))
	if !errors.Is(err, command.ErrInvalid) || !strings.Contains(err.Error(), "hand over") {
		t.Fatal(err)
	}
}

// TestSnapshotHasItsMembers sends snapshots from before and after a change: each has the members of
// its own index, whatever was applied since, and brings them along.
func TestSnapshotHasItsMembers(t *testing.T) {
	_, s := one(t, withFounding(1))
	put(t, s, "k", "v")
	var open []group.Snapshot // a store waits for them when it is closed
	defer func() {
		for _, p := range open {
			_ = p.Close()
		}
	}()
	take := func() (group.Snapshot, string) {
		p, err := s.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, p)
		now := p.(group.Configured).Configuration()
		return p, now.String()
	}
	old, was := take()
	do(t, s, ChangeMembers(changed(s, addLearner)))
	fresh, is := take()
	if was != "1:voter@1" || is != "1:voter@1 2:learner@2" {
		t.Fatal(was, is)
	}
	if c := old.(group.Configured).Configuration(); c.String() != was {
		t.Fatalf("it became %s", &c)
	}
	for _, x := range []struct {
		snapshot group.Snapshot
		founding func(*Config)
		want     string
	}{
		{old, withFounding(1), "1:voter@1"},
		{fresh, nil, "1:voter@1 2:learner@2"},
	} {
		var b bytes.Buffer
		if err := x.snapshot.Write(context.Background(), &b); err != nil {
			t.Fatal(err)
		}
		to := newCore(t, 1, x.founding)
		m := to.members[0]
		staged, err := m.store.StageSnapshot(context.Background(), x.snapshot.Index(),
			x.snapshot.Term(), &b)
		if err != nil {
			t.Fatal(err)
		}
		if got := staged.(group.Configured).Configuration(); got.String() != x.want {
			t.Fatalf("staged: %s, want %s", got.String(), x.want)
		}
		if err := staged.Install(); err != nil {
			t.Fatal(err)
		}
		if got := configuration(m.store); got != x.want {
			t.Fatalf("installed: %s, want %s", got, x.want)
		}
		if err := x.snapshot.Close(); err != nil {
			t.Fatal(err)
		}
		to.close()
	}
}

// TestMemberThatIsToBeFilledKnowsNone opens a store without a founding.
func TestMemberThatIsToBeFilledKnowsNone(t *testing.T) {
	c := newCore(t, 1, nil)
	defer c.close()
	if got := c.members[0].store.Configuration(); !got.Empty() {
		t.Fatal(got.String())
	}
}
