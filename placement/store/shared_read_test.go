package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// everything reads all keys, in a context, and gives the revision of the state that was read.
func everything(ctx context.Context, s *Store) (map[string]string, uint64, error) {
	result, release, err := s.ReadTxnAs(ctx, nil, &storepb.Txn{Success: []*storepb.Op{{
		Op: &storepb.Op_Range{Range: &storepb.Range{Key: []byte{0}, RangeEnd: []byte{0}}}}}})
	defer release()
	if err != nil {
		return nil, 0, err
	}
	found := map[string]string{}
	for _, kv := range result.Txn.Results[0].GetRange().Kvs {
		found[string(kv.Key)] = string(kv.Value)
	}
	return found, result.Revision, nil
}

// openShare is a share that is open, and what its reads have to see.
type openShare struct {
	ctx    context.Context
	end    func()
	member *member
	// acknowledged is the revision of all that was acknowledged when it was opened, had that of what
	// its member had applied. seen is the newest that was read in it.
	acknowledged, had, seen uint64
	confirmed               bool
}

// Reads that share see one state, or newer ones in turn: whole ones, with what their member had,
// and those that ask for it with everything that was acknowledged anywhere before the share was
// opened.
func TestSharedReads(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		l := &links{}
		c := newCore(r, 2, func(c *Config) { c.Peers = l })
		l.core = c
		defer func() {
			c.close()
			l.late.Wait()
		}()
		c.elect(c.members[0])
		states := map[uint64]map[string]string{tables.InitialRevision: {}}
		last := uint64(tables.InitialRevision)
		var shares []*openShare
		defer func() {
			for _, s := range shares {
				s.end()
			}
		}()
		share := func(r *rapid.T) *openShare {
			if len(shares) == 0 {
				r.Skip()
			}
			return shares[rapid.IntRange(0, len(shares)-1).Draw(r, "share")]
		}
		read := func(r *rapid.T, s *openShare) {
			found, revision, err := everything(s.ctx, s.member.store)
			if err != nil {
				r.Fatal(err)
			}
			least := max(s.had, s.seen)
			if s.confirmed {
				least = max(least, s.acknowledged)
			}
			if revision < least || !maps.Equal(found, states[revision]) {
				r.Fatalf("%v at revision %d, at least %d, where %v is", found, revision, least,
					states[revision])
			}
			s.seen = revision
		}
		r.Repeat(map[string]func(*rapid.T){
			"write": func(r *rapid.T) {
				key := fmt.Sprint("k", rapid.IntRange(0, 4).Draw(r, "key"))
				next := maps.Clone(states[last])
				next[key] = fmt.Sprint(last)
				last = put(r, c.members[0].store, key, next[key])
				states[last] = next
			},
			"catch up": func(*rapid.T) { c.members[1].catchUp() },
			"open": func(r *rapid.T) {
				if len(shares) == 4 {
					r.Skip()
				}
				m := c.members[rapid.IntRange(0, 1).Draw(r, "member")]
				s := &openShare{member: m, acknowledged: last, had: m.store.Revision()}
				s.ctx, s.end = m.store.WithSharedRead(context.Background())
				shares = append(shares, s)
			},
			"read": func(r *rapid.T) { read(r, share(r)) },
			"read the newest": func(r *rapid.T) {
				s := share(r)
				stop := func() {}
				if s.member != c.members[0] {
					stop = s.member.keepUp()
				}
				_, err := s.member.store.Read(s.ctx)
				stop()
				if err != nil {
					r.Fatal(err)
				}
				s.confirmed = true
				read(r, s)
			},
			"end": func(r *rapid.T) {
				s := share(r)
				s.end()
				for i := range shares {
					if shares[i] == s {
						shares = append(shares[:i], shares[i+1:]...)
						return
					}
				}
			},
		})
	})
}

// A read that shares a state with ones that did not ask for the newest sees that all the same.
func TestSharedReadOfTheNewest(t *testing.T) {
	_, s := one(t, nil)
	put(t, s, "k", "1")
	ctx, end := s.WithSharedRead(t.Context())
	defer end()
	if found, _, err := everything(ctx, s); err != nil || found["k"] != "1" {
		t.Fatal(found, err)
	}
	put(t, s, "k", "2")
	// It may see this, and does not, since nothing asks for it.
	if found, _, err := everything(ctx, s); err != nil || found["k"] != "1" {
		t.Fatal(found, err)
	}
	if _, err := s.Read(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if found, _, err := everything(ctx, s); err != nil || found["k"] != "2" {
			t.Errorf("%v, %v", found, err)
		}
	}
	// Another store has no part in it, and neither have reads after it.
	_, other := one(t, nil)
	put(t, other, "k", "3")
	if found, _, err := everything(ctx, other); err != nil || found["k"] != "3" {
		t.Errorf("%v, %v", found, err)
	}
	put(t, s, "k", "4")
	end()
	if found, _, err := everything(t.Context(), s); err != nil || found["k"] != "4" {
		t.Errorf("%v, %v", found, err)
	}
}

