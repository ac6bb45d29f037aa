package metrics

import (
	"testing"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Every code that a request can end with has a counter of its own.
func TestOutcomesAreCounted(t *testing.T) {
	for code, name := range kvpb.ErrorCode_name {
		if int(code)+1 >= outcomeCount {
			t.Errorf("%s has none", name)
		}
	}
}
