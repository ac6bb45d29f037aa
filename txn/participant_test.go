package txn

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

func parsed(t *testing.T, participants ...*kvpb.Participant) ([]Participant, error) {
	t.Helper()
	e, err := ParseEnd(&kvpb.EndTransactionRequest{Transaction: sampleInfo().Proto(),
		Participants: participants})
	if err != nil {
		return nil, err
	}
	return e.Participants, nil
}

// A participant comes out of a message as it was put in; one that a client of an earlier version
// names by a key is its whole keyspace.
func TestParticipantsInMessages(t *testing.T) {
	spans := []Participant{between(7, "a", "b"), point(8, "a"),
		{Keyspace: 9, Hash: keys.MaxHashPartitions - 1, First: []byte("x"), Last: []byte("y")}}
	var messages []*kvpb.Participant
	for i := range spans {
		messages = append(messages, spans[i].Proto())
	}
	if got, err := parsed(t, messages...); err != nil || !reflect.DeepEqual(got, spans) {
		t.Errorf("%+v, %v", got, err)
	}
	if messages[1].Last != nil {
		t.Error("a key is named twice")
	}
	earlier := []*kvpb.Participant{{Keyspace: 7, Key: []byte("a")}}
	got, err := parsed(t, earlier...)
	if err != nil || len(got) != 1 || !got[0].Whole() || got[0].Keyspace != 7 ||
		!reflect.DeepEqual(got[0].Proto(), earlier[0]) {
		t.Errorf("%+v, %v", got, err)
	}
	zero, large := uint32(0), uint32(keys.MaxHashPartitions)
	for _, c := range []struct {
		of   []*kvpb.Participant
		want string
	}{
		{[]*kvpb.Participant{nil}, "the key is empty"},
		{[]*kvpb.Participant{{Key: []byte("a"), Last: []byte("b")}}, "no hash number"},
		{[]*kvpb.Participant{{Key: []byte("a"), Hash: &large}}, "hash number 16384"},
		{[]*kvpb.Participant{{Key: []byte("b"), Last: []byte("a"), Hash: &zero}},
			"lies below its first"},
		{[]*kvpb.Participant{{Last: []byte("a"), Hash: &zero}}, "the key is empty"},
		{[]*kvpb.Participant{{Key: []byte("a"), Last: make([]byte, keys.MaxKeySize+1),
			Hash: &zero}}, "bytes"},
		{[]*kvpb.Participant{{Key: []byte("a")}, {Key: []byte("a"), Hash: &zero}}, "some keys"},
		{slices.Repeat([]*kvpb.Participant{{Key: make([]byte, 4096), Hash: &zero}},
			MaxParticipantBytes/4096+1), "more than 8388608 bytes"},
		{slices.Repeat([]*kvpb.Participant{{Key: []byte("a"), Last: make([]byte, 4096), Hash: &zero}},
			MaxParticipantBytes/4096), "more than 8388608 bytes"},
		{make([]*kvpb.Participant, MaxParticipants+1), "at most 100000"},
	} {
		if got, err := parsed(t, c.of...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d participants: %+v, %v, want something about %q", len(c.of), got, err, c.want)
		}
	}
}

// Spans that are too many, or whose keys are too long, become fewer and wider, and go on to hold
// all that they held.
func TestParticipantsAreJoined(t *testing.T) {
	long := func(i int, end byte) []byte {
		return append([]byte(fmt.Sprintf("%07d", i)), bytes.Repeat([]byte{end}, keys.MaxKeySize-7)...)
	}
	for name, c := range map[string]struct {
		n    int
		of   func(i int) Participant
		want int // how many there are then
	}{
		"few": {1000, func(i int) Participant {
			return Participant{First: []byte(fmt.Sprint(i)), Last: []byte(fmt.Sprint(i) + "x")}
		}, 1000},
		"as many as may be": {MaxParticipants, func(i int) Participant {
			return point(1, fmt.Sprint(i))
		}, MaxParticipants},
		"one too many": {MaxParticipants + 1, func(i int) Participant {
			return point(1, fmt.Sprintf("%07d", (i*7919)%(MaxParticipants+1)))
		}, MaxParticipants},
		"long keys": {2048, func(i int) Participant {
			return Participant{Hash: uint32(i % 2), First: long(i, 'a'), Last: long(i, 'b')}
		}, 512},
		"long keys of many hash numbers": {2048, func(i int) Participant {
			return Participant{Hash: uint32(i), First: long(i, 'a'), Last: long(i, 'b')}
		}, 2048},
		"long keys of many keyspaces": {2048, func(i int) Participant {
			return Participant{Keyspace: keys.KeyspaceID(i), First: long(i, 0xff), Last: long(i, 0xff)}
		}, 2048},
	} {
		all := make([]Participant, c.n)
		for i := range all {
			all[i] = c.of(i)
		}
		joined := JoinParticipants(slices.Clone(all))
		if len(joined) != c.want || !ParticipantsFit(joined) {
			t.Errorf("%s: %d became %d", name, c.n, len(joined))
		}
		if err := validateParticipants(joined); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		checkJoined(t, all, joined)
	}
	// There is nothing above them to be widened to.
	highest := make([]Participant, 1025)
	for i := range highest {
		highest[i] = Participant{Keyspace: keys.KeyspaceID(i),
			First: bytes.Repeat([]byte{0xff}, keys.MaxKeySize-1),
			Last:  bytes.Repeat([]byte{0xff}, keys.MaxKeySize)}
	}
	joined := JoinParticipants(slices.Clone(highest))
	checkJoined(t, highest, joined)
	if ParticipantsFit(joined) {
		t.Error("the highest keys fit")
	}
}

type fataler interface {
	Fatalf(format string, args ...any)
}

// checkJoined checks that every key of some participants is in others.
func checkJoined(t fataler, all, joined []Participant) {
	joined = slices.Clone(joined)
	slices.SortFunc(joined, compareParticipants)
	// What overlaps is as good as one span.
	whole := joined[:1]
	for _, p := range joined[1:] {
		last := &whole[len(whole)-1]
		if last.Keyspace == p.Keyspace && last.Hash == p.Hash &&
			bytes.Compare(p.First, last.Last) <= 0 {
			if bytes.Compare(p.Last, last.Last) > 0 {
				last.Last = p.Last
			}
			continue
		}
		whole = append(whole, p)
	}
	for _, p := range all {
		n, found := slices.BinarySearchFunc(whole, p, compareParticipants)
		if !found {
			n--
		}
		if n < 0 || whole[n].Keyspace != p.Keyspace || whole[n].Hash != p.Hash ||
			bytes.Compare(whole[n].Last, p.Last) < 0 {
			t.Fatalf("%.60s is in none of %d spans", p.Span(), len(joined))
		}
	}
}

// Neighbours are joined whatever they are, also where they overlap.
func TestJoinedPairsHoldTheirKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := make([]Participant, rapid.IntRange(1, 30).Draw(t, "n"))
		for i := range all {
			word := rapid.StringMatching("[a-e]{1,3}")
			a, b := word.Draw(t, "a"), word.Draw(t, "b")
			all[i] = between(keys.KeyspaceID(rapid.IntRange(1, 2).Draw(t, "keyspace")), min(a, b),
				max(a, b))
			all[i].Hash = rapid.Uint32Range(0, 2).Draw(t, "hash")
		}
		joined := slices.Clone(all)
		slices.SortFunc(joined, compareParticipants)
		joined = joinPairs(joined, func(n, _ int) bool { return n <= 1 })
		checkJoined(t, all, joined)
	})
}
