package store

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
)

// A comparison over a range that has no keys is made as etcd makes it: with a key that does not
// exist, whose numbers are 0, and which has no value that could be compared.
func TestCompareOverNoKeys(t *testing.T) {
	targets := []storepb.Compare_Target{
		storepb.Compare_VERSION, storepb.Compare_CREATE, storepb.Compare_MOD, storepb.Compare_LEASE,
		storepb.Compare_VALUE,
	}
	ranges := []struct {
		name       string
		start, end string
		empty      bool
	}{
		{"no key in it", "m", "n", true},
		{"all keys from a start on, and there is none", "x", "\x00", true},
		{"its end is its start", "a", "a", true},
		{"its end is below its start", "c", "a", true},
		{"a key that was deleted", "d", "e", true},
		{"one key", "a", "b", false},
	}
	for _, r := range ranges {
		for _, target := range targets {
			for relation := range storepb.Compare_Relation_name {
				for _, number := range []int64{-1, 0, 1} {
					relation := storepb.Compare_Relation(relation)
					name := fmt.Sprintf("%s/%s %s %d", r.name, target, relation, number)
					t.Run(name, func(t *testing.T) {
						_, s := one(t, nil)
						put(t, s, "a", "value") // revision 2
						put(t, s, "d", "")
						do(t, s, writes(Delete([]byte("d"))))
						result := do(t, s, If([]*storepb.Compare{{
							Key: []byte(r.start), RangeEnd: []byte(r.end), Target: target,
							Relation: relation, Number: number,
						}}, nil, nil))
						if got, want := result.Txn.Succeeded,
							etcdHolds(r.empty, target, relation, number); got != want {
							t.Errorf("holds: %v, in etcd %v", got, want)
						}
					})
				}
			}
		}
	}
}

// etcdHolds is what etcd's applyCompare comes to. If there is a key it is "a", of version 1,
// created and changed at revision 2, without a lease.
func etcdHolds(
	empty bool, target storepb.Compare_Target, relation storepb.Compare_Relation, number int64,
) bool {
	var field int64
	switch {
	case empty && target == storepb.Compare_VALUE:
		return false
	case target == storepb.Compare_VALUE:
		field, number = 1, 0 // "value" and an empty one
	case empty, target == storepb.Compare_LEASE:
	case target == storepb.Compare_VERSION:
		field = 1
	default:
		field = 2
	}
	return map[storepb.Compare_Relation]bool{
		storepb.Compare_EQUAL: field == number, storepb.Compare_NOT_EQUAL: field != number,
		storepb.Compare_GREATER: field > number, storepb.Compare_LESS: field < number,
	}[relation]
}

// What an earlier version has put into the log is applied as that version has applied it: to it, a
// comparison over no keys always held. Otherwise members of the two versions would come to differ.
func TestCompareOverNoKeysInAnOldLog(t *testing.T) {
	c, s := one(t, nil)
	command := If([]*storepb.Compare{{
		Key: []byte("m"), RangeEnd: []byte("n"), Target: storepb.Compare_VERSION,
		Relation: storepb.Compare_GREATER,
	}}, []*storepb.Op{Put([]byte("held"), nil)}, nil)
	data, err := proto.MarshalOptions{}.MarshalAppend([]byte{1}, command)
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.appendLocked(data)
	c.mu.Unlock()
	if get(t, s, "held") != "" {
		t.Error("a comparison of format 1 over no keys did not hold, as it did where it was proposed")
	}
	if result := do(t, s, command); result.Txn.Succeeded {
		t.Error("the same comparison, proposed now, held")
	}
	if err := s.Apply(
		[]group.Entry{{Index: uint64(len(c.log) + 1), Term: 2, Data: []byte{200}}}); err == nil {
		t.Error("an unknown format was applied")
	}
}

// A nested transaction compares with what was there before the whole transaction, not with what the
// operations before it have written.
func TestCompareBeforeWrites(t *testing.T) {
	_, s := one(t, nil)
	nested := &storepb.Op{Op: &storepb.Op_Txn{Txn: &storepb.Txn{
		Compare: []*storepb.Compare{Absent([]byte("a"))},
		Success: []*storepb.Op{Put([]byte("b"), []byte("absent"))},
		Failure: []*storepb.Op{Put([]byte("b"), []byte("there"))}}}}
	do(t, s, writes(Put([]byte("a"), nil), nested))
	if got := get(t, s, "b"); got != "absent" {
		t.Errorf("key a was %s", got)
	}
	do(t, s, writes(Delete([]byte("a")), nested))
	if got := get(t, s, "b"); got != "there" {
		t.Errorf("key a was %s", got)
	}
}
