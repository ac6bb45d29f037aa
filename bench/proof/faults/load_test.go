package faults

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/history"
	"github.com/tidemarkdb/tidemark/kv"
)

// memory is a store in a map. tamper, if not nil, is called before every write. If it returns drop,
// the write has no effect. err is the client's result.
type memory struct {
	tamper func(n int) (drop bool, err error)

	mu struct {
		sync.Mutex
		states map[string]history.State
		writes int
	}
}

func newMemory() *memory {
	m := &memory{}
	m.mu.states = make(map[string]history.State)
	return m
}

func (m *memory) write(key string, state history.State) error {
	m.mu.writes++
	if m.tamper != nil {
		drop, err := m.tamper(m.mu.writes)
		if !drop {
			m.mu.states[key] = state
		}
		return err
	}
	m.mu.states[key] = state
	return nil
}

func (m *memory) Get(_ context.Context, key string) (history.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.states[key], nil
}

func (m *memory) Put(_ context.Context, key, value string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.write(key, history.Value(value))
}

func (m *memory) Delete(_ context.Context, key string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	existed := m.mu.states[key].Present
	return existed, m.write(key, history.Absent)
}

func (m *memory) CompareAndSwap(_ context.Context, key string, expected, next history.State) (bool,
	history.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := m.mu.states[key]
	if found != expected {
		return false, found, nil
	}
	return true, history.Absent, m.write(key, next)
}

func TestLoadFindsWhatAStoreGetsWrong(t *testing.T) {
	refused := errors.New("no")
	for _, test := range []struct {
		name string
		fail func(n int) (drop bool, err error)
		good bool
	}{
		{"a store that is right", nil, true},
		{"a store that loses an acknowledged write",
			func(n int) (bool, error) { return n%40 == 0, nil }, false},
		{"a store that refuses some writes", func(n int) (bool, error) {
			if n%10 == 0 {
				return true, refused
			}
			return false, nil
		}, true},
		{"a store that does what it refuses", func(n int) (bool, error) {
			if n%10 == 0 {
				return false, refused
			}
			return false, nil
		}, false},
		{"a store that often does not know", func(n int) (bool, error) {
			if n%20 == 0 {
				return n%40 == 0, kv.ErrOutcomeUnknown
			}
			return false, nil
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			load := &Load{Recorder: history.NewRecorder(), Keys: 6, Counters: 2, Clients: 4,
				Interval: time.Millisecond, Timeout: time.Second}
			synctest.Test(t, func(t *testing.T) {
				store := newMemory()
				store.tamper = test.fail
				load.Store = store
				// virtual time
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				load.Start(ctx)
				<-ctx.Done()
				load.Stop()
				store.tamper = nil
			})
			report, err := load.Check(t.Context())
			if (err == nil) != test.good {
				t.Errorf("%v; %s: %v", report, load.Summary(), err)
			}
			if report.Operations < 500 {
				t.Errorf("only %d operations", report.Operations)
			}
		})
	}
}

func TestNumbers(t *testing.T) {
	for text, want := range map[string]uint64{"7 client 1, operation 2": 7,
		"18446744073709551615": 1<<64 - 1} {
		if got, err := counterNumber(history.Value(text)); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	if got, err := counterNumber(history.Absent); err != nil || got != 0 {
		t.Errorf("absent: %d, %v", got, err)
	}
	if _, err := counterNumber(history.Value("client 7")); err == nil {
		t.Error("a counter without a number was accepted")
	}
	if n, err := decodeNumber(true, encodeNumber(42, 64)); err != nil || n != 42 {
		t.Errorf("%d, %v; want 42", n, err)
	}
	if _, err := decodeNumber(true, []byte("short")); err == nil {
		t.Error("a short value was accepted")
	}
}

func TestCollectedKeepsTheFirst(t *testing.T) {
	var c collected
	if c.err() != nil {
		t.Error("an error from nothing")
	}
	for range 25 {
		c.add(errors.New("bad"))
	}
	if text := c.err().Error(); !strings.HasPrefix(text, "25 errors") || strings.Count(text,
		"bad") != 10 {
		t.Errorf("%q", text)
	}
}
