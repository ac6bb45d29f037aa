package backup

import (
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A restore whose leader fell after it had published the keyspaces is over; in all other cases a
// keyspace of the name is in the way.
func TestPublishedByAnEarlierLeader(t *testing.T) {
	const id = "20260131T120000Z-1a2b3c4d"
	m := &manifest.Manifest{Plan: manifest.Plan{Keyspaces: []manifest.Keyspace{{ID: 7, Name: "a"},
		{ID: 8, Name: "b"}}, Units: []manifest.Unit{{Keyspace: 7}, {Keyspace: 8}, {Keyspace: 8}}}}
	point, err := manifest.NewPoint(manifest.Layers{m}, nil, hlc.Timestamp{})
	if err != nil {
		t.Fatal(err)
	}
	hidden := keys.HiddenName(id, "new-b")
	for name, test := range map[string]struct {
		loaded []byte
		there  []string
		want   bool
	}{
		"published":             {[]byte{6}, []string{"new-b"}, true},
		"published, more there": {[]byte{6}, []string{"new-b", "a", "x"}, true},
		"not begun":             {nil, []string{"new-b"}, false},
		"not loaded":            {[]byte{2}, []string{"new-b"}, false},
		"not published":         {[]byte{6}, []string{hidden}, false},
		"in the way":            {[]byte{6}, []string{hidden, "new-b"}, false},
		"dropped":               {[]byte{6}, nil, false},
	} {
		r := &restore{cluster: &cluster{backup: &clusterpb.Backup{Id: id}},
			point: point, loaded: test.loaded,
			chosen: map[uint32]*manifest.Keyspace{8: &m.Keyspaces[1]},
			names:  map[uint32]string{8: "new-b"}}
		there := make(map[string]*clusterpb.Keyspace)
		for _, name := range test.there {
			there[name] = new(clusterpb.Keyspace)
		}
		if got := r.published(there); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
