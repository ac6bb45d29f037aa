package coord_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv/coord"
)

// A session is kept alive for longer than its time to live, and ends when it is closed.
func TestSessionIsKeptAlive(t *testing.T) {
	w := begin(t)
	s := w.session(w.client(), coord.TTL(2*time.Second))
	begun := time.Now()
	_, err := s.Create(w.ctx, "a", nil)
	w.must(err)
	w.until("two times to live have passed", func() bool { return time.Since(begun) > 2*s.TTL() })
	w.must(s.Err())
	if keys := w.keys("a"); len(keys) != 1 {
		t.Errorf("keys %q", keys)
	}
	w.must(s.Close(w.ctx))
	w.is(s.Err(), coord.ErrSessionEnded, coord.ErrSessionClosed)
	w.is(context.Cause(s.Context()), coord.ErrSessionClosed)
	if keys := w.keys("a"); len(keys) != 0 {
		t.Errorf("keys %q after the session was closed", keys)
	}
	w.must(s.Close(w.ctx))
}

// A session whose lease was revoked by another client ends.
func TestSessionIsRevoked(t *testing.T) {
	w := begin(t)
	s := w.session(w.client(), coord.TTL(2*time.Second))
	e, err := s.Create(w.ctx, "a", nil)
	w.must(err)
	_, err = w.admin.Etcd().Revoke(w.ctx, s.Lease())
	w.must(err)
	w.done("the key's holder is told", e.Held().Done())
	w.done("the session has ended", s.Done())
	w.is(s.Err(), coord.ErrSessionExpired)
	other := w.session(w.client(), coord.TTL(time.Hour))
	_, err = w.admin.Etcd().Revoke(w.ctx, other.Lease())
	w.must(err)
	_, err = other.Create(w.ctx, "b", nil) // long before the next renewal
	w.is(err, coord.ErrSessionExpired)
	w.is(other.Err(), coord.ErrSessionExpired)
}

// A session that was cut off for a moment lives on.
func TestSessionSurvivesAShortCut(t *testing.T) {
	w := begin(t)
	p := w.proxied()
	client := w.clientAt(p.endpoints(), coord.AttemptTimeout(time.Second))
	s := w.session(client, coord.TTL(4*time.Second))
	p.cut()
	begun := time.Now()
	w.until("a renewal was due", func() bool { return time.Since(begun) > s.TTL()/2 })
	p.mend()
	w.until("its time to live has passed", func() bool { return time.Since(begun) > 3*s.TTL()/2 })
	w.must(s.Err())
}

func TestSessionRefuses(t *testing.T) {
	w := begin(t)
	for _, ttl := range []time.Duration{-1, 0, coord.MaxTTL + 1} {
		_, err := w.admin.NewSession(w.ctx, coord.TTL(ttl))
		w.is(err, coord.ErrInvalidArgument)
	}
	_, err := coord.Connect(w.ctx, nil)
	w.is(err, coord.ErrInvalidArgument)
	ctx, cancel := context.WithTimeout(w.ctx, 100*time.Millisecond)
	defer cancel()
	_, err = coord.Connect(ctx, []string{"127.0.0.1:1"})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("connecting to no server: %v", err)
	}
}

// Ephemeral keys are written by their session only, and say what is in the way.
func TestEphemeral(t *testing.T) {
	w := begin(t)
	client := w.client()
	s, other := w.session(client), w.session(client)
	e, err := s.Create(w.ctx, "a", []byte("1"))
	w.must(err)
	for _, s := range []*coord.Session{s, other} {
		_, err := s.Create(w.ctx, "a", []byte("1"))
		w.is(err, coord.ErrExists)
	}
	for _, value := range []string{"2", "2", "3"} {
		w.must(e.Set(w.ctx, []byte(value)))
		r, err := w.admin.Etcd().Get(w.ctx, e.Key())
		w.must(err)
		if string(r.Kvs[0].Value) != value || r.Kvs[0].Lease != int64(s.Lease()) {
			t.Errorf("%v; want the value %s", r.Kvs[0], value)
		}
	}
	w.must(e.Delete(w.ctx))
	w.is(e.Set(w.ctx, nil), coord.ErrReleased)
	_, err = other.Create(w.ctx, "a", nil)
	w.must(err)
}
