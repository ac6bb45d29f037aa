package passwords

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"golang.org/x/crypto/bcrypt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHashAndCompare(t *testing.T) {
	p := New(Config{Cost: bcrypt.MinCost})
	ctx := t.Context()
	hash, err := p.Hash(ctx, "host", "secret")
	if err != nil {
		t.Fatal(err)
	}
	if cost, err := bcrypt.Cost(hash); err != nil || cost != bcrypt.MinCost {
		t.Errorf("cost %d, %v", cost, err)
	}
	other, err := p.Hash(ctx, "host", "secret")
	if err != nil || string(other) == string(hash) {
		t.Errorf("the same salt twice: %s, %v", other, err)
	}
	dear, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost+dearer+1)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		hash     []byte
		password string
		want     bool
	}{
		"right":            {hash, "secret", true},
		"wrong":            {hash, "Secret", false},
		"empty":            {hash, "", false},
		"no user":          {nil, "secret", false},
		"that of no user":  {nil, "of no user", false},
		"no hash":          {[]byte("x"), "of no user", false},
		"a hash too dear":  {dear, "secret", false},
		"longer than 72":   {hash, strings.Repeat("x", 100), false},
		"an empty hash":    {[]byte{}, "", false},
		"a hash cut short": {hash[:40], "secret", false},
	} {
		if got, err := p.Compare(ctx, "host", c.hash, c.password); err != nil || got != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := p.Hash(ctx, "host", strings.Repeat("x", 73)); !errors.Is(err, ErrPassword) ||
		err.Error() != bcrypt.ErrPasswordTooLong.Error() {
		t.Errorf("a long password: %v", err)
	}
	if cost := New(Config{}).cost; cost != bcrypt.DefaultCost {
		t.Errorf("cost %d by default", cost)
	}
}

// A party with many that wait delays another one by one turn.
func TestPartiesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1, 100, 1000)
		ctx := t.Context()
		if err := turns.enter(ctx, "first"); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var served []string
		wait := func(party string) {
			go func() {
				if err := turns.enter(ctx, party); err != nil {
					t.Error(err)
				}
				mu.Lock()
				served = append(served, party)
				mu.Unlock()
				turns.leave()
			}()
			synctest.Wait()
		}
		for range 5 {
			wait("many")
		}
		wait("few")
		wait("other")
		wait("few")
		turns.leave()
		synctest.Wait()
		if got := strings.Join(served, " "); got != "many few other many few many many many" {
			t.Errorf("served: %s", got)
		}
		if turns.mu.free != 1 || turns.mu.waiting != 0 || len(turns.mu.queues) != 0 ||
			len(turns.mu.order) != 0 {
			t.Errorf("something is left: %+v", &turns.mu)
		}
	})
}

func TestNotTooManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(2, 2, 3)
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			if err := turns.enter(ctx, "a"); err != nil {
				t.Fatal(err)
			}
		}
		ended := make(chan error, 3)
		for _, party := range []string{"a", "a", "b"} {
			go func() { ended <- turns.enter(ctx, party) }()
		}
		synctest.Wait()
		for _, party := range []string{"a", "b", "c"} {
			if err := turns.enter(ctx, party); !errors.Is(err, ErrBusy) {
				t.Errorf("%s: %v", party, err)
			}
		}
		// A caller that gives up leaves nothing behind.
		cancel()
		for range 3 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		turns.leave()
		turns.leave()
		if turns.mu.free != 2 || turns.mu.waiting != 0 || len(turns.mu.queues) != 0 ||
			len(turns.mu.order) != 0 {
			t.Errorf("something is left: %+v", &turns.mu)
		}
	})
}
