package kv_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// expiringSessions keeps sessions that end half an hour after they were last used, in a keyspace
// whose values live for a day if nothing else is said.
func expiringSessions(ctx context.Context, client *kv.Client) error {
	ks, err := client.CreateKeyspace(ctx, "sessions", kv.Hash(8), kv.DefaultTTL(24*time.Hour))
	if err != nil {
		return err
	}

	// It lives for half an hour, from its version's timestamp on.
	if _, err := ks.Put(ctx, []byte("7f3a"), []byte("alice"), kv.TTL(30*time.Minute)); err != nil {
		return err
	}

	// Each use of the session has it live for half an hour more. If it has expired it is absent.
	session, err := ks.Get(ctx, []byte("7f3a"))
	if errors.Is(err, kv.ErrNotFound) {
		return errors.New("log in again")
	}
	if err != nil {
		return err
	}
	_, err = ks.CompareAndSwap(ctx, session.Key, kv.ExpectVersion(session.Version),
		kv.Set(session.Value, kv.TTL(30*time.Minute)))
	if err != nil {
		return err
	}

	// A counter for each minute, which needs no cleaning up.
	_, _, err = ks.Increment(ctx, []byte("logins/12:34"), 1, kv.TTL(2*time.Minute))
	if err != nil {
		return err
	}

	// In a transaction values live from the commit on; this one does not expire at all.
	_, err = client.Update(ctx, func(tx *kv.Txn) error {
		return tx.Put(ks, []byte("alice/last"), []byte("7f3a"), kv.NoTTL())
	})
	return err
}

// The example does what it says, and the document shows it.
func TestTheExampleOfExpiry(t *testing.T) {
	withExpiry(t, func(ctx context.Context, client *kv.Client, _ *kv.Keyspace) {
		if err := expiringSessions(ctx, client); err != nil {
			t.Fatal(err)
		}
		ks := client.Keyspace("sessions")
		for key, minutes := range map[string]time.Duration{"7f3a": 30, "logins/12:34": 2,
			"alice/last": 0} {
			p, err := ks.Get(ctx, []byte(key))
			lives := time.Duration(0)
			if !p.Expires.IsZero() {
				lives = p.Expires.Sub(p.Version.Time())
			}
			if err != nil || lives != minutes*time.Minute {
				t.Errorf("%s lives %s, %v", key, lives, err)
			}
		}
	}, kv.Hash(1))
	document, err := os.ReadFile("../docs/expiry.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_ttl_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(document), -1)
	if len(blocks) == 0 {
		t.Error("the document has no code")
	}
	for _, block := range blocks {
		if !strings.Contains(trimmed(string(example)), trimmed(block[1])) {
			t.Errorf("this is not in the example:\n%s", block[1])
		}
	}
}
