package committer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// ageing is a fake whose estimates of the time are given.
type ageing struct {
	*fake
	estimates []hlc.Timestamp
	// takes is how long it takes until one is to be had.
	takes time.Duration
}

func (a *ageing) Now(context.Context) (now, age hlc.Timestamp, err error) {
	time.Sleep(a.takes)
	age, a.estimates = a.estimates[0], a.estimates[1:]
	return a.now(), age, nil
}

// A transaction that begins later is younger, whatever the nodes' clocks say, unless that would be
// for long; and another attempt is as old as the first. One that had to wait for a node's clock
// reading is as old as if that had been known at once.
func TestAgesAscend(t *testing.T) { synctest.Test(t, agesAscend) }

func agesAscend(t *testing.T) {
	at := func(ms int) hlc.Timestamp {
		return hlc.Timestamp{Wall: int64(time.Hour) + int64(ms)*int64(time.Millisecond)}
	}
	s := &ageing{newFake(t, 1),
		[]hlc.Timestamp{at(1000), at(900), at(1000), at(1100), at(500), at(99), at(100)}, 0}
	c, err := New(Config{Sender: s})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i, want := range []hlc.Timestamp{at(1000), at(1000).Next(), at(1000).Next().Next(),
		at(1100), at(1100).Next(), at(99), at(100)} {
		x, err := c.Begin(t.Context())
		if err != nil || x.Begun() != want {
			t.Errorf("number %d began at %s, want %s: %v", i, x.Begun(), want, err)
		}
	}
	s.estimates, s.takes = []hlc.Timestamp{at(20_000)}, 7*time.Second
	if late, err := c.Begin(t.Context()); err != nil || late.Begun() != at(13_000) {
		t.Errorf("one that waited for seven seconds began at %s: %v", late.Begun(), err)
	}
	s.estimates, s.takes = []hlc.Timestamp{at(14_000), at(15_000)}, 0
	first, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := first.Again(t.Context()); err != nil || again.Begun() != at(14_000) {
		t.Errorf("another attempt began at %s: %v", again.Begun(), err)
	}
}
