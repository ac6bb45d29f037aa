package transport

import (
	"bytes"
	"io"
	"testing"
)

// TestRoomFollowsWhatCame: of a frame that is announced, no more memory is taken than four times
// what has come of it, and the whole arrives as it was sent.
func TestRoomFollowsWhatCame(t *testing.T) {
	const size = 40 << 20
	sent := make([]byte, size)
	for i := range sent {
		sent[i] = byte(i * i >> 7)
	}
	for _, came := range []int{0, 1, believed - 1, believed, 3 * believed, 10 * believed, size} {
		taken := 0
		content, err := readContent(bytes.NewReader(sent[:came]), size, func(n int) bool {
			taken += n
			return true
		})
		if most := max(roomGrows*came, believed); taken > most {
			t.Errorf("%d bytes came, and room was made for %d", came, taken)
		}
		switch {
		case came < size && err != io.ErrUnexpectedEOF:
			t.Errorf("%d bytes came: %v", came, err)
		case came == size && (err != nil || !bytes.Equal(content, sent) || taken != size):
			t.Errorf("all came, but the content differs, or %d bytes were taken: %v", taken, err)
		}
	}
}
