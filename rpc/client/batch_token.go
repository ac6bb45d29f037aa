package client

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// tagToken is the tag of BatchRequest.token.
const tagToken = 3<<3 | 2

// tokenRecord is a token as a record of the outbox.
type tokenRecord string

// SizeVT implements record.
func (t tokenRecord) SizeVT() int { return len(t) }

// MarshalToSizedBufferVT implements record.
func (t tokenRecord) MarshalToSizedBufferVT(b []byte) (int, error) {
	return copy(b[len(b)-len(t):], t), nil
}

// Show sends a new token on the open stream, if there is one: it applies to the requests that are
// sent after it. It does not wait. Streams that are opened later use BatchConfig.Token. A token has
// at most 4 KiB.
func (b *BatchConn) Show(token string) error {
	if len(token) > wire.MaxTokenBytes {
		return fmt.Errorf("%w: a token has at most %d bytes, this one has %d", ErrMessageTooLarge,
			wire.MaxTokenBytes, len(token))
	}
	s := b.current.Load()
	if s == nil || token == "" {
		return nil
	}
	s.out.Lock()
	if s.broken.Load() {
		s.out.Unlock()
		return nil
	}
	_, err := s.out.AddLocked(tagToken, tokenRecord(token), len(token))
	s.out.UnlockAndSend(false)
	return err
}
