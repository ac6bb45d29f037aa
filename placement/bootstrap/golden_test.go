package bootstrap

import (
	"testing"

	"github.com/tidemarkdb/tidemark/placement/bootstrap/bootstrappb"
	"github.com/tidemarkdb/tidemark/rpc/release"
	"github.com/tidemarkdb/tidemark/rpc/release/golden"
)

// The file of a server's part in the forming of its core is written and read as in every release.
func TestGolden(t *testing.T) {
	golden.Check(t, "state", func(*release.Active) (records []golden.Record) {
		founding := &bootstrappb.Founding{Cluster: 0xc1, Members: []*bootstrappb.Member{
			{Address: "a:1", Replica: 1, Server: 11}, {Address: "b:1", Replica: 2, Server: 12},
			{Address: "c:1", Replica: 3, Server: 13}}}
		for _, s := range []struct {
			name  string
			state *bootstrappb.State
		}{
			{"new", &bootstrappb.State{Server: 11}},
			{"founded", &bootstrappb.State{Server: 11, Proposed: founding, Accepted: founding,
				Founded: true}},
		} {
			data, err := encodeState(s.state)
			if err != nil {
				t.Fatal(err)
			}
			records = append(records, golden.Record{Name: s.name, Data: data})
		}
		return records
	}, func(r golden.Record) error {
		_, err := decodeState(r.Data)
		return err
	})
}
