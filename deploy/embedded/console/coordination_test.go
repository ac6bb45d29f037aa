package console

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Readers before the first writer hold a lock together. All others wait, however many they are.
func TestQueues(t *testing.T) {
	var pairs []*mvccpb.KeyValue
	add := func(keys ...string) {
		for _, key := range keys {
			pairs = append(pairs, &mvccpb.KeyValue{Key: []byte("/p/" + key),
				CreateRevision: int64(len(pairs) + 1)})
		}
	}
	add("readers/read/1", "readers/read/2", "mixed/read/1", "mixed/read/2", "mixed/write/3",
		"mixed/read/4", "mixed/read/5", "writer/write/1", "writer/read/2", "no member")
	for i := range 30 {
		add(fmt.Sprintf("a%%2Fb/%d", i))
	}
	want := []queueView{
		{Name: "readers", Holder: "read/1", Holders: 2, Since: 1},
		{Name: "mixed", Holder: "read/1", Holders: 2, Since: 3, Waiting: 3},
		{Name: "writer", Holder: "write/1", Holders: 1, Since: 8, Waiting: 1},
		{Name: "a/b", Holder: "0", Holders: 1, Since: 11, Waiting: 29},
	}
	for i := range want {
		want[i].Kind = readersAndWriters
	}
	if got := queuesOf(pairs, "/p/", readersAndWriters); !slices.Equal(got, want) {
		t.Errorf("the queues are %+v", got)
	}
	// A member of another queue may have any name.
	if got := queuesOf(pairs[:2], "/p/", "election"); got[0].Holders != 1 || got[0].Waiting != 1 {
		t.Errorf("an election is %+v", got)
	}
}
