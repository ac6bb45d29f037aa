package imports

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// position is a change of one revision.
type position struct {
	revision uint64
	number   uint32
}

// fakeState is a naive State.
type fakeState struct {
	events map[position]bool
	leases map[int64]bool
	err    error
}

func newFakeState() *fakeState {
	return &fakeState{events: map[position]bool{}, leases: map[int64]bool{}}
}

func (s *fakeState) HasEvent(revision uint64, number uint32) (bool, error) {
	return s.events[position{revision, number}], s.err
}

func (s *fakeState) HasLease(id int64) (bool, error) { return s.leases[id], s.err }

// step does a step as the store does: what was checked is written.
func (s *fakeState) step(
	record *storepb.ImportRecord, m *storepb.Import,
) (*storepb.ImportRecord, *Refusal, error) {
	next, refused := Next(record, m)
	if refused != nil || next == nil {
		return record, refused, nil
	}
	refused, err := Check(s, m, next)
	if refused != nil || err != nil {
		return record, refused, err
	}
	for _, l := range m.Leases {
		s.leases[l.Id] = true
	}
	for _, v := range m.Versions {
		if v.ModRevision == next.Revision {
			s.events[position{v.ModRevision, v.Number}] = true
		}
	}
	return next, nil, nil
}

func step(n uint64, versions ...*storepb.ImportedVersion) *storepb.Import {
	return &storepb.Import{Id: 5, Step: n, Revision: 9, Versions: versions}
}

func version(key string, created, modified, version uint64) *storepb.ImportedVersion {
	return &storepb.ImportedVersion{Key: []byte(key), CreateRevision: created, ModRevision: modified,
		Version: version}
}

func leases(leases ...*storepb.ImportedLease) *storepb.Import {
	return &storepb.Import{Id: 5, Step: 2, Leases: leases}
}

func (s *fakeState) must(
	t *testing.T, record *storepb.ImportRecord, m *storepb.Import,
) *storepb.ImportRecord {
	t.Helper()
	next, refused, err := s.step(record, m)
	if refused != nil || err != nil {
		t.Fatal(refused, err)
	}
	return next
}

// Steps count what they bring, a repeated one changes nothing, and after the last one the import is
// no longer under way and another can begin.
func TestSteps(t *testing.T) {
	s := newFakeState()
	if UnderWay(nil) {
		t.Error("an import is under way before the first step")
	}
	first := step(1, version("a", 2, 9, 3), version("b", 2, 3, 2))
	first.Leases = []*storepb.ImportedLease{{Id: 3, TtlMillis: 10}, {Id: -1, TtlMillis: 10}}
	first.Versions[0].Lease = 3
	record := s.must(t, nil, first)
	if !UnderWay(record) || record.Leases != 2 || record.Versions != 2 || record.LastLease != -1 ||
		string(record.LastKey) != "b" {
		t.Fatalf("after the first step: %v", record)
	}
	before := proto.Clone(record)
	if again := s.must(t, record, first); !proto.Equal(again, before) {
		t.Errorf("a repeated step makes %v", again)
	}
	deleted := version("c", 0, 9, 0)
	deleted.Number = 1
	last := step(2, deleted)
	last.End = true
	done := s.must(t, record, last)
	if UnderWay(done) || done.Changes != 2 || !proto.Equal(record, before) {
		t.Errorf("after the last step: %v; the record before it: %v", done, record)
	}
	if another := s.must(t, done, &storepb.Import{Id: 6, Step: 1, Revision: 20}); another.Id != 6 {
		t.Errorf("another import: %v", another)
	}
}

// What cannot be the state of a store is refused, with what is wrong.
func TestRefusals(t *testing.T) {
	lost := version("c", 2, 2, 1)
	lost.Lease = 1
	hole := version("c", 9, 9, 1)
	hole.Number = 1
	end := step(2, hole)
	end.End = true
	for name, c := range map[string]struct {
		m    *storepb.Import
		code storepb.Code
		says string
	}{
		"another import": {&storepb.Import{Id: 6, Step: 1}, storepb.Code_IMPORTING, "not this one"},
		"a step too far": {step(3), storepb.Code_INVALID, "step 3"},
		"not ascending": {step(2, version("d", 2, 2, 1), version("c", 2, 3, 2)), storepb.Code_INVALID,
			`"c"`},
		"a key again":     {step(2, version("b", 2, 2, 1)), storepb.Code_INVALID, `"b"`},
		"no key":          {step(2, version("", 2, 2, 1)), storepb.Code_INVALID, "revision 2"},
		"too new":         {step(2, version("c", 2, 10, 1)), storepb.Code_INVALID, "revision 10"},
		"made later":      {step(2, version("c", 4, 3, 1)), storepb.Code_INVALID, `"c"`},
		"deleted earlier": {step(2, version("c", 0, 8, 0)), storepb.Code_INVALID, "revision 8"},
		"no lease":        {step(2, lost), storepb.Code_LEASE_NOT_FOUND, "lease 1"},
		"an event twice": {step(2, version("c", 2, 9, 2), version("d", 2, 9, 2)),
			storepb.Code_INVALID, "twice"},
		"a hole":          {end, storepb.Code_INVALID, "1 changes"},
		"a lease no term": {leases(&storepb.ImportedLease{Id: 1}), storepb.Code_INVALID, "lease 1"},
		"more than a term": {leases(&storepb.ImportedLease{Id: 1, TtlMillis: 1, LeftMillis: 2}),
			storepb.Code_INVALID, "lease 1"},
		"leases not ascending": {leases(&storepb.ImportedLease{Id: 2, TtlMillis: 1},
			&storepb.ImportedLease{Id: 1, TtlMillis: 1}), storepb.Code_INVALID, "after lease 2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeState()
			record := s.must(t, nil, step(1, version("b", 2, 3, 2)))
			before := proto.Clone(record)
			_, refused, err := s.step(record, c.m)
			if err != nil || refused == nil || refused.Code != c.code ||
				!strings.Contains(refused.Message, c.says) {
				t.Errorf("%+v, %v; want %v and %q", refused, err, c.code, c.says)
			}
			if !proto.Equal(record, before) {
				t.Errorf("the record becomes %v", record)
			}
		})
	}
}

// An event of an earlier step comes twice, too.
func TestEventOfAnEarlierStep(t *testing.T) {
	s := newFakeState()
	record := s.must(t, nil, step(1, version("a", 9, 9, 1)))
	_, refused, err := s.step(record, step(2, version("b", 9, 9, 1)))
	if refused == nil || err != nil {
		t.Error(refused, err)
	}
}

// What the state cannot say is an error, and no refusal.
func TestStateFails(t *testing.T) {
	broken := errors.New("broken")
	leased := version("c", 2, 2, 1)
	leased.Lease = 1
	for _, m := range []*storepb.Import{step(1, version("a", 9, 9, 1)), step(1, leased)} {
		s := newFakeState()
		s.err = broken
		if _, refused, err := s.step(nil, m); refused != nil || !errors.Is(err, broken) {
			t.Error(refused, err)
		}
	}
}
