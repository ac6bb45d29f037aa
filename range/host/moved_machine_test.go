package host

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/tidemarkdb/tidemark/range/group"
)

// movedState is the state of a machine whose group's replicas change.
type movedState struct {
	Index, Term   uint64
	Values        []string
	Configuration group.Configuration
}

// movedMachine keeps it. A crash takes it back to what was durable.
type movedMachine struct {
	mu             sync.Mutex
	state, durable movedState
	leadership     group.Leadership
	// gate, if not nil, holds Apply up until it is closed.
	gate chan struct{}
}

func (m *movedMachine) read() movedState {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.state
	s.Values = slices.Clone(s.Values)
	return s
}

func (m *movedMachine) Applied() (uint64, uint64) { s := m.read(); return s.Index, s.Term }

func (m *movedMachine) Configuration() group.Configuration { return m.read().Configuration }

const changePrefix = "change "

func (m *movedMachine) Apply(entries []group.Entry) error {
	m.mu.Lock()
	gate := m.gate
	m.mu.Unlock()
	if gate != nil {
		<-gate
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		if e.Index != m.state.Index+1 {
			return fmt.Errorf("entry %d after %d", e.Index, m.state.Index)
		}
		m.state.Index, m.state.Term = e.Index, e.Term
		if len(e.Data) == 0 {
			continue
		}
		m.state.Values = append(m.state.Values, string(e.Data))
		if text, ok := strings.CutPrefix(string(e.Data), changePrefix); ok && e.Change {
			var next group.Configuration
			if err := json.Unmarshal([]byte(text), &next); err != nil {
				return err
			}
			if m.state.Configuration.CanBecome(&next) != nil {
				continue // of a leader that is none any more
			}
			m.state.Configuration = next
		}
	}
	return nil
}

func (m *movedMachine) DurableApplied() (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.durable.Index, nil
}

// flush makes durable what is there.
func (m *movedMachine) flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.durable = m.state
	m.durable.Values = slices.Clone(m.state.Values)
}

func (m *movedMachine) crash() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = m.durable
	m.state.Values = slices.Clone(m.durable.Values)
}

func (m *movedMachine) LeadershipChanged(l group.Leadership) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leadership = l
}

type movedSnapshot struct{ movedState }

func (s *movedSnapshot) Index() uint64 { return s.movedState.Index }

func (s *movedSnapshot) Term() uint64 { return s.movedState.Term }

func (s *movedSnapshot) Configuration() group.Configuration { return s.movedState.Configuration }

func (s *movedSnapshot) Close() error { return nil }

func (s *movedSnapshot) Write(_ context.Context, w io.Writer) error {
	b, err := json.Marshal(s.movedState)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

func (m *movedMachine) Snapshot() (group.Snapshot, error) { return &movedSnapshot{m.read()}, nil }

type movedStaged struct {
	movedSnapshot
	of *movedMachine
}

func (m *movedMachine) StageSnapshot(_ context.Context, _, _ uint64, r io.Reader) (group.Staged,
	error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	s := &movedStaged{of: m}
	return s, json.NewDecoder(bytes.NewReader(b)).Decode(&s.movedState)
}

func (s *movedStaged) Install() error {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.state = s.movedState
	s.of.durable = s.of.state
	s.of.durable.Values = slices.Clone(s.of.state.Values)
	return nil
}

func (s *movedStaged) Discard() {}