// A member that cannot show that it is up to date reads nothing for those that ask for it, and
// holds nothing meanwhile.
func TestSharedReadWithoutQuorum(t *testing.T) {
	c, s := one(t, nil)
	put(t, s, "k", "1")
	ctx, end := s.WithSharedRead(t.Context())
	defer end()
	if _, _, err := everything(ctx, s); err != nil {
		t.Fatal(err)
	}
	c.setCut(true)
	if _, err := s.Read(ctx); !errors.Is(err, errNoQuorum) {
		t.Errorf("read without a quorum: %v", err)
	}
	c.setCut(false)
	put(t, s, "k", "2")
	c.setCut(true)
	if found, _, err := everything(ctx, s); err != nil || found["k"] != "2" {
		t.Errorf("a read that does not ask for it, of a state that is opened anew: %v, %v", found, err)
	}
	c.setCut(false)
	if _, err := s.Read(ctx); err != nil {
		t.Error(err)
	}
}

// What is being imported is not read in part, also by those that share.
func TestSharedReadDuringImport(t *testing.T) {
	_, s := one(t, nil)
	before, end := s.WithSharedRead(t.Context())
	defer end()
	if _, err := s.Read(before); err != nil {
		t.Fatal(err)
	}
	stale, end := s.WithSharedRead(t.Context())
	defer end()
	for _, ctx := range []context.Context{before, stale} {
		if found, _, err := everything(ctx, s); err != nil || len(found) > 0 {
			t.Fatal(found, err)
		}
	}
	do(t, s, Import(&storepb.Import{Id: 7, Step: 1, Versions: []*storepb.ImportedVersion{
		{Key: []byte("k"), Value: []byte("1"), CreateRevision: 5, ModRevision: 5, Version: 1}},
		Revision: 9}))
	// All of the state before it came.
	if found, _, err := everything(before, s); err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := s.Read(stale); err != nil {
		t.Fatal(err)
	}
	if found, _, err := everything(stale, s); !errors.Is(err, command.ErrImporting) {
		t.Errorf("%v, %v", found, err)
	}
}

// Users and roles that change do not have the rest of a share refused that has a state open, but
// what they forbid now.
func TestSharedReadOfUsers(t *testing.T) {
	_, s := one(t, nil)
	withUsers(t, s)
	put(t, s, "u/a", "1")
	ctx, end := s.WithSharedRead(t.Context())
	defer end()
	read := func(who *storepb.AuthInfo) error {
		_, release, err := s.ReadTxnAs(ctx, who, &storepb.Txn{Success: []*storepb.Op{{
			Op: &storepb.Op_Range{Range: &storepb.Range{Key: []byte("u/a")}}}}})
		release()
		return err
	}
	user := func() *storepb.AuthInfo {
		return &storepb.AuthInfo{User: "u", Revision: s.Authority().Revision()}
	}
	old := user()
	if err := read(old); err != nil {
		t.Fatal(err)
	}
	do(t, s, addRole("other"))
	for range 2 {
		if err := read(user()); err != nil {
			t.Errorf("by the rules of now: %v", err)
		}
	}
	if err := read(old); !errors.Is(err, authority.ErrOldRevision) {
		t.Errorf("by the rules that are over: %v", err)
	}
	do(t, s, revokePermission("r", "u/", "u0"))
	if err := read(user()); !errors.Is(err, authority.ErrPermissionDenied) {
		t.Errorf("what is forbidden now: %v", err)
	}
}

// A store that closes waits for the shares that read it, and is read no more for them.
func TestSharedReadAtTheEnd(t *testing.T) {
	c, s := one(t, nil)
	put(t, s, "k", "1")
	ctx, end := s.WithSharedRead(t.Context())
	other, endOther := s.WithSharedRead(t.Context())
	defer endOther()
	if _, _, err := everything(ctx, s); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.close()
	}()
	for done := false; !done; {
		_, _, err := everything(other, s)
		if done = errors.Is(err, command.ErrClosed); !done && err != nil {
			t.Fatal(err)
		}
		endOther()
	}
	// A state that was opened before is read until all calls end, a moment later.
	for done := false; !done; {
		found, _, err := everything(ctx, s)
		if done = errors.Is(err, command.ErrClosed); !done && (err != nil || found["k"] != "1") {
			t.Fatalf("a state that was opened before: %v, %v", found, err)
		}
	}
	select {
	case <-closed:
		t.Error("it did not wait")
	default:
	}
	end()
	<-closed
}
