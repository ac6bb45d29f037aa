package proposal

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// Copies stay as they are, whatever is copied after them and whatever becomes of the original.
func TestArenaCopiesStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a Arena
		var copies, want [][]byte
		for range rapid.IntRange(1, 50).Draw(t, "copies") {
			lengths := rapid.OneOf(rapid.IntRange(0, 64), rapid.IntRange(0, 3*firstArenaBlock))
			n := lengths.Draw(t, "length")
			original := bytes.Repeat([]byte{byte(len(copies))}, n)
			want = append(want, bytes.Clone(original))
			copies = append(copies, a.Copy(original))
			clear(original)
			// An append to a copy does not reach the next one.
			_ = append(copies[len(copies)-1], 0xff)
		}
		for i := range copies {
			if !bytes.Equal(copies[i], want[i]) {
				t.Fatalf("copy %d of %d changed", i, len(copies))
			}
		}
	})
}
