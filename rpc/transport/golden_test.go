package transport

import (
	"bufio"
	"bytes"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	levels "github.com/tidemarkdb/tidemark/rpc/release"
	"github.com/tidemarkdb/tidemark/rpc/release/golden"
)

// The beginning of a connection, control frames and proofs are written and read as in every
// release.
func TestGolden(t *testing.T) {
	golden.Check(t, "frame", func(*levels.Active) []golden.Record {
		numbers := [][]byte{bytes.Repeat([]byte{1}, numberBytes), bytes.Repeat([]byte{2}, numberBytes)}
		secret := Secret("a secret of the cluster, 32 bytes")
		return []golden.Record{
			{Name: "preface", Data: []byte(preface)},
			{Name: "alpn", Data: []byte(Protocol)},
			{Name: "hello", Data: appendControl(nil, controlHello, []byte("hello"))},
			{Name: "accepted", Data: appendControl(nil, controlAccepted, nil)},
			{Name: "keepalive", Data: appendControl(nil, controlKeepalive, nil)},
			{Name: "half-closed", Data: appendControl(nil, controlHalfClosed, nil)},
			{Name: "refused", Data: appendControl(nil, controlRefused,
				reason(status.Error(codes.NotFound, "not here")))},
			{Name: "ended", Data: appendControl(nil, controlEnded,
				reason(status.Error(codes.Unavailable, "over")))},
			{Name: "opener", Data: secret.code("opener", numbers[0], numbers[1], []byte("hello"))},
			{Name: "acceptor", Data: secret.code("acceptor", numbers[0], numbers[1], []byte("hello"))},
		}
	}, func(r golden.Record) error {
		switch r.Name {
		case "preface", "alpn", "opener", "acceptor":
			return nil
		}
		_, _, err := readFrame(bufio.NewReader(bytes.NewReader(r.Data)), nil)
		return err
	})
}
