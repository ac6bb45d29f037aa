package command

import (
	"bytes"
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
)

// FuzzDeletedRange: what decodes encodes to the same bytes, and nothing panics.
func FuzzDeletedRange(f *testing.F) {
	f.Add((&deletedRange{timestamp: hlc.Timestamp{Wall: 7}, count: 3, more: true,
		resume: []byte("k")}).append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		if d, err := decodeDeletedRange(data); err == nil && !bytes.Equal(d.append(nil), data) {
			t.Fatalf("%x does not encode to itself", data)
		}
	})
}
