package passwords

import (
	"errors"
	"strings"
	"testing"

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
