package peer

import (
	"testing"

	"github.com/tidemarkdb/tidemark/rpc/release"
	"github.com/tidemarkdb/tidemark/rpc/release/golden"
)

// Peers say hello as in every release.
func TestGolden(t *testing.T) {
	golden.Check(t, "hello", func(*release.Active) []golden.Record {
		return []golden.Record{{Name: "identity",
			Data: identity{realm: "data", cluster: 0xc1, from: 1, to: 2}.hello()}}
	}, func(r golden.Record) error {
		_, err := parseIdentity(r.Data[1:])
		return err
	})
}
