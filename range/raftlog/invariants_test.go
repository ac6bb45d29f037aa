//go:build invariants || race

package raftlog

import (
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/invariants"
)

// An append with a gap, with a term that falls, or with a second vote in a term, is not written.
func TestAppendsAreChecked(t *testing.T) {
	entry := func(index, term uint64) *raftpb.Entry {
		return &raftpb.Entry{Index: &index, Term: &term}
	}
	hard := func(term, vote uint64) *raftpb.HardState {
		return &raftpb.HardState{Term: &term, Vote: &vote}
	}
	for _, c := range []struct {
		name, want string
		append     Append
	}{
		{"what follows", "", Append{Entries: []*raftpb.Entry{entry(6, 2), entry(7, 3)},
			HardState: hard(3, 1)}},
		{"what replaces the end", "", Append{Entries: []*raftpb.Entry{entry(4, 2)}}},
		{"a gap before", "entry 7 is written", Append{Entries: []*raftpb.Entry{entry(7, 2)}}},
		{"a gap within", "entry 8 is written",
			Append{Entries: []*raftpb.Entry{entry(6, 2), entry(8, 2)}}},
		{"a term that falls", "entry 7 is of term 1",
			Append{Entries: []*raftpb.Entry{entry(6, 2), entry(7, 1)}}},
		{"a hard state that falls", "term 1 with a vote", Append{HardState: hard(1, 1)}},
		{"a second vote", "a vote for 3 follows", Append{HardState: hard(2, 3)}},
	} {
		c.append.Group = &Group{written: 5, writtenTerm: 2, writtenVote: 1}
		text := invariants.Violated(c.append.checkInvariants)
		if c.want == "" && text != "" || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, want %q", c.name, text, c.want)
		}
	}
}

// The tail in memory is the end of the log.
func TestTailsAreChecked(t *testing.T) {
	index, term := uint64(8), uint64(2)
	g := &Group{}
	g.mu.last, g.mu.lastTerm = 9, term
	g.mu.tail = []*raftpb.Entry{{Index: &index, Term: &term}}
	if text := invariants.Violated(g.checkInvariantsLocked); !strings.Contains(text,
		"entry 8 is in memory in the place of entry 9") {
		t.Errorf("the check says %q", text)
	}
}
